/* Patterns: literals by search, regular expressions by PCRE2. */
#include "data/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tri_pattern {
    char *literal; /* NULL for a regular expression */
    size_t num_bytes;
    pcre2_code *code;
};

/* \s means White_Space to the tokenizers whose patterns we run; to PCRE2 it is U+180E as well. */
static void translate(const char *text, size_t num_bytes, tri_bytes *out)
{
    for (size_t i = 0; i < num_bytes; i++) {
        if (text[i] != '\\' || i + 1 >= num_bytes) {
            tri_bytes_add(out, text + i, 1);
            continue;
        }
        i++;
        if (text[i] == 's')
            tri_bytes_add(out, "\\p{White_Space}", 15);
        else if (text[i] == 'S')
            tri_bytes_add(out, "\\P{White_Space}", 15);
        else
            tri_bytes_add(out, text + i - 1, 2);
    }
}

static pcre2_code *compile(const char *text, size_t num_bytes, int *error, size_t *offset)
{
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    return pcre2_compile((PCRE2_SPTR)text, num_bytes, options, error, offset, NULL);
}

static tr_status compile_regex(tri_pattern *pattern, const char *text, size_t num_bytes,
                               tr_error *err)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    tri_bytes translated = {0};
    translate(text, num_bytes, &translated);
    if (!translated.failed && translated.num > 0)
        pattern->code = compile(translated.data, translated.num, &error, &offset);
    tri_bytes_fini(&translated);
    if (!pattern->code) /* an older PCRE2 does not know White_Space */
        pattern->code = compile(text, num_bytes, &error, &offset);
    if (!pattern->code) {
        char why[120] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return tri_fail(err, TR_ERROR_INPUT, "the pattern \"%.200s\" is wrong at character %zu: %s",
                        text, (size_t)offset, why);
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* without it, matching is only slower */
    return TR_OK;
}

tr_status tri_pattern_create(const char *text, size_t num_bytes, bool is_regex,
                             tri_pattern **pattern, tr_error *err)
{
    tri_pattern *p = *pattern = calloc(1, sizeof *p);
    if (!p)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    tr_status status = TR_OK;
    if (num_bytes == 0) {
        status = tri_fail(err, TR_ERROR_INPUT, "a pattern is empty");
    } else if (is_regex) {
        status = compile_regex(p, text, num_bytes, err);
    } else if ((p->literal = malloc(num_bytes))) {
        memcpy(p->literal, text, num_bytes);
        p->num_bytes = num_bytes;
    } else {
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    }
    if (status != TR_OK) {
        tri_pattern_destroy(p);
        *pattern = NULL;
    }
    return status;
}

void tri_pattern_destroy(tri_pattern *pattern)
{
    if (!pattern)
        return;
    free(pattern->literal);
    pcre2_code_free(pattern->code);
    free(pattern);
}

const char *tri_pattern_literal(const tri_pattern *pattern, size_t *num_bytes)
{
    *num_bytes = pattern->num_bytes;
    return pattern->literal;
}

void tri_matcher_fini(tri_matcher *matcher)
{
    pcre2_match_data_free(matcher->match_data);
    matcher->match_data = NULL;
}

static bool find_regex(const tri_pattern *pattern, tri_matcher *matcher, const char *text,
                       size_t num_bytes, size_t from, size_t *begin, size_t *end)
{
    if (!matcher->match_data)
        matcher->match_data = pcre2_match_data_create(1, NULL);
    matcher->failed = matcher->failed || !matcher->match_data;
    while (matcher->match_data && from < num_bytes) {
        int found = pcre2_match(pattern->code, (PCRE2_SPTR)text, num_bytes, from, 0,
                                matcher->match_data, NULL);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* a very long word: the interpreter has a heap */
            found = pcre2_match(pattern->code, (PCRE2_SPTR)text, num_bytes, from, PCRE2_NO_JIT,
                                matcher->match_data, NULL);
        if (found < 0) {
            matcher->failed = matcher->failed || found != PCRE2_ERROR_NOMATCH;
            return false;
        }
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(matcher->match_data);
        *begin = place[0];
        *end = place[1];
        if (*end > *begin && *begin >= from)
            return true;
        const char *p = text + (*begin > from ? *begin : from);
        if (p < text + num_bytes)
            tri_utf8_next(&p, text + num_bytes);
        else
            p++;
        from = (size_t)(p - text);
    }
    return false;
}

bool tri_pattern_find(const tri_pattern *pattern, tri_matcher *matcher, const char *text,
                      size_t num_bytes, size_t from, size_t *begin, size_t *end)
{
    if (!pattern->literal)
        return find_regex(pattern, matcher, text, num_bytes, from, begin, end);
    if (from >= num_bytes)
        return false;
    const char *found =
        tri_find(text + from, num_bytes - from, pattern->literal, pattern->num_bytes);
    if (!found)
        return false;
    *begin = (size_t)(found - text);
    *end = *begin + pattern->num_bytes;
    return true;
}
