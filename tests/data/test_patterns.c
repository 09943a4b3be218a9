/* Text is cut into words, and normalized, as Hugging Face tokenizers does it: patterns are
 * Oniguruma's with Unicode 16, classes Rust's; what is not so is refused by name. The expected
 * pieces were made by tests/reference/make_pattern_fixture.py. */
#include "data/tokenizer/tokenizer_parts.h"
#include "tokenizer_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

typedef struct gathered {
    json_t *pieces;
    bool letters; /* bytes are to be written as letters */
} gathered;

static void gather(void *context, const char *word, size_t num_bytes)
{
    gathered *g = context;
    tri_bytes text = {0};
    for (size_t i = 0; i < num_bytes && g->letters; i++)
        tri_bytes_add_char(&text, tri_byte_to_char((unsigned char)word[i]));
    json_array_append_new(g->pieces, g->letters ? json_stringn(text.data, text.num)
                                                : json_stringn(word, num_bytes));
    tri_bytes_fini(&text);
}

static json_t *pieces_of(const tri_tokenizer *t, json_t *text)
{
    tri_matcher matcher = {0};
    tri_bytes buffer[TRI_MAX_CUTS] = {{0}};
    gathered g = {json_array(), t->byte_level};
    const char *begin = json_string_value(text), *second = begin;
    size_t num = json_string_length(text);
    tri_utf8_next(&second, begin + num);
    tri_pretokenize run = {&t->pretokenizer,        t->unicode, &matcher, buffer, gather, &g,
                           (size_t)(second - begin)};
    tri_matcher_begin(&matcher, num);
    tri_pretokenize_run(&run, begin, num);
    assert_null(matcher.gave_up);
    tri_matcher_fini(&matcher);
    for (int i = 0; i < TRI_MAX_CUTS; i++)
        tri_bytes_fini(&buffer[i]);
    return g.pieces;
}

static void words_are_those_of_hugging_face(void **state)
{
    (void)state;
    json_t *root = json_load_file(FIXTURES "pretokenized.json", 0, NULL), *one, *text;
    json_t *cases = json_object_get(root, "pre_tokenizers"),
           *texts = json_object_get(root, "texts");
    size_t i, k;
    assert_true(json_array_size(cases) > 90);
    json_array_foreach(cases, i, one)
    {
        tri_tokenizer *t;
        tr_error err = {0};
        json_t *of = json_object_get(one, "of");
        char *what = json_dumps(of, JSON_COMPACT);
        assert_int_equal(tri_tokenizer_create("test", &t, &err), TR_OK);
        if (tri_read_pretokenizer(t, of, &err) != TR_OK)
            fail_msg("%s: %s", what, err.message);
        json_array_foreach(texts, k, text)
        {
            json_t *ours = pieces_of(t, text);
            json_t *theirs = json_array_get(json_object_get(one, "pieces"), k);
            if (!json_equal(ours, theirs))
                fail_msg("%s, text %zu: %s, expected %s", what, k, json_dumps(ours, JSON_COMPACT),
                         json_dumps(theirs, JSON_COMPACT));
            json_decref(ours);
        }
        free(what);
        tri_tokenizer_close(t);
    }
    json_decref(root);
}

static void texts_are_normalized_as_in_hugging_face(void **state)
{
    (void)state;
    json_t *root = json_load_file(FIXTURES "pretokenized.json", 0, NULL), *one, *text;
    json_t *cases = json_object_get(root, "normalizers"), *texts = json_object_get(root, "texts");
    size_t i, k;
    assert_true(json_array_size(cases) > 10);
    json_array_foreach(cases, i, one)
    {
        tri_tokenizer *t;
        tr_error err = {0};
        tri_matcher matcher = {0};
        tri_bytes buffer[2] = {{0}};
        assert_int_equal(tri_tokenizer_create("test", &t, &err), TR_OK);
        assert_int_equal(tri_read_normalizer(t, json_object_get(one, "of"), 0, &err), TR_OK);
        json_array_foreach(texts, k, text)
        {
            const char *out = json_string_value(text);
            size_t num = json_string_length(text);
            json_t *theirs = json_array_get(json_object_get(one, "texts"), k);
            tri_matcher_begin(&matcher, num);
            tri_normalize(&t->normalizer, t->unicode, &out, &num, true, true, buffer, &matcher);
            if (num != json_string_length(theirs) ||
                memcmp(out, json_string_value(theirs), num) != 0)
                fail_msg("normalizer %zu, text %zu: %.*s, expected %s", i, k, (int)num, out,
                         json_string_value(theirs));
        }
        tri_matcher_fini(&matcher);
        tri_bytes_fini(&buffer[0]);
        tri_bytes_fini(&buffer[1]);
        tri_tokenizer_close(t);
    }
    json_decref(root);
}

/* ---- refusals ---- */

static void what_differs_between_versions_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *named;
    } cases[] = {
        {"a\\Xb", "\\X"},
        {"\\G\\w", "\\G"},
        {"\\y", "\\y"},
        {"\\p{Grapheme_Extend}", "\\p{Grapheme_Extend}"},
        {"[\\p{Diacritic}]", "\\p{Diacritic}"},
        {"\\p{Garay}", "Garay"}, /* a script of Unicode 16 */
        {"(?i:[\\p{Lu}])", "\\p{Lu}"},
        {"(?i)[\\x{200}-\\x{300}]", "\\x{300}"},
        {"(?W:\\w)", "(?W"},
        {"(?P<name>a)", "(?P"},
        {"(*FAIL)", "(*FAIL)"},
        {"(?{call})", "(?{call})"},
        {"[a-\\p{L}]", "\\p{L}"},
        {"\\cA", "\\c"},
        {"(", "end pattern"},
        {"[a", "brackets without an end"},
        {"a\\", "a backslash at its end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_pattern *pattern;
        tr_error err = {0};
        assert_int_equal(
            tri_pattern_create(cases[i].pattern, strlen(cases[i].pattern), true, &pattern, &err),
            TR_ERROR_INPUT);
        assert_null(pattern);
        if (!strstr(err.message, cases[i].named))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].pattern, cases[i].named, err.message);
    }
}

/* ---- limits ---- */

/* Each place looks through the rest of the text: a million places would take hours. */
static void a_quadratic_pattern_is_given_up(void **state)
{
    (void)state;
    enum { NUM = 200000 };
    static const char text[] = "a(?=.*b)";
    char *subject = malloc(NUM);
    tri_pattern *pattern;
    tri_matcher matcher = {0};
    tri_matches matches;
    tr_error err;
    size_t begin, end;
    memset(subject, 'a', NUM - 1);
    subject[NUM - 1] = 'b';
    assert_int_equal(tri_pattern_create(text, strlen(text), true, &pattern, &err), TR_OK);
    tri_matcher_begin(&matcher, NUM);
    tri_matcher_allow(&matcher, 50000000);
    tri_matches_begin(&matches, pattern, &matcher, subject, NUM);
    while (tri_matches_next(&matches, &begin, &end))
        assert_true(begin < NUM - 1);
    tri_matches_end(&matches);
    assert_ptr_equal(matcher.gave_up, pattern);
    assert_string_equal(tri_pattern_text(matcher.gave_up), text);
    tri_matcher_fini(&matcher);
    tri_pattern_destroy(pattern);
    free(subject);
}

/* A match may reach beyond any window, and a byte that is no UTF-8 is matched as U+FFFD. */
static void broken_bytes_are_symbols(void **state)
{
    (void)state;
    static const char text[] = "ab\xFF\xC3z \xE2\x82 9";
    static const struct {
        const char *pattern;
        size_t begin[4], end[4];
        int num;
    } cases[] = {
        {"[^\\s\\p{L}\\p{N}]+", {2, 6}, {4, 8}, 2},
        {"\\x{FFFD}\\x{FFFD}", {2, 6}, {4, 8}, 2},
        {"\\w+", {0, 4, 9}, {2, 5, 10}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_pattern *pattern;
        tri_matcher matcher = {0};
        tri_matches matches;
        tr_error err;
        size_t begin, end;
        int num = 0;
        assert_int_equal(
            tri_pattern_create(cases[i].pattern, strlen(cases[i].pattern), true, &pattern, &err),
            TR_OK);
        tri_matcher_begin(&matcher, sizeof text);
        tri_matches_begin(&matches, pattern, &matcher, text, sizeof text - 1);
        for (; tri_matches_next(&matches, &begin, &end); num++) {
            assert_true(num < cases[i].num);
            assert_int_equal(begin, cases[i].begin[num]);
            assert_int_equal(end, cases[i].end[num]);
        }
        assert_int_equal(num, cases[i].num);
        tri_matches_end(&matches);
        tri_matcher_fini(&matcher);
        tri_pattern_destroy(pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_hugging_face),
        cmocka_unit_test(texts_are_normalized_as_in_hugging_face),
        cmocka_unit_test(what_differs_between_versions_is_refused_by_name),
        cmocka_unit_test(a_quadratic_pattern_is_given_up),
        cmocka_unit_test(broken_bytes_are_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
