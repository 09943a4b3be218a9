/* Tokens into text as they come: stop strings wherever the borders of tokens lie, whole characters,
 * tokenizers whose tokens depend on their neighbours; and where vocabularies are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "serve/stream.h"
#include "temp_dir.h"

/* Pieces as they went out. */
typedef struct pieces {
    tri_bytes all;
    size_t num;
    bool broken; /* a piece began or ended within a character */
} pieces;

static void on_piece(void *context, const char *bytes, size_t num_bytes)
{
    pieces *p = context;
    assert_true(num_bytes > 0);
    tri_bytes_add(&p->all, bytes, num_bytes);
    p->num++;
    for (const char *at = bytes, *end = bytes + num_bytes; at < end;)
        p->broken |= tri_utf8_next(&at, end) >= TRI_BROKEN;
}

static tri_vocabulary open_vocabulary(const char *path, int64_t num_tokens)
{
    tri_vocabulary v;
    tr_error err = {0};
    if (tri_vocabulary_open(path, NULL, num_tokens, true, &v, &err) != TR_OK)
        fail_msg("%s", err.message);
    return v;
}

/* Feeds bytes as tokens; returns how many it took before the text ended. */
static size_t feed(const tri_vocabulary *v, const char *const *stops, size_t num_stops,
                   const char *text, pieces *out, tri_text_end *end)
{
    tri_text_stream stream = {
        .vocabulary = v, .stops = {stops, num_stops}, .context = out, .piece = on_piece};
    tri_text_stream_begin(&stream, (const int32_t[]){'x'}, 1);
    size_t taken = 0;
    bool more = true;
    tr_error err = {0};
    for (; *text && more; text++, taken++)
        assert_int_equal(tri_text_stream_add(&stream, (unsigned char)*text, &more, &err), TR_OK);
    tri_text_stream_finish(&stream);
    *end = stream.end;
    assert_int_equal(stream.text.num, out->all.num);
    if (stream.text.num)
        assert_memory_equal(stream.text.data, out->all.data, out->all.num);
    tri_text_stream_fini(&stream);
    return taken;
}

static void expect_text(const tri_vocabulary *v, const char *const *stops, size_t num_stops,
                        const char *text, const char *wanted, tri_text_end wanted_end)
{
    pieces out = {0};
    tri_text_end end;
    feed(v, stops, num_stops, text, &out, &end);
    if (out.all.num != strlen(wanted) ||
        (out.all.num > 0 && memcmp(out.all.data, wanted, out.all.num) != 0))
        fail_msg("\"%s\" became \"%.*s\", not \"%s\"", text, (int)out.all.num, out.all.data,
                 wanted);
    assert_int_equal(end, wanted_end);
    tri_bytes_fini(&out.all);
}

static void test_stop_strings(void **state)
{
    (void)state;
    tri_vocabulary v = open_vocabulary("tests", 256);
    const char *end[] = {"END"}, *both[] = {"\n\n", "ab"}, *inside[] = {"abcd", "bc"};
    const char *prefix[] = {"aab"}, *one[] = {"é"};
    expect_text(&v, end, 1, "some text END more", "some text ", TRI_END_STOP);
    expect_text(&v, end, 1, "ENENEND", "ENEN", TRI_END_STOP);
    expect_text(&v, end, 1, "ends with EN", "ends with EN", TRI_END_LENGTH);
    expect_text(&v, end, 1, "END", "", TRI_END_STOP);
    expect_text(&v, both, 2, "x\ny\n\nz", "x\ny", TRI_END_STOP);
    expect_text(&v, both, 2, "x\nab\n\n", "x\n", TRI_END_STOP);
    expect_text(&v, inside, 2, "xabcd", "xa", TRI_END_STOP); /* bc is whole first */
    expect_text(&v, prefix, 1, "xaaaab", "xaa", TRI_END_STOP);
    expect_text(&v, one, 1, "caf\xc3\xa8 caf\xc3\xa9!", "caf\xc3\xa8 caf", TRI_END_STOP);
    expect_text(&v, NULL, 0, "nothing stops", "nothing stops", TRI_END_LENGTH);
    tri_vocabulary_close(&v);
}

/* Against searching in the whole text, on random texts of two letters. */
static void test_random_stops(void **state)
{
    (void)state;
    tri_vocabulary v = open_vocabulary("tests", 256);
    for (uint64_t n = 0; n < 2000; n++) {
        char text[41], stop[2][8];
        const char *stops[] = {stop[0], stop[1]};
        for (int i = 0; i < 40; i++)
            text[i] = (char)('a' + tri_random_word(1, n * 100 + (uint64_t)i, 0, 1) % 2);
        text[40] = 0;
        for (int s = 0; s < 2; s++) {
            size_t length = 3 + tri_random_word(2, n * 2 + (uint64_t)s, 0, 1) % 5;
            for (size_t i = 0; i < length; i++)
                stop[s][i] =
                    (char)('a' + tri_random_word(3, n * 20 + (uint64_t)s * 10 + i, 0, 1) % 2);
            stop[s][length] = 0;
        }
        /* The one that is whole first; of two at once, that which begins first. */
        size_t cut = 40, whole = 41;
        for (int s = 0; s < 2; s++) {
            const char *at = strstr(text, stop[s]);
            size_t ends = at ? (size_t)(at - text) + strlen(stop[s]) : 99;
            if (at && (ends < whole || (ends == whole && (size_t)(at - text) < cut))) {
                cut = (size_t)(at - text);
                whole = ends;
            }
        }
        pieces out = {0};
        tri_text_end end;
        size_t taken = feed(&v, stops, 2, text, &out, &end);
        assert_int_equal(out.all.num, cut);
        assert_int_equal(taken, whole < 41 ? whole : 40);
        if (cut)
            assert_memory_equal(out.all.data, text, cut);
        tri_bytes_fini(&out.all);
    }
    tri_vocabulary_close(&v);
}

static void test_characters_are_whole(void **state)
{
    (void)state;
    tri_vocabulary v = open_vocabulary("tests", 256);
    pieces out = {0};
    tri_text_end end;
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2z";
    feed(&v, NULL, 0, text, &out, &end);
    assert_false(out.broken);
    assert_int_equal(out.num, 5);
    assert_string_equal((tri_bytes_add(&out.all, "", 1), out.all.data), text);
    tri_bytes_fini(&out.all);
    /* What never becomes whole comes out at the end; a byte that begins nothing is not held back.
     */
    out = (pieces){0};
    feed(&v, NULL, 0,
         "a\x80\xff"
         "b\xe2\x82",
         &out, &end);
    assert_true(out.broken);
    assert_int_equal(out.all.num, 6);
    tri_bytes_fini(&out.all);
    assert_int_equal(tri_utf8_unfinished("a\xe2\x82", 3), 2);
    assert_int_equal(tri_utf8_unfinished("\xe2\x82\xac", 3), 0);
    assert_int_equal(tri_utf8_unfinished("\xf0\x9f\x9a", 3), 3);
    assert_int_equal(tri_utf8_unfinished("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(tri_utf8_unfinished("", 0), 0);
    tri_vocabulary_close(&v);
}

/* Every tokenizer: the pieces of a text, token by token after a prompt, are what the tokens of both
 * together say. */
static void check_tokenizer(temp_dir *temp, const char *fixture)
{
    tri_mapping mapping;
    tr_error err = {0};
    char from[200];
    snprintf(from, sizeof from, "tests/fixtures/%s", fixture);
    assert_int_equal(tri_mapping_open(&mapping, from, &err), TR_OK);
    assert_int_equal(put_file(temp_file(temp, "tokenizer.json"), mapping.data, mapping.num_bytes),
                     0);
    tri_mapping_close(&mapping);
    tri_vocabulary v = open_vocabulary(temp->path, 1 << 20);
    const char *prompt = "Once upon a time",
               *text = ", the caf\xc3\xa9 of 1999 was open! \n Yes it's";
    tri_ids a = {0}, b = {0};
    assert_int_equal(tri_vocabulary_prompt(&v, prompt, strlen(prompt), &a, &err), TR_OK);
    assert_int_equal(tri_tokenizer_encode(v.tokenizer, NULL, text, strlen(text),
                                          TRI_ENCODE_PLAIN | TRI_ENCODE_CONTINUE, &b, &err),
                     TR_OK);
    pieces out = {0};
    tri_text_stream stream = {
        .vocabulary = &v, .past_eos = true, .context = &out, .piece = on_piece};
    tri_text_stream_begin(&stream, a.id, a.num);
    bool more = true;
    for (size_t i = 0; i < b.num; i++) {
        assert_int_equal(tri_text_stream_add(&stream, b.id[i], &more, &err), TR_OK);
        assert_true(more);
    }
    tri_text_stream_finish(&stream);
    tri_bytes before = {0}, all = {0};
    assert_int_equal(tri_vocabulary_text(&v, a.id, a.num, &before, &err), TR_OK);
    tri_ids_add(&a, b.id, b.num);
    assert_int_equal(tri_vocabulary_text(&v, a.id, a.num, &all, &err), TR_OK);
    if (out.all.num != all.num - before.num ||
        memcmp(out.all.data, all.data + before.num, out.all.num) != 0)
        fail_msg("%s: \"%.*s\", not \"%.*s\"", fixture, (int)out.all.num, out.all.data,
                 (int)(all.num - before.num), all.data + before.num);
    assert_true(out.all.num > 20);
    tri_bytes_fini(&before);
    tri_bytes_fini(&all);
    tri_bytes_fini(&out.all);
    tri_text_stream_fini(&stream);
    tri_ids_fini(&a);
    tri_ids_fini(&b);
    tri_vocabulary_close(&v);
}

static void test_tokenizers(void **state)
{
    temp_dir *temp = *state;
    static const char *const all[] = {"tokenizer_llama2.json",    "tokenizer_llama3.json",
                                      "tokenizer_metaspace.json", "tokenizer_qwen.json",
                                      "tokenizer_trained.json",   "tokenizer_digits.json"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_tokenizer(temp, all[i]);
}

/* ---- vocabularies ---- */

static void put_text(temp_dir *temp, const char *name, const char *text)
{
    assert_int_equal(put_file(temp_file(temp, name), text, strlen(text)), 0);
}

static void test_end_tokens(void **state)
{
    (void)state;
    temp_dir *temp = *state;
    remove(temp_file(temp, "tokenizer.json"));
    put_text(temp, "config.json", "{\"eos_token_id\": 7}");
    put_text(temp, "generation_config.json", "{\"eos_token_id\": [9, 7, 999, -4]}");
    tri_vocabulary v;
    tr_error err = {0};
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 256, false, &v, &err), TR_OK);
    assert_int_equal(v.num_eos, 2);
    assert_true(tri_vocabulary_ends(&v, 7) && tri_vocabulary_ends(&v, 9));
    assert_false(tri_vocabulary_ends(&v, 999));
    for (int past = 0; past < 2; past++) {
        tri_text_stream stream = {.vocabulary = &v, .past_eos = past};
        tri_text_stream_begin(&stream, (const int32_t[]){1}, 1);
        bool more;
        assert_int_equal(tri_text_stream_add(&stream, 'a', &more, &err), TR_OK);
        assert_true(more);
        assert_int_equal(tri_text_stream_add(&stream, 9, &more, &err), TR_OK);
        assert_int_equal(more, past);
        tri_text_stream_finish(&stream);
        assert_int_equal(stream.text.num, 1 + past); /* the token itself is not part of it */
        assert_int_equal(stream.end, past ? TRI_END_LENGTH : TRI_END_EOS);
        tri_text_stream_fini(&stream);
    }
    tri_vocabulary_close(&v);
    /* generation_config.json comes before config.json, as in transformers; a broken one is told. */
    put_text(temp, "generation_config.json", "{\"eos_token_id\": 9, \"max\": Infinity}");
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 256, false, &v, &err), TR_OK);
    assert_true(v.num_eos == 1 && v.eos[0] == 9);
    tri_vocabulary_close(&v);
    put_text(temp, "generation_config.json", "{\"eos_token_id\": 9,");
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 256, false, &v, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "generation_config.json"));
    put_text(temp, "generation_config.json", "{\"eos_token_id\": [9, \"x\"]}");
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 256, false, &v, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "eos_token_id"));
    remove(temp_file(temp, "config.json"));
    remove(temp_file(temp, "generation_config.json"));
}

static void test_where_vocabularies_are(void **state)
{
    (void)state;
    temp_dir *temp = *state;
    tri_vocabulary v;
    tr_error err = {0};
    /* No tokenizer: bytes for a vocabulary of bytes, and for those who say so. */
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 50257, false, &v, &err), TR_OK);
    assert_null(v.tokenizer);
    assert_int_equal(tri_vocabulary_need(&v, "some/dir", &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "some/dir has no tokenizer"));
    assert_non_null(strstr(err.message, "--prompt-ids"));
    tri_vocabulary_close(&v);
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 50257, true, &v, &err), TR_OK);
    assert_int_equal(tri_tokenizer_vocab(v.tokenizer), 256);
    /* A token without a text. */
    tri_bytes text = {0};
    assert_int_equal(tri_vocabulary_text(&v, (const int32_t[]){'a', 300, 'b'}, 3, &text, &err),
                     TR_OK);
    assert_int_equal(text.num, 5);
    assert_memory_equal(text.data,
                        "a\xef\xbf\xbd"
                        "b",
                        5);
    tri_bytes_fini(&text);
    tri_vocabulary_close(&v);
    /* Beside a file; a damaged tokenizer is an error, not bytes. */
    put_text(temp, "weights.safetensors", "");
    put_text(temp, "tokenizer.json", "{\"model\": 1}");
    assert_int_equal(
        tri_vocabulary_open(temp_file(temp, "weights.safetensors"), NULL, 256, true, &v, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    remove(temp_file(temp, "tokenizer.json"));
    /* An empty prompt becomes something to continue; a prompt beyond the model is refused. */
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, 100, true, &v, &err), TR_OK);
    tri_ids ids = {0};
    assert_int_equal(tri_vocabulary_prompt(&v, "", 0, &ids, &err), TR_OK);
    assert_int_equal(ids.num, 1);
    assert_int_equal(ids.id[0], '\n');
    assert_int_equal(tri_vocabulary_prompt(&v, "zz", 2, &ids, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "the prompt has the token 122"));
    tri_ids_fini(&ids);
    tri_vocabulary_close(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_strings),         cmocka_unit_test(test_random_stops),
        cmocka_unit_test(test_characters_are_whole), cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_end_tokens),           cmocka_unit_test(test_where_vocabularies_are),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
