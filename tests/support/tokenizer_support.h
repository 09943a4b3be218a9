/* What the tests of tokenizers share: opening, encoding and decoding that must not fail, and the
 * cases of tests/fixtures/tokenizer_expected.txt. */
#ifndef TRI_TESTS_TOKENIZER_SUPPORT_H
#define TRI_TESTS_TOKENIZER_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "data/tokenizer/tokenizer.h"
#include "temp_dir.h"

#include <jansson.h>
#include <stdbool.h>

#define FIXTURES "tests/fixtures/"

static inline tri_tokenizer *open_tokenizer(const char *path)
{
    tri_tokenizer *tokenizer;
    tr_error err;
    if (tri_tokenizer_open(path, &tokenizer, &err) != TR_OK)
        fail_msg("%s", err.message);
    return tokenizer;
}

static inline tri_ids encode_with(const tri_tokenizer *tokenizer, tri_pool *pool, const char *text,
                                  size_t num_bytes, unsigned flags)
{
    tri_ids ids = {0};
    tr_error err;
    if (tri_tokenizer_encode(tokenizer, pool, text, num_bytes, flags, &ids, &err) != TR_OK)
        fail_msg("%s", err.message);
    return ids;
}

static inline tri_bytes decode_with(const tri_tokenizer *tokenizer, const tri_ids *ids,
                                    unsigned flags)
{
    tri_bytes bytes = {0};
    tr_error err;
    if (tri_tokenizer_decode(tokenizer, ids->id, ids->num, flags, &bytes, &err) != TR_OK)
        fail_msg("%s", err.message);
    return bytes;
}

static inline void assert_open_fails(const char *path, const char *because, const char *also)
{
    tri_tokenizer *tokenizer;
    tr_error err = {0};
    assert_int_equal(tri_tokenizer_open(path, &tokenizer, &err), TR_ERROR_INPUT);
    assert_null(tokenizer);
    if (!strstr(err.message, because) || !strstr(err.message, also))
        fail_msg("expected \"%s\" and \"%s\" in: %s", because, also, err.message);
}

/* ---- expected ids ---- */

typedef struct expectations {
    json_t **line;
    size_t num;
    char **text;
    size_t *text_bytes;
    size_t num_texts; /* the last is all of them with line ends between */
} expectations;

static inline void read_texts(expectations *e)
{
    json_t *texts = json_object_get(e->line[0], "texts"), *item;
    size_t i;
    tri_bytes all = {0};
    e->num_texts = json_array_size(texts) + 1;
    e->text = calloc(e->num_texts, sizeof *e->text);
    e->text_bytes = calloc(e->num_texts, sizeof *e->text_bytes);
    json_array_foreach(texts, i, item)
    {
        e->text_bytes[i] = json_string_length(item);
        e->text[i] = malloc(e->text_bytes[i] + 1);
        memcpy(e->text[i], json_string_value(item), e->text_bytes[i]);
        if (i > 0)
            tri_bytes_add(&all, "\n", 1);
        tri_bytes_add(&all, e->text[i], e->text_bytes[i]);
    }
    e->text[i] = all.data;
    e->text_bytes[i] = all.num;
}

static inline expectations *expected_open(void)
{
    tri_mapping file;
    tr_error err;
    expectations *e = calloc(1, sizeof *e);
    if (tri_mapping_open(&file, FIXTURES "tokenizer_expected.txt", &err) != TR_OK)
        fail_msg("%s", err.message);
    const char *p = (const char *)file.data, *end = p + file.num_bytes;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        e->line = realloc(e->line, (e->num + 1) * sizeof *e->line);
        e->line[e->num] = json_loadb(p, (size_t)(stop - p), JSON_ALLOW_NUL, NULL);
        assert_non_null(e->line[e->num++]);
        p = stop + 1;
    }
    tri_mapping_close(&file);
    read_texts(e);
    return e;
}

static inline void expected_close(expectations *e)
{
    for (size_t i = 0; i < e->num; i++)
        json_decref(e->line[i]);
    for (size_t i = 0; i < e->num_texts; i++)
        free(e->text[i]);
    free(e->line);
    free(e->text);
    free(e->text_bytes);
    free(e);
}

static inline void compare_ids(const tri_tokenizer *tokenizer, const tri_ids *ids, json_t *expected,
                               const char *name, size_t text)
{
    size_t num = json_array_size(expected);
    for (size_t i = 0; i < ids->num || i < num; i++) {
        long long want = i < num ? json_integer_value(json_array_get(expected, i)) : -1;
        long long have = i < ids->num ? ids->id[i] : -1;
        size_t a, b;
        const char *want_text = tri_tokenizer_spelling(tokenizer, (int32_t)want, &a);
        const char *have_text = tri_tokenizer_spelling(tokenizer, (int32_t)have, &b);
        if (have != want)
            fail_msg("%s, text %zu, token %zu is %lld \"%.*s\", not %lld \"%.*s\"", name, text, i,
                     have, (int)b, have_text ? have_text : "", want, (int)a,
                     want_text ? want_text : "");
    }
}

static inline void check_case(const tri_tokenizer *tokenizer, const expectations *e, json_t *one,
                              const char *name)
{
    size_t text = (size_t)json_integer_value(json_object_get(one, "text"));
    bool special = json_is_true(json_object_get(one, "special"));
    tri_ids ids = encode_with(tokenizer, NULL, e->text[text], e->text_bytes[text],
                              special ? TRI_ENCODE_SPECIAL : 0);
    compare_ids(tokenizer, &ids, json_object_get(one, "ids"), name, text);
    if (!special) {
        tri_bytes bytes = decode_with(tokenizer, &ids, 0);
        json_t *decoded = json_object_get(one, "decoded");
        const char *want = decoded ? json_string_value(decoded) : e->text[text];
        size_t num = decoded ? json_string_length(decoded) : e->text_bytes[text];
        if (text + 1 < e->num_texts && !json_is_null(decoded) &&
            (num != bytes.num || (num > 0 && memcmp(want, bytes.data, num) != 0)))
            fail_msg("%s, text %zu decodes to \"%.*s\", not to \"%.*s\"", name, text,
                     (int)bytes.num, bytes.data, (int)num, want);
        tri_bytes_fini(&bytes);
    }
    tri_ids_fini(&ids);
}

/* All cases of one tokenizer; returns how many. */
static inline int check_tokenizer(const tri_tokenizer *tokenizer, const char *name)
{
    expectations *e = expected_open();
    int num = 0;
    for (size_t i = 1; i < e->num; i++) {
        if (strcmp(json_string_value(json_object_get(e->line[i], "tokenizer")), name) != 0)
            continue;
        check_case(tokenizer, e, e->line[i], name);
        num++;
    }
    expected_close(e);
    return num;
}

static const char *const families[] = {"llama3", "qwen",      "pattern", "llama2", "metaspace",
                                       "across", "wordpiece", "cased",   "digits", "sparse"};
enum { NUM_FAMILIES = sizeof families / sizeof *families };

static inline const char *family_path(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, FIXTURES "tokenizer_%s.json", name);
    return path;
}

static inline char *long_text(size_t *num_bytes)
{
    expectations *e = expected_open();
    tri_bytes text = {0};
    while (text.num < 3000000)
        tri_bytes_add(&text, e->text[e->num_texts - 1], e->text_bytes[e->num_texts - 1]);
    *num_bytes = text.num;
    expected_close(e);
    return text.data;
}

static inline uint64_t fingerprint_of(const tri_tokenizer *tokenizer)
{
    uint64_t fingerprint = 0;
    assert_int_equal(tri_tokenizer_fingerprint(tokenizer, &fingerprint, NULL), TR_OK);
    return fingerprint;
}

#endif
