/* Tokenizers of every kind of file, training, errors that name what is wrong, and files that are
 * broken at random. */
#include "tokenizer_support.h"

/* ---- other kinds ---- */

static void put_text(const char *path, const char *text)
{
    assert_int_equal(put_file(path, text, strlen(text)), 0);
}

static void plain_bytes(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *saved = temp_file(dir, "bytes.json");
    tri_tokenizer *tokenizer = open_tokenizer("bytes");
    assert_int_equal(tri_tokenizer_save(tokenizer, saved, &err), TR_OK);
    for (int again = 0; again < 2; again++) {
        tri_ids ids = encode_with(tokenizer, NULL, "\0a\xFF \n", 5, 0);
        static const int32_t expected[] = {0, 'a', 255, ' ', '\n'};
        assert_int_equal(ids.num, 5);
        assert_memory_equal(ids.id, expected, sizeof expected);
        assert_int_equal(tri_tokenizer_vocab(tokenizer), 256);
        tri_ids_fini(&ids);
        tri_tokenizer_close(tokenizer);
        tokenizer = open_tokenizer(saved);
    }
    tri_tokenizer_close(tokenizer);
}

static void characters(void **state)
{
    temp_dir *dir = *state;
    char kind[300];
    tr_error err;
    snprintf(kind, sizeof kind, "chars:%s", temp_file(dir, "chars.txt"));
    put_text(kind + 6, "caf\xC3\xA9 \xE8\xAA\x9E\nfac");
    tri_tokenizer *tokenizer = open_tokenizer(kind);
    static const int32_t expected[] = {2, 3, 4, 5, 1, 6, 0}; /* \n space a c f e-acute go */
    tri_ids ids = encode_with(tokenizer, NULL, "acf\xC3\xA9 \xE8\xAA\x9E\n", 10, 0), more = {0};
    assert_int_equal(tri_tokenizer_vocab(tokenizer), 7);
    assert_int_equal(ids.num, 7);
    assert_memory_equal(ids.id, expected, sizeof expected);
    tri_bytes bytes = decode_with(tokenizer, &ids, 0);
    assert_memory_equal(bytes.data, "acf\xC3\xA9 \xE8\xAA\x9E\n", 10);
    assert_int_equal(tri_tokenizer_encode(tokenizer, NULL, "fax", 3, 0, &more, &err),
                     TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "U+0078"));
    assert_int_equal(tri_tokenizer_encode(tokenizer, NULL, "fax", 3, 0, &more, &err),
                     TR_ERROR_INPUT);
    assert_int_equal(more.num, 0);
    tri_bytes_fini(&bytes);
    tri_ids_fini(&ids);
    tri_ids_fini(&more);
    tri_tokenizer_close(tokenizer);
}

/* The vocabulary of a fixture as BERT's vocab.txt gives the same ids. */
static void bert_files(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_bytes lines = {0};
    tri_tokenizer *tokenizer = open_tokenizer(family_path("wordpiece"));
    for (int32_t id = 0; id < tri_tokenizer_vocab(tokenizer); id++) {
        size_t num;
        const char *text = tri_tokenizer_spelling(tokenizer, id, &num);
        tri_bytes_add(&lines, text, num);
        tri_bytes_add(&lines, "\n", 1);
    }
    tri_tokenizer_close(tokenizer);
    const char *bert = temp_file(dir, "bert");
    assert_int_equal(tri_make_dirs(bert, &err), TR_OK);
    put_file(temp_file(dir, "bert/vocab.txt"), lines.data, lines.num);
    tri_bytes_fini(&lines);
    put_text(temp_file(dir, "bert/tokenizer_config.json"), "{\"do_lower_case\": true}");
    tokenizer = open_tokenizer(bert);
    assert_true(check_tokenizer(tokenizer, "wordpiece") > 40);
    assert_int_equal(tri_tokenizer_special(tokenizer, TRI_SPECIAL_MASK), 4);
    tri_tokenizer_close(tokenizer);
    put_text(temp_file(dir, "bert/tokenizer_config.json"), "{\"do_lower_case\": false}");
    bert = temp_file(dir, "bert");
    tokenizer = open_tokenizer(bert);
    tri_ids ids = encode_with(tokenizer, NULL, "THE", 3, 0);
    int32_t the = tri_tokenizer_id(tokenizer, "the", 3);
    assert_true(the >= 0 && (ids.num != 1 || ids.id[0] != the));
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
    put_text(temp_file(dir, "bert/vocab.txt"), "[PAD]\n[CLS]\n[SEP]\nthe\n");
    assert_open_fails(bert, "bert/vocab.txt", "[UNK]");
    put_text(temp_file(dir, "bert/vocab.txt"), "[UNK]\nthe\na\nthe\n");
    assert_open_fails(bert, "line 4", "the");
}

/* What Python's json writes and JSON does not have: save_pretrained does so by default. */
static void files_of_save_pretrained_open(void **state)
{
    temp_dir *dir = *state;
    static const char *const configs[] = {
        "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"the\"}",
        "{\"model_max_length\": Infinity, \"x\": [NaN, -Infinity], \"eos_token\": \"the\"}",
        "{\"text\": \"NaN \\\\\", \"n\": -99999999999999999999, \"eos_token\": \"the\"}",
    };
    tr_error err;
    tri_mapping file;
    assert_int_equal(tri_mapping_open(&file, family_path("wordpiece"), &err), TR_OK);
    assert_int_equal(tri_make_dirs(temp_file(dir, "saved"), &err), TR_OK);
    put_file(temp_file(dir, "saved/tokenizer.json"), file.data, file.num_bytes);
    tri_mapping_close(&file);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        put_text(temp_file(dir, "saved/tokenizer_config.json"), configs[i]);
        tri_tokenizer *tokenizer = open_tokenizer(temp_file(dir, "saved"));
        assert_int_equal(tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS),
                         tri_tokenizer_id(tokenizer, "the", 3));
        tri_tokenizer_close(tokenizer);
    }
    put_text(temp_file(dir, "saved/tokenizer_config.json"), "{\"model_max_length\": infinity}");
    assert_open_fails(temp_file(dir, "saved"), "tokenizer_config.json", "not JSON");
}

static void a_token_may_be_u0000(void **state)
{
    temp_dir *dir = *state;
    put_text(temp_file(dir, "nul.json"),
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0000\":1,\"a\\u0000\":2},"
             "\"merges\":[\"a \\u0000\"]}}");
    tri_tokenizer *tokenizer = open_tokenizer(temp_file(dir, "nul.json"));
    tr_error err;
    for (int again = 0; again < 2; again++) {
        tri_ids ids = encode_with(tokenizer, NULL, "\0a\0a", 4, 0);
        const int32_t expected[] = {1, 2, 0};
        assert_int_equal(ids.num, 3);
        assert_memory_equal(ids.id, expected, sizeof expected);
        tri_ids_fini(&ids);
        assert_int_equal(tri_tokenizer_save(tokenizer, temp_file(dir, "nul2.json"), &err), TR_OK);
        tri_tokenizer_close(tokenizer);
        tokenizer = open_tokenizer(temp_file(dir, "nul2.json"));
    }
    tri_tokenizer_close(tokenizer);
    put_text(temp_file(dir, "nul.json"),
             "{\"model\":{\"vocab\":{\"\\u0000\":0,\"\\uFDDE\":1},\"merges\":[]}}");
    assert_open_fails(temp_file(dir, "nul.json"), "U+0000", "U+FDDE");
    put_text(temp_file(dir, "nul.json"), /* alone it is itself */
             "{\"model\":{\"vocab\":{\"a\":0,\"\\uFDDE\":1},\"merges\":[]}}");
    tokenizer = open_tokenizer(temp_file(dir, "nul.json"));
    tri_ids ids = encode_with(tokenizer, NULL, "\xEF\xB7\x9E", 3, 0);
    assert_true(ids.num == 1 && ids.id[0] == 1);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
}

/* bert-base-uncased's own file. */
static void wordpiece_need_not_say_its_type(void **state)
{
    temp_dir *dir = *state;
    json_t *root = json_load_file(family_path("wordpiece"), 0, NULL);
    assert_int_equal(json_object_del(json_object_get(root, "model"), "type"), 0);
    assert_int_equal(json_dump_file(root, temp_file(dir, "untyped.json"), 0), 0);
    json_decref(root);
    tri_tokenizer *tokenizer = open_tokenizer(temp_file(dir, "untyped.json"));
    assert_true(check_tokenizer(tokenizer, "wordpiece") > 40);
    tr_error err;
    assert_int_equal(tri_tokenizer_save(tokenizer, temp_file(dir, "typed.json"), &err), TR_OK);
    tri_tokenizer_close(tokenizer);
    tokenizer = open_tokenizer(temp_file(dir, "typed.json"));
    assert_true(check_tokenizer(tokenizer, "wordpiece") > 40);
    tri_tokenizer_close(tokenizer);
}

static void specials_and_flags(void **state)
{
    (void)state;
    static const char text[] = "a<|endoftext|>b";
    tri_tokenizer *tokenizer = open_tokenizer(family_path("llama3"));
    int32_t end = tri_tokenizer_id(tokenizer, "<|endoftext|>", 13);
    tri_ids found = encode_with(tokenizer, NULL, text, strlen(text), 0);
    tri_ids plain = encode_with(tokenizer, NULL, text, strlen(text), TRI_ENCODE_PLAIN);
    assert_int_equal(found.num, 3);
    assert_int_equal(found.id[1], end);
    assert_true(plain.num > 3);
    for (size_t i = 0; i < plain.num; i++)
        assert_int_not_equal(plain.id[i], end);
    tri_bytes bytes = decode_with(tokenizer, &found, TRI_DECODE_SKIP_SPECIAL);
    assert_int_equal(bytes.num, 2);
    assert_memory_equal(bytes.data, "ab", 2);
    tr_error err;
    int32_t wrong = tri_tokenizer_vocab(tokenizer);
    assert_int_equal(tri_tokenizer_decode(tokenizer, &wrong, 1, 0, &bytes, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_tokenizer_special(tokenizer, TRI_SPECIAL_BOS),
                     tri_tokenizer_id(tokenizer, "<|begin_of_text|>", 17));
    tri_bytes_fini(&bytes);
    tri_ids_fini(&found);
    tri_ids_fini(&plain);
    tri_tokenizer_close(tokenizer);
}

/* ---- training ---- */

static tri_tokenizer *train_on(const char *text, size_t num, const char *style, int32_t vocab,
                               tri_pool *pool)
{
    tri_train_config config = {.style = style, .vocab = vocab};
    tri_tokenizer *tokenizer;
    tr_error err;
    if (tri_tokenizer_train(&config, pool, text, num, &tokenizer, &err) != TR_OK)
        fail_msg("%s", err.message);
    return tokenizer;
}

/* Pairs by count, then by ids: worked out by hand. */
static void training_order(void **state)
{
    (void)state;
    /* aa: 2 per "aaa" counts twice in overlap; ab 3 times; of equals the smaller ids first. */
    static const char text[] = "abc abc abd xyz xyz";
    tri_tokenizer *t = train_on(text, strlen(text), "gpt2", 1000, NULL);
    static const char *const expected[] = {"ab", "yz", "xyz", " abc", " ab", " xyz"};
    size_t num;
    const char *first = tri_tokenizer_token(t, 257, &num);
    assert_true(num == 2 && memcmp(first, expected[0], 2) == 0);
    assert_true(tri_tokenizer_vocab(t) > 259 && tri_tokenizer_vocab(t) < 266);
    tri_tokenizer_close(t);
}

static void training_does_not_depend_on_threads(void **state)
{
    temp_dir *dir = *state;
    size_t num;
    char *text = long_text(&num);
    tr_error err;
    tri_pool *pool;
    assert_int_equal(tri_pool_create(3, &pool, &err), TR_OK);
    static const char *const styles[] = {"gpt2", "llama3", "qwen", "bytes"};
    for (int i = 0; i < 4; i++) {
        tri_tokenizer *one = train_on(text, num, styles[i], 700, NULL);
        tri_tokenizer *many = train_on(text, num, styles[i], 700, pool);
        const char *a = temp_file(dir, "one.json"), *b = temp_file(dir, "many.json");
        assert_int_equal(tri_tokenizer_save(one, a, &err), TR_OK);
        assert_int_equal(tri_tokenizer_save(many, b, &err), TR_OK);
        tri_mapping file[2];
        assert_int_equal(tri_mapping_open(&file[0], a, &err), TR_OK);
        assert_int_equal(tri_mapping_open(&file[1], b, &err), TR_OK);
        assert_int_equal(file[0].num_bytes, file[1].num_bytes);
        assert_memory_equal(file[0].data, file[1].data, file[0].num_bytes);
        tri_mapping_close(&file[0]);
        tri_mapping_close(&file[1]);
        tri_tokenizer_close(one);
        tri_tokenizer_close(many);
    }
    tri_pool_destroy(pool);
    free(text);
}

/* The tokens of Hugging Face's trainer on the same text, in the same order. */
static void training_equals_hugging_face(void **state)
{
    (void)state;
    tri_mapping file;
    tr_error err;
    if (tri_mapping_open(&file, FIXTURES "tokenizer_train.txt", &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_tokenizer *want = open_tokenizer(FIXTURES "tokenizer_trained.json");
    tri_tokenizer *have = train_on((const char *)file.data, file.num_bytes, "gpt2", 1000, NULL);
    assert_int_equal(tri_tokenizer_vocab(have), tri_tokenizer_vocab(want));
    for (int32_t id = 0; id < tri_tokenizer_vocab(want); id++) {
        size_t a, b;
        const char *x = tri_tokenizer_spelling(want, id, &a);
        const char *y = tri_tokenizer_spelling(have, id, &b);
        if (a != b || memcmp(x, y, a) != 0)
            fail_msg("token %d is \"%.*s\", not \"%.*s\"", (int)id, (int)b, y, (int)a, x);
    }
    tri_tokenizer_close(want);
    tri_tokenizer_close(have);
    tri_mapping_close(&file);
}

static void training_refuses(void **state)
{
    (void)state;
    tri_tokenizer *tokenizer;
    tr_error err;
    tri_train_config config = {.style = "gpt3", .vocab = 1000};
    assert_int_equal(tri_tokenizer_train(&config, NULL, "a", 1, &tokenizer, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "gpt3"));
    config = (tri_train_config){.style = "gpt2", .vocab = 256};
    assert_int_equal(tri_tokenizer_train(&config, NULL, "a", 1, &tokenizer, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "257"));
}

/* ---- wrong files ---- */

#define BPE_FILE(parts, vocab, merges)                                                             \
    "{\"version\":\"1.0\"," parts "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab merges "}}"

static const struct {
    const char *text, *because, *also;
} wrong_files[] = {
    {"", "wrong.json: line 1", "not JSON"},
    {"{\"model\":{\n\"type\":\"BPE\",", "wrong.json: line 2", "not JSON"},
    {"[1]", "wrong.json", "object"},
    {"{}", "wrong.json", "no \"model\""},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram", "not supported"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "WordLevel", "not supported"},
    {BPE_FILE("", "{\"a\":0,\"b\":1}", ""), "wrong.json", "merges"},
    {BPE_FILE("", "[]", ",\"merges\":[]"), "vocabulary", "object"},
    {BPE_FILE("", "{}", ",\"merges\":[]"), "vocabulary", "empty"},
    {BPE_FILE("", "{\"a\":0,\"b\":0}", ",\"merges\":[]"), "\"a\"", "same id 0"},
    {BPE_FILE("", "{\"a\":0,\"b\":999999}", ",\"merges\":[]"), "has the id 999999",
     "2 tokens in all"},
    {BPE_FILE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
              "{\"id\":\"x\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
              "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":"
              "\"B\",\"type_id\":0}}],\"special_tokens\":{\"x\":{\"id\":\"x\",\"ids\":[1],"
              "\"tokens\":[\"x\"]}}},",
              "{\"a\":0,\"b\":2}", ",\"merges\":[]"),
     "adds the id 1", "no token has it"},
    {BPE_FILE("", "{\"a\":0,\"b\":\"1\"}", ",\"merges\":[]"), "\"b\"", "whole number"},
    {BPE_FILE("", "{\"a\":0,\"b\":-1}", ",\"merges\":[]"), "\"b\"", "whole number"},
    {BPE_FILE("", "{\"a\":0,\"b\":99999999999}", ",\"merges\":[]"), "\"b\"", "whole number"},
    {BPE_FILE("", "{\"a\":0,\"a\":1}", ",\"merges\":[]"), "not JSON", "a"},
    {BPE_FILE("", "{\"a\":0,\"b\":1}", ",\"merges\":[\"a c\"]"), "merge 0", "\"c\""},
    {BPE_FILE("", "{\"a\":0,\"b\":1}", ",\"merges\":[\"a b\"]"), "merge 0", "\"ab\""},
    {BPE_FILE("", "{\"a\":0,\"b\":1}", ",\"merges\":[\"ab\"]"), "merge 0", "two tokens"},
    {BPE_FILE("", "{\"a\":0,\"b\":1}", ",\"merges\":[3]"), "merge 0", "two tokens"},
    {BPE_FILE("\"normalizer\":{\"type\":\"Precompiled\"},", "{\"a\":0}", ",\"merges\":[]"),
     "Precompiled", "wrong.json"},
    {BPE_FILE("\"pre_tokenizer\":{\"type\":\"Odd\"},", "{\"a\":0}", ",\"merges\":[]"), "Odd",
     "wrong.json"},
    {BPE_FILE("\"decoder\":{\"type\":\"CTC\"},", "{\"a\":0}", ",\"merges\":[]"), "CTC",
     "wrong.json"},
    {BPE_FILE("\"post_processor\":{\"type\":\"Odd\"},", "{\"a\":0}", ",\"merges\":[]"), "Odd",
     "wrong.json"},
    {BPE_FILE("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},"
              "\"behavior\":\"Isolated\"},",
              "{\"a\":0}", ",\"merges\":[]"),
     "(a", "wrong.json"},
    {BPE_FILE("\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],", "{\"a\":0}", ",\"merges\":[]"),
     "\"x\"", "same id 0"},
    {BPE_FILE("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"x\",7],"
              "\"cls\":[\"y\",8]},",
              "{\"a\":0}", ",\"merges\":[]"),
     "adds the id", "wrong.json"},
    {BPE_FILE("", "{\"a\":0}", ",\"merges\":[],\"dropout\":0.1"), "dropout", "wrong.json"},
    {BPE_FILE("", "{\"a\":0}", ",\"merges\":[],\"unk_token\":\"u\""), "unk_token", "\"u\""},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "unk_token", "wrong.json"},
};

static void wrong_files_are_refused(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "wrong.json");
    for (size_t i = 0; i < sizeof wrong_files / sizeof *wrong_files; i++) {
        put_text(path, wrong_files[i].text);
        assert_open_fails(path, wrong_files[i].because, wrong_files[i].also);
    }
    assert_open_fails(temp_file(dir, "absent.json"), "absent.json", "");
    assert_open_fails(dir->path, dir->path, "tokenizer.json");
}

static void wrong_gpt2_files_are_refused(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *gpt2 = temp_file(dir, "g");
    assert_int_equal(tri_make_dirs(gpt2, &err), TR_OK);
    put_text(temp_file(dir, "g/encoder.json"), "{\"a\":0,\"b\":1,\"ab\":2}");
    assert_open_fails(gpt2, "g/vocab.bpe", "opened");
    put_text(temp_file(dir, "g/vocab.bpe"), "#version: 0.2\n");
    assert_open_fails(gpt2, "g/vocab.bpe", "no merges");
    put_text(temp_file(dir, "g/vocab.bpe"), "#version: 0.2\na b\na\n");
    gpt2 = temp_file(dir, "g");
    assert_open_fails(gpt2, "line 3", "g/vocab.bpe");
    put_text(temp_file(dir, "g/vocab.bpe"), "#version: 0.2\na b\nb x\n");
    assert_open_fails(gpt2, "line 3", "\"x\"");
    put_text(temp_file(dir, "g/vocab.bpe"), "#version: 0.2\na b\n");
    tri_tokenizer *tokenizer = open_tokenizer(gpt2);
    tri_ids ids = encode_with(tokenizer, NULL, "aab", 3, 0);
    assert_int_equal(ids.num, 2);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
}

/* Most merges cut away: the file is whole as JSON, but not as a tokenizer. */
static void cut_merges_are_noticed(void **state)
{
    temp_dir *dir = *state;
    json_t *root = json_load_file(family_path("qwen"), 0, NULL);
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    while (json_array_size(merges) > 100)
        json_array_remove(merges, json_array_size(merges) - 1);
    const char *path = temp_file(dir, "cut.json");
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    assert_open_fails(path, "cut.json", "merges are missing");
}

/* ---- fuzzing ---- */

/* Bytes changed, removed and doubled at random: opening must either fail with a message or give a
 * tokenizer that works. */
static void damage(uint64_t seed, tri_bytes *text)
{
    for (uint64_t i = 0; i < 1 + seed % 4 && text->num > 8; i++) {
        size_t at = tri_random_word(seed, i, 0, 3) % text->num;
        uint32_t random = tri_random_word(seed, i, 1, 3);
        static const char odd[] = "{}[]\",:0-9ae\\ ";
        if (random % 4 == 0) {
            text->data[at] = odd[random / 4 % (sizeof odd - 1)];
        } else if (random % 4 == 1) {
            text->data[at] = (char)(random >> 8);
        } else if (random % 4 == 2) {
            size_t num = 1 + random / 4 % 200;
            num = num > text->num - at ? text->num - at : num;
            memmove(text->data + at, text->data + at + num, text->num - at - num);
            text->num -= num;
        } else {
            text->num = at;
        }
    }
}

static void try_file(const char *path)
{
    tri_tokenizer *tokenizer;
    tr_error err = {0};
    if (tri_tokenizer_open(path, &tokenizer, &err) != TR_OK) {
        assert_true(strlen(err.message) > 10);
        return;
    }
    static const char text[] = "It's  a [MASK] t\xC3\xA9st\n\xFF <mask> 123 \xE8\xAA\x9E newword";
    tri_ids ids = {0};
    tri_bytes bytes = {0};
    if (tri_tokenizer_encode(tokenizer, NULL, text, strlen(text), TRI_ENCODE_SPECIAL, &ids, &err) ==
        TR_OK)
        assert_int_equal(tri_tokenizer_decode(tokenizer, ids.id, ids.num, 0, &bytes, &err), TR_OK);
    tri_ids_fini(&ids);
    tri_bytes_fini(&bytes);
    tri_tokenizer_close(tokenizer);
}

static void fuzz_json(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "fuzz.json");
    for (int i = 0; i < NUM_FAMILIES; i++) {
        tri_mapping file;
        tr_error err;
        assert_int_equal(tri_mapping_open(&file, family_path(families[i]), &err), TR_OK);
        for (uint64_t seed = 0; seed < 120; seed++) {
            tri_bytes text = {0};
            tri_bytes_add(&text, file.data, file.num_bytes);
            damage(seed * 31 + (uint64_t)i, &text);
            put_file(path, text.data, text.num);
            try_file(path);
            tri_bytes_fini(&text);
        }
        tri_mapping_close(&file);
    }
}

static void fuzz_lines(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"abc\":4,\"\xC4\xA0\":5}";
    static const char merges[] = "#version: 0.2\na b\nab c\n";
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nit\n##s\na\nt\n##est\n1\n##2\n";
    assert_int_equal(tri_make_dirs(temp_file(dir, "f1"), &err), TR_OK);
    assert_int_equal(tri_make_dirs(temp_file(dir, "f2"), &err), TR_OK);
    for (uint64_t seed = 0; seed < 1500; seed++) {
        tri_bytes text[3] = {{0}};
        tri_bytes_add(&text[0], vocab, strlen(vocab));
        tri_bytes_add(&text[1], merges, strlen(merges));
        tri_bytes_add(&text[2], words, strlen(words));
        damage(seed, &text[seed % 3]);
        put_file(temp_file(dir, "f1/vocab.json"), text[0].data, text[0].num);
        put_file(temp_file(dir, "f1/merges.txt"), text[1].data, text[1].num);
        try_file(temp_file(dir, "f1"));
        put_file(temp_file(dir, "f2/vocab.txt"), text[2].data, text[2].num);
        try_file(temp_file(dir, "f2"));
        for (int i = 0; i < 3; i++)
            tri_bytes_fini(&text[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_bytes),
        cmocka_unit_test(characters),
        cmocka_unit_test(bert_files),
        cmocka_unit_test(files_of_save_pretrained_open),
        cmocka_unit_test(a_token_may_be_u0000),
        cmocka_unit_test(wordpiece_need_not_say_its_type),
        cmocka_unit_test(specials_and_flags),
        cmocka_unit_test(training_order),
        cmocka_unit_test(training_does_not_depend_on_threads),
        cmocka_unit_test(training_equals_hugging_face),
        cmocka_unit_test(training_refuses),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(wrong_gpt2_files_are_refused),
        cmocka_unit_test(cut_merges_are_noticed),
        cmocka_unit_test(fuzz_json),
        cmocka_unit_test(fuzz_lines),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
