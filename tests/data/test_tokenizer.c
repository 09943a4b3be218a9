/* Tokenizers: the ids of Hugging Face tokenizers, exactly; bytes that come back; results that do
 * not depend on threads or blocks. The expected ids were made by
 * tests/reference/make_tokenizer_fixtures.py. */
#include "data/prepare/texts.h"
#include "tokenizer_support.h"

#include "data/tokenizer/pretokenize.h"

#define SHARED "../shared/fixtures/"

static void ids_are_those_of_hugging_face(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        tri_tokenizer *tokenizer = open_tokenizer(family_path(families[i]));
        assert_true(check_tokenizer(tokenizer, families[i]) > 40);
        tri_tokenizer_close(tokenizer);
    }
}

/* What we write, we and others read: the same ids come out of it. */
static void saved_tokenizers_are_the_same(void **state)
{
    temp_dir *dir = *state;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        const char *copy = temp_file(dir, "saved.json");
        tr_error err;
        tri_tokenizer *tokenizer = open_tokenizer(family_path(families[i]));
        assert_int_equal(tri_tokenizer_save(tokenizer, copy, &err), TR_OK);
        tri_tokenizer_close(tokenizer);
        tokenizer = open_tokenizer(copy);
        assert_true(check_tokenizer(tokenizer, families[i]) > 40);
        tri_tokenizer_close(tokenizer);
    }
}

/* Ids that no token has: they are counted in the size of the vocabulary and decode to nothing, as
 * in Hugging Face tokenizers (the fixture's script asserts the same of them). */
static void holes_are_no_tokens(void **state)
{
    temp_dir *dir = *state;
    const char *copy = temp_file(dir, "sparse.json");
    char text[160];
    size_t num;
    tr_error err;
    tri_tokenizer *tokenizer = open_tokenizer(family_path("sparse"));
    assert_int_equal(tri_tokenizer_vocab(tokenizer), 1001);
    assert_int_equal(tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS), 1000);
    assert_non_null(strstr(tri_tokenizer_describe(tokenizer, text, sizeof text),
                           ", 380 tokens (ids up to 1000), "));
    assert_null(tri_tokenizer_token(tokenizer, 0, &num));
    assert_null(tri_tokenizer_spelling(tokenizer, 320, &num));
    int32_t all[] = {70, 0, 320, 71, 999}, bare[] = {70, 71}, beyond = 1001;
    tri_bytes with = decode_with(tokenizer, &(tri_ids){.id = all, .num = 5}, 0);
    tri_bytes without = decode_with(tokenizer, &(tri_ids){.id = bare, .num = 2}, 0);
    assert_int_equal(with.num, 2);
    assert_int_equal(without.num, 2);
    assert_memory_equal(with.data, without.data, 2);
    tri_bytes none = {0};
    assert_int_equal(tri_tokenizer_decode(tokenizer, &beyond, 1, 0, &none, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_tokenizer_save(tokenizer, copy, &err), TR_OK);
    tri_tokenizer *again = open_tokenizer(copy);
    assert_int_equal(tri_tokenizer_vocab(again), 1001);
    assert_true(fingerprint_of(again) == fingerprint_of(tokenizer));
    tri_bytes_fini(&with);
    tri_bytes_fini(&without);
    tri_tokenizer_close(again);
    tri_tokenizer_close(tokenizer);
}

static void gpt2_is_exact(void **state)
{
    (void)state;
    if (!tri_path_exists(SHARED "gpt2/encoder.json")) {
        print_message("skipped: " SHARED "gpt2 is not there\n");
        skip();
    }
    tri_tokenizer *tokenizer = open_tokenizer(SHARED "gpt2");
    char text[160];
    assert_string_equal(tri_tokenizer_describe(tokenizer, text, sizeof text),
                        "byte-level BPE, 50,257 tokens, 50,000 merges, gpt2 pattern");
    assert_int_equal(tri_tokenizer_vocab(tokenizer), 50257);
    assert_int_equal(tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS), 50256);
    assert_int_equal(tri_tokenizer_id(tokenizer, "\xC4\xA0the", 5), 262);
    size_t num;
    assert_memory_equal(tri_tokenizer_token(tokenizer, 262, &num), " the", 4);
    assert_true(check_tokenizer(tokenizer, "gpt2") > 40);
    tri_tokenizer_close(tokenizer);
}

/* ---- words ---- */

/* Random text from characters that the patterns treat in different ways. */
static size_t random_text(uint64_t seed, char *out, size_t num_chars)
{
    static const char *const piece[] = {"a",
                                        "B",
                                        "s",
                                        "t",
                                        "re",
                                        "VE",
                                        "ll",
                                        "'",
                                        "'s",
                                        "'S",
                                        "\xC5\xBF",
                                        " ",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\t",
                                        "\xC2\xA0",
                                        "\xE2\x80\xA8",
                                        "\xE1\xA0\x8E",
                                        "\xE3\x80\x80",
                                        "1",
                                        "23",
                                        "\xD9\xA3",
                                        "\xC2\xBD",
                                        "\xE2\x82\x82",
                                        ".",
                                        "!!",
                                        "_",
                                        "-",
                                        "\xE8\xAA\x9E",
                                        "\xCC\x81",
                                        "\xF0\x9F\x98\x80",
                                        "\xE2\x80\x8D",
                                        "\xF0\xA0\x80\x80",
                                        "\xCE\xA3",
                                        "\xE0\xA4\xBF",
                                        "x",
                                        "\xE2\x96\x81",
                                        "\xE2\x84\xAA",
                                        "\x01",
                                        "\xC2\x85"};
    enum { NUM = sizeof piece / sizeof *piece };
    size_t num = 0;
    for (size_t i = 0; i < num_chars; i++) {
        const char *one = piece[tri_random_word(seed, i, 0, 1) % NUM];
        memcpy(out + num, one, strlen(one));
        num += strlen(one);
    }
    return num;
}

#define HOPELESS                                                                                   \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|aa)+$\"},"               \
    "\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2},"  \
    "\"merges\":[]}}"

#define HOPELESS_DECODER                                                                           \
    "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\"," \
    "\"pattern\":{\"Regex\":\"(?:a|aa)+$\"},\"content\":\"b\"}]},\"model\":{\"type\":\"BPE\","     \
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]}}"

static void scanners_equal_their_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        tri_scan_fn scan;
    } known[] = {{tri_pattern_gpt2, tri_scan_gpt2},
                 {tri_pattern_llama3, tri_scan_llama3},
                 {tri_pattern_qwen, tri_scan_qwen}};
    tri_unicode *unicode = malloc(sizeof *unicode);
    tri_matcher matcher = {0};
    tr_error err;
    tri_unicode_init(unicode);
    for (int k = 0; k < 3; k++) {
        tri_pattern *pattern;
        assert_int_equal(
            tri_pattern_create(known[k].pattern, strlen(known[k].pattern), true, &pattern, &err),
            TR_OK);
        for (uint64_t seed = 0; seed < 4000; seed++) {
            char text[256];
            size_t num = random_text(seed, text, 1 + seed % 40), at = 0, begin, end;
            tri_matches matches;
            tri_matcher_begin(&matcher, num);
            tri_matches_begin(&matches, pattern, &matcher, text, num);
            while (at < num) {
                size_t stop = (size_t)(known[k].scan(unicode, text + at, text + num) - text);
                assert_true(tri_matches_next(&matches, &begin, &end));
                if (begin != at || end != stop)
                    fail_msg("pattern %d, seed %d: word at %zu ends at %zu, not %zu", k, (int)seed,
                             at, stop, end);
                at = stop;
            }
        }
        tri_pattern_destroy(pattern);
    }
    tri_matcher_fini(&matcher);
    free(unicode);
}

static void a_hopeless_pattern_is_given_up(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "hopeless.json");
    assert_int_equal(put_file(path, HOPELESS, strlen(HOPELESS)), 0);
    tri_tokenizer *tokenizer = open_tokenizer(path);
    tri_ids ids = {0};
    tr_error err;
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac";
    assert_int_equal(tri_tokenizer_encode(tokenizer, NULL, text, strlen(text), 0, &ids, &err),
                     TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "\"(?:a|aa)+$\" takes too long"));
    assert_int_equal(ids.num, 0);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
    assert_int_equal(put_file(path, HOPELESS_DECODER, strlen(HOPELESS_DECODER)), 0);
    tokenizer = open_tokenizer(path);
    ids = encode_with(tokenizer, NULL, text, strlen(text), 0);
    tri_bytes bytes = {0};
    assert_int_equal(tri_tokenizer_decode(tokenizer, ids.id, ids.num, 0, &bytes, &err),
                     TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "\"(?:a|aa)+$\" of its decoder takes too long"));
    tri_bytes_fini(&bytes);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
}

/* ---- there and back ---- */

static size_t random_bytes(uint64_t seed, char *out, size_t most)
{
    size_t num = tri_random_word(seed, 0, 0, 2) % most;
    if (seed % 3 == 0) { /* text with broken places */
        num = random_text(seed, out, num / 8);
        for (size_t i = 0; num > 0 && i < 1 + num / 16; i++)
            out[tri_random_word(seed, i, 1, 2) % num] = (char)tri_random_word(seed, i, 2, 2);
    } else {
        unsigned spread = seed % 3 == 1 ? 256 : 4;
        for (size_t i = 0; i < num; i++)
            out[i] = (char)(tri_random_word(seed, i, 3, 2) % spread + (spread == 4 ? 'a' : 0));
    }
    return num;
}

static void assert_round_trip(const tri_tokenizer *tokenizer, const char *text, size_t num,
                              const char *name, uint64_t seed)
{
    tri_ids ids = encode_with(tokenizer, NULL, text, num, 0);
    tri_bytes bytes = decode_with(tokenizer, &ids, 0);
    if (bytes.num != num || (num > 0 && memcmp(bytes.data, text, num) != 0))
        fail_msg("%s: seed %d does not come back", name, (int)seed);
    tri_bytes_fini(&bytes);
    tri_ids_fini(&ids);
}

/* Arbitrary bytes come back. Those whose normalizer maps different texts to one are not here, and
 * byte fallback cannot tell U+2581 from a space. */
static void bytes_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "pattern", "llama2", "across", "bytes"};
    static char text[4096];
    for (int i = 0; i < 5; i++) {
        tri_tokenizer *tokenizer =
            open_tokenizer(strcmp(names[i], "bytes") == 0 ? names[i] : family_path(names[i]));
        for (uint64_t seed = 0; seed < 600; seed++) {
            size_t num = random_bytes(seed, text, sizeof text / 2);
            bool has_metaspace = memmem(text, num, "\xE2\x96\x81", 3) != NULL;
            bool fallback = strcmp(names[i], "llama2") == 0 || strcmp(names[i], "across") == 0;
            if (!fallback || !has_metaspace)
                assert_round_trip(tokenizer, text, num, names[i], seed);
        }
        tri_tokenizer_close(tokenizer);
    }
}

static void every_byte_alone_comes_back(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "qwen", "llama2"};
    for (int i = 0; i < 3; i++) {
        tri_tokenizer *tokenizer = open_tokenizer(family_path(names[i]));
        for (unsigned byte = 0; byte < 256; byte++) {
            char one = (char)byte;
            assert_round_trip(tokenizer, &one, 1, names[i], byte);
        }
        assert_round_trip(tokenizer, "", 0, names[i], 999);
        tri_tokenizer_close(tokenizer);
    }
}

static void a_long_word_takes_no_square(void **state)
{
    (void)state;
    enum { NUM = 1 << 20 };
    static const char *const names[] = {"llama3", "llama2", "across", "pattern", "wordpiece"};
    char *text = malloc(NUM);
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < 3; kind++) {
            tri_tokenizer *tokenizer = open_tokenizer(family_path(names[i]));
            for (size_t k = 0; k < NUM; k++)
                text[k] = kind == 0 ? 'a' : kind == 1 ? (char)('a' + k % 3) : ' ';
            tri_ids ids = encode_with(tokenizer, NULL, text, NUM, 0);
            tri_bytes bytes = decode_with(tokenizer, &ids, 0);
            if (strcmp(names[i], "wordpiece") != 0)
                assert_int_equal(bytes.num, NUM);
            tri_bytes_fini(&bytes);
            tri_ids_fini(&ids);
            tri_tokenizer_close(tokenizer);
        }
    free(text);
}

/* ---- in parallel and in blocks ---- */

static void threads_do_not_matter(void **state)
{
    (void)state;
    size_t num;
    char *text = long_text(&num);
    tri_pool *pool;
    tr_error err;
    assert_int_equal(tri_pool_create(3, &pool, &err), TR_OK);
    for (int i = 0; i < NUM_FAMILIES; i++) {
        tri_tokenizer *tokenizer = open_tokenizer(family_path(families[i]));
        tri_ids one = encode_with(tokenizer, NULL, text, num, TRI_ENCODE_SPECIAL);
        tri_ids many = encode_with(tokenizer, pool, text, num, TRI_ENCODE_SPECIAL);
        assert_int_equal(one.num, many.num);
        assert_memory_equal(one.id, many.id, one.num * sizeof *one.id);
        tri_ids_fini(&one);
        tri_ids_fini(&many);
        tri_tokenizer_close(tokenizer);
    }
    tri_pool_destroy(pool);
    free(text);
}

/* Cut into small blocks at the places that tri_tokenizer_cut names, the ids are those of the text
 * in one call of the library, which (being below the size of a chunk) is not cut at all. */
static void blocks_do_not_matter(void **state)
{
    (void)state;
    expectations *e = expected_open();
    const char *text = e->text[e->num_texts - 1];
    size_t num = e->text_bytes[e->num_texts - 1];
    int num_cuttable = 0;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        tri_tokenizer *tokenizer = open_tokenizer(family_path(families[i]));
        tri_ids whole = encode_with(tokenizer, NULL, text, num, TRI_ENCODE_PLAIN), parts = {0};
        size_t at = 0;
        while (at < num) {
            size_t block = num - at < 200 ? num - at : 200, cut;
            while ((cut = tri_tokenizer_cut(tokenizer, text + at, block)) == 0 && at + block < num)
                block = num - at < 2 * block ? num - at : 2 * block;
            if (at + block == num)
                cut = num - at;
            tr_error err;
            unsigned flags = TRI_ENCODE_PLAIN | (at > 0 ? TRI_ENCODE_CONTINUE : 0);
            assert_int_equal(
                tri_tokenizer_encode(tokenizer, NULL, text + at, cut, flags, &parts, &err), TR_OK);
            at += cut;
            num_cuttable += at < num;
        }
        if (whole.num != parts.num || memcmp(whole.id, parts.id, whole.num * sizeof *whole.id) != 0)
            fail_msg("%s: blocks give other ids", families[i]);
        tri_ids_fini(&whole);
        tri_ids_fini(&parts);
        tri_tokenizer_close(tokenizer);
    }
    assert_true(num_cuttable > 40);
    expected_close(e);
}

/* A text without a blank between letters, made of what ends words and what does not. */
static size_t dense_text(uint64_t *seed, char *out, size_t room)
{
    static const char *const parts[] = {
        "\xe4\xb8\xad",
        "\xe6\x96\x87",
        "\xef\xbc\x8c",
        "\xe3\x80\x82", /* letters, comma, stop */
        "\xe3\x81\x8c",
        "\xea\xb0\x80",
        "\xe0\xa5\x98",
        "\xe0\xa4\xbf",
        "\xcc\x81",
        "\xc3\xa9",
        "a",
        "Zq",
        "b",
        "7",
        "123",
        "4567",
        "+",
        "/",
        "=",
        "'s",
        "'re",
        "'LL",
        "_",
        ",",
        "<",
        "|>",
        "\n",
        "\r\n",
        "\n\n",
        " \n",
        "  ",
        "\t",
        "\xe4\xb8",
        "\xff",
        "\xef\xbc\x91",
        "\xf0\x9f\x98\x80",
        "<|endoftext|>",
        "<|im_start|>",
        "<|begin_of_text|>",
        "</s>",
        "[MASK]",
        "<s>",
    };
    size_t num = 0;
    while (num + 32 < room) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const char *part = parts[(*seed >> 33) % (sizeof parts / sizeof *parts)];
        memcpy(out + num, part, strlen(part));
        num += strlen(part);
    }
    return num;
}

/* How many cuts there were; the ids must be the same without them. */
static int cut_dense(const tri_tokenizer *tokenizer, const char *name)
{
    enum { ROUNDS = 30, ROOM = 1200 };
    char text[ROOM];
    uint64_t seed = 5;
    int num_cuts = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t num = dense_text(&seed, text, ROOM), at = 0;
        tri_ids whole = {0}, parts = {0};
        tr_error err;
        bool known = tri_tokenizer_encode(tokenizer, NULL, text, num, 0, &whole, &err) == TR_OK;
        while (at < num && known) {
            size_t cut = tri_tokenizer_cut(tokenizer, text + at, num - at < 100 ? num - at : 100);
            cut = cut == 0 || num - at <= 100 ? num - at : cut;
            unsigned flags = at > 0 ? TRI_ENCODE_CONTINUE : 0;
            assert_int_equal(
                tri_tokenizer_encode(tokenizer, NULL, text + at, cut, flags, &parts, &err), TR_OK);
            at += cut;
            num_cuts += at < num;
        }
        if (whole.num != parts.num ||
            (whole.num && memcmp(whole.id, parts.id, whole.num * sizeof *whole.id) != 0))
            fail_msg("%s, round %d: blocks give other ids", name, round);
        tri_ids_fini(&whole);
        tri_ids_fini(&parts);
    }
    return num_cuts;
}

static tri_tokenizer *trained(const char *style)
{
    tri_mapping file;
    tri_tokenizer *tokenizer;
    tr_error err;
    tri_train_config config = {.style = style, .vocab = 400};
    assert_int_equal(tri_mapping_open(&file, FIXTURES "tokenizer_train.txt", &err), TR_OK);
    if (tri_tokenizer_train(&config, NULL, (const char *)file.data, file.num_bytes, &tokenizer,
                            &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_mapping_close(&file);
    return tokenizer;
}

/* The same in texts without blanks, where words end at other places. */
static void dense_blocks_do_not_matter(void **state)
{
    (void)state;
    static const char *const styles[] = {"gpt2", "llama3", "qwen", "bytes"};
    for (int i = 0; i < NUM_FAMILIES; i++) {
        tri_tokenizer *tokenizer = open_tokenizer(family_path(families[i]));
        cut_dense(tokenizer, families[i]);
        tri_tokenizer_close(tokenizer);
    }
    for (int i = 0; i < 4; i++) {
        tri_tokenizer *tokenizer = trained(styles[i]);
        assert_true(cut_dense(tokenizer, styles[i]) > 150);
        tri_tokenizer_close(tokenizer);
    }
}

/* Read in units of bounded size, whether there are blanks in it or not. */
static void texts_without_blanks_are_not_held(void **state)
{
    static const char *const texts[] = {"\xe4\xb8\xad\xe6\x96\x87\xef\xbc\x8c", "QUJD0abc+9/"};
    static const char *const styles[] = {"gpt2", "bytes"};
    enum { COPIES = 60000, MOST = 256 * 1024 };
    const char *path = temp_file(*state, "dense.txt");
    for (int k = 0; k < 2; k++) {
        size_t length = strlen(texts[k]);
        char *text = malloc(COPIES * length);
        assert_non_null(text);
        for (size_t i = 0; i < COPIES; i++)
            memcpy(text + i * length, texts[k], length);
        assert_int_equal(put_file(path, text, COPIES * length), 0);
        free(text);
        for (int i = 0; i < 2; i++) {
            tri_tokenizer *tokenizer = trained(styles[i]);
            tri_texts *reader;
            tri_unit unit = {0};
            size_t total = 0;
            assert_int_equal(tri_texts_open(&path, 1, tokenizer, &reader, NULL), TR_OK);
            do {
                assert_int_equal(tri_texts_next(reader, &unit, NULL), TR_OK);
                assert_true(unit.text.num <= MOST);
                total += unit.text.num;
            } while (unit.num > 0);
            assert_int_equal(total, COPIES * length);
            tri_unit_fini(&unit);
            tri_texts_close(reader);
            tri_tokenizer_close(tokenizer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_hugging_face),
        cmocka_unit_test(saved_tokenizers_are_the_same),
        cmocka_unit_test(holes_are_no_tokens),
        cmocka_unit_test(gpt2_is_exact),
        cmocka_unit_test(scanners_equal_their_patterns),
        cmocka_unit_test(a_hopeless_pattern_is_given_up),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(every_byte_alone_comes_back),
        cmocka_unit_test(a_long_word_takes_no_square),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(blocks_do_not_matter),
        cmocka_unit_test(dense_blocks_do_not_matter),
        cmocka_unit_test(texts_without_blanks_are_not_held),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
