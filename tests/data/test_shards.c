/* Token shards and how they are made: the format and what is refused, fuzzed; and `prepare`, whose
 * tokens must decode to the text that went in, however it was packed, cut or divided. */
#include "tokenizer_support.h"

#include "base/checksum.h"
#include "data/prepare/prepare.h"
#include "data/prepare/prepared.h"
#include "data/prepare/texts.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

/* ---- the checksum ---- */

static void checksum_is_the_documented_one(void **state)
{
    (void)state;
    unsigned char bytes[100];
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char)i;
    /* Computed from the description by another program. */
    assert_true(tri_checksum_bytes("", 0) == 0x9ca066f1a4ab2eeau);
    assert_true(tri_checksum_bytes("trireme", 7) == 0x7ecb97a754dd4a4eu);
    assert_true(tri_checksum_bytes(bytes, 100) == 0x4b570224fc5afd66u);
    for (size_t a = 0; a <= 100; a += 3)
        for (size_t b = a; b <= 100; b += 7) {
            tri_checksum sum;
            tri_checksum_init(&sum);
            tri_checksum_add(&sum, bytes, a);
            tri_checksum_add(&sum, bytes + a, b - a);
            tri_checksum_add(&sum, bytes + b, 100 - b);
            assert_true(tri_checksum_end(&sum) == 0x4b570224fc5afd66u);
        }
}

/* ---- the format ---- */

static void write_shard(const char *path, int32_t vocab, int32_t separator, const int32_t *tokens,
                        size_t num)
{
    tri_shard_writer writer;
    tr_error err = {0};
    unlink(path);
    if (tri_shard_begin(&writer, path, vocab, separator, 77, &err) != TR_OK ||
        tri_shard_write(&writer, tokens, num / 2, &err) != TR_OK ||
        tri_shard_write(&writer, tokens + num / 2, num - num / 2, &err) != TR_OK ||
        tri_shard_end(&writer, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* Sums of messages and of weights: the same however the bytes come in, and another for every bit.
 */
static void sums_find_every_bit(void **state)
{
    (void)state;
    unsigned char bytes[203];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 >> 2);
    tri_crc whole = {0};
    tri_crc_add(&whole, bytes, sizeof bytes);
    uint64_t crc = tri_crc_end(&whole), sum = tri_sum_bytes(bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        tri_crc parts = {0};
        tri_crc_add(&parts, bytes, cut);
        tri_crc_add(&parts, bytes + cut, (sizeof bytes - cut) / 2);
        tri_crc_add(&parts, bytes + cut + (sizeof bytes - cut) / 2, (sizeof bytes - cut + 1) / 2);
        assert_true(tri_crc_end(&parts) == crc);
    }
    assert_true(tri_sum_words(0, bytes, 10) + tri_sum_words(10, bytes + 80, 15) ==
                tri_sum_words(0, bytes, 25));
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        tri_crc other = {0};
        tri_crc_add(&other, bytes, sizeof bytes);
        assert_true(tri_crc_end(&other) != crc);
        assert_true(tri_sum_bytes(bytes, sizeof bytes) != sum);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void what_is_written_is_read(void **state)
{
    enum { NUM = 300000 };
    static int32_t tokens[NUM];
    const int32_t vocab[] = {2, 300, 65536, 65537, 1 << 20};
    const char *path = temp_file(*state, "a.tok");
    for (int v = 0; v < 5; v++) {
        uint64_t separators = 0;
        for (int i = 0; i < NUM; i++) {
            tokens[i] = (int32_t)(tri_random_word(1, (uint64_t)i, 0, 0) % (uint32_t)vocab[v]);
            separators += tokens[i] == 1;
        }
        write_shard(path, vocab[v], 1, tokens, NUM);
        tri_shard shard;
        tr_error err = {0};
        if (tri_shard_open(path, &shard, &err) != TR_OK || tri_shard_verify(&shard, &err) != TR_OK)
            fail_msg("%s", err.message);
        assert_int_equal(shard.width, vocab[v] > 65536 ? 4 : 2);
        assert_int_equal(shard.num_tokens, NUM);
        assert_int_equal(shard.num_documents, separators);
        assert_int_equal(shard.vocab, vocab[v]);
        assert_int_equal(shard.separator, 1);
        assert_int_equal(shard.fingerprint, 77);
        for (int i = 0; i < NUM; i++)
            assert_int_equal(tri_shard_token(&shard, (uint64_t)i), tokens[i]);
        tri_shard_close(&shard);
    }
    assert_true(tri_shard_is_file(path));
}

static size_t read_file(const char *path, unsigned char *data, size_t room)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t num = fread(data, 1, room, stream);
    fclose(stream);
    return num;
}

static void assert_parse_fails(const void *data, size_t num_bytes, const char *because)
{
    /* A copy of exactly this size: reading past it is seen by the address sanitizer. */
    unsigned char *copy = malloc(num_bytes + (num_bytes == 0));
    assert_non_null(copy);
    memcpy(copy, data, num_bytes);
    tri_shard shard;
    tr_error err = {0};
    assert_int_equal(tri_shard_parse("some/name", copy, num_bytes, &shard, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because) || !strstr(err.message, "some/name"))
        fail_msg("expected \"%s\" and the name in: %s", because, err.message);
    free(copy);
}

static void set_word(unsigned char *data, size_t offset, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        data[offset + (size_t)i] = (unsigned char)(value >> 8 * i);
}

/* The header says something else, and its checksum is right. */
static void seal(unsigned char *data)
{
    uint64_t sum = tri_checksum_bytes(data, 88);
    set_word(data, 88, (uint32_t)sum);
    set_word(data, 92, (uint32_t)(sum >> 32));
}

static void damaged_shards_are_refused(void **state)
{
    const int32_t tokens[] = {5, 6, 1, 7, 8, 9, 1};
    const char *path = temp_file(*state, "b.tok");
    unsigned char data[200], other[200];
    write_shard(path, 10, 1, tokens, 7);
    size_t num = read_file(path, data, sizeof data);
    assert_int_equal(num, 96 + 14);
    for (size_t cut = 0; cut < num; cut++)
        assert_parse_fails(data, cut,
                           cut < 8    ? "no token shard"
                           : cut < 96 ? "within its header"
                                      : "cut short");
    assert_parse_fails(data, num + 2, "was changed");
    for (size_t i = 0; i < 96; i++) {
        memcpy(other, data, num);
        other[i] ^= 0x10;
        assert_parse_fails(other, num,
                           i < 8              ? "no token shard"
                           : i >= 8 && i < 12 ? "of version"
                                              : "checksum of the header");
    }
    static const struct {
        size_t offset;
        uint32_t value;
        const char *because;
    } lies[] = {{12, 90, "contradicts"},   {16, 3, "contradicts"},  {16, 4, "promises 7 tokens"},
                {20, 0, "contradicts"},    {24, 10, "contradicts"}, {28, 1, "contradicts"},
                {32, 8, "cut short"},      {32, 6, "was changed"},  {36, 0xffffffff, "cut short"},
                {36, 0x80000000, "cut"},   {40, 8, "documents"},    {20, 0x80000000, "contradicts"},
                {20, 70000, "contradicts"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(other, data, num);
        set_word(other, lies[i].offset, lies[i].value);
        seal(other);
        assert_parse_fails(other, num, lies[i].because);
    }
}

static void assert_verify_fails(const unsigned char *data, size_t num, const char *because)
{
    tri_shard shard;
    tr_error err = {0};
    if (tri_shard_parse("some/name", data, num, &shard, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tri_shard_verify(&shard, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because))
        fail_msg("expected \"%s\" in: %s", because, err.message);
    tri_shard_close(&shard);
}

static void damaged_tokens_are_found(void **state)
{
    const int32_t tokens[] = {5, 6, 1, 7, 8, 9, 1};
    const char *path = temp_file(*state, "c.tok");
    unsigned char data[200], other[200];
    write_shard(path, 10, 1, tokens, 7);
    size_t num = read_file(path, data, sizeof data);
    memcpy(other, data, num);
    other[96] = 4; /* was 5 */
    assert_verify_fails(other, num, "checksum of the tokens");
    other[96] = 10;
    assert_verify_fails(other, num, "token 0 is 10, but the vocabulary has 10");
    memcpy(other, data, num);
    other[40] = 1; /* documents */
    seal(other);
    assert_verify_fails(other, num, "holds 2 separators, but the header says 1");
}

static void shards_of_llmc(void **state)
{
    (void)state;
    unsigned char data[1024 + 64] = {0};
    tri_shard shard;
    tr_error err = {0};
    set_word(data, 0, 20240520);
    set_word(data, 4, 1);
    set_word(data, 8, 3);
    data[1024] = 0x50; /* 50256 */
    data[1025] = 0xc4;
    data[1026] = 7;
    assert_int_equal(tri_shard_parse("x.bin", data, 1030, &shard, &err), TR_OK);
    assert_int_equal(shard.vocab, 50257);
    assert_int_equal(tri_shard_token(&shard, 0), shard.separator);
    assert_int_equal(tri_shard_token(&shard, 1), 7);
    assert_int_equal(tri_shard_verify(&shard, &err), TR_OK);
    tri_shard_close(&shard);
    assert_parse_fails(data, 1028, "cut short");
    assert_parse_fails(data, 1031, "was changed");
    assert_parse_fails(data, 1000, "within its header");
    data[1028] = data[1029] = 0xff; /* beyond the vocabulary */
    assert_verify_fails(data, 1030, "token 2 is 65535");
    set_word(data, 4, 2);
    assert_parse_fails(data, 1030, "version 2, but only version 1");
    set_word(data, 0, 20240801);
    set_word(data, 4, 7);
    set_word(data, 1024, 128000);
    set_word(data, 1028, 128255);
    set_word(data, 1032, 0);
    assert_int_equal(tri_shard_parse("x.bin", data, 1036, &shard, &err), TR_OK);
    assert_int_equal(tri_shard_token(&shard, 1), 128255);
    assert_int_equal(tri_shard_verify(&shard, &err), TR_OK);
    tri_shard_close(&shard);
}

/* Whatever the bytes: an error with the name of the file, or tokens that can all be read. */
static void fuzzed_headers(void **state)
{
    const int32_t tokens[] = {5, 6, 1, 7, 8, 9, 1, 3, 3, 3};
    const char *path = temp_file(*state, "d.tok");
    unsigned char good[2][1100] = {0};
    size_t size[2];
    uint64_t draw = 0, opened = 0;
    write_shard(path, 10, 1, tokens, 10);
    size[0] = read_file(path, good[0], sizeof good[0]);
    set_word(good[1], 0, 20240520);
    set_word(good[1], 4, 1);
    set_word(good[1], 8, 30);
    size[1] = 1024 + 60;
    for (int round = 0; round < 200000; round++) {
        int kind = round % 4 == 3;
        size_t num = size[kind];
        uint32_t cut = tri_random_word(2, draw++, 0, 0);
        if (cut % 8 == 0)
            num = cut / 8 % (num + 1);
        unsigned char *data = malloc(num + (num == 0));
        assert_non_null(data);
        memcpy(data, good[kind], num);
        for (uint32_t k = tri_random_word(2, draw++, 0, 0) % 5; k > 0 && num > 0; k--) {
            uint32_t word = tri_random_word(2, draw++, 0, 0);
            data[word % (num < 100 || round % 2 ? num : 100)] = (unsigned char)(word >> 24);
        }
        if (round % 4 < 2 && num >= 96)
            seal(data);
        tri_shard shard;
        tr_error err = {0};
        uint64_t sum = 0;
        if (tri_shard_parse("f", data, num, &shard, &err) == TR_OK) {
            for (uint64_t i = 0; i < shard.num_tokens; i++)
                sum += tri_shard_token(&shard, i);
            (void)tri_shard_verify(&shard, &err);
            tri_shard_close(&shard);
            opened++;
        } else {
            assert_true(strncmp(err.message, "f: ", 3) == 0);
        }
        assert_true(sum < (uint64_t)1 << 40);
        free(data);
    }
    assert_true(opened > 1000 && opened < 190000); /* both ways were taken */
}

/* ---- prepare ---- */

/* All tokens of a split of a directory. */
static tri_ids tokens_of(const char *dir, tri_split split)
{
    tri_prepared p;
    tri_ids ids = {0};
    tr_error err = {0};
    if (tri_prepared_open(dir, &p, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < p.num[split]; i++) {
        assert_int_equal(tri_shard_verify(&p.shard[split][i], &err), TR_OK);
        for (uint64_t k = 0; k < p.shard[split][i].num_tokens; k++) {
            int32_t token = (int32_t)tri_shard_token(&p.shard[split][i], k);
            tri_ids_add(&ids, &token, 1);
        }
    }
    tri_prepared_close(&p);
    return ids;
}

static tri_tokenizer *small_tokenizer(void)
{
    tri_mapping text;
    tri_tokenizer *tokenizer;
    tr_error err = {0};
    tri_train_config config = {.style = "gpt2", .vocab = 600};
    if (tri_mapping_open(&text, "README.md", &err) != TR_OK ||
        tri_tokenizer_train(&config, NULL, (const char *)text.data, text.num_bytes, &tokenizer,
                            &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_mapping_close(&text);
    return tokenizer;
}

static tri_prepare_result prepare(const tri_tokenizer *tokenizer, int threads,
                                  tri_prepare_config config)
{
    tri_prepare_result result;
    tri_pool *pool = NULL;
    tr_error err = {0};
    if (threads > 1 && tri_pool_create(threads, &pool, &err) != TR_OK)
        fail_msg("%s", err.message);
    if (tri_prepare(&config, tokenizer, pool, &result, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_pool_destroy(pool);
    return result;
}

/* Text with words, accents, special tokens spelled out, and no regular lines. */
static tri_bytes made_up_text(size_t num_bytes, uint64_t seed)
{
    static const char *const word[] = {
        " the", " license", "Program ", "\n\n", " \xc3\xa9t\xc3\xa9",       " 12345", "!?",
        "ing",  "\t\"q\"",  " a b c",   "\\n",  " \xe6\x97\xa5\xe6\x9c\xac"};
    tri_bytes text = {0};
    for (uint64_t i = 0; text.num < num_bytes; i++) {
        const char *next = word[tri_random_word(seed, i, 0, 5) % 12];
        tri_bytes_add(&text, next, strlen(next));
    }
    return text;
}

static void put_packed(const char *path, const char *kind, const void *data, size_t num)
{
    if (strcmp(kind, "gz") == 0) {
        gzFile file = gzopen(path, "wb");
        assert_int_equal(gzwrite(file, data, (unsigned)num), num);
        gzclose(file);
    } else if (strcmp(kind, "zst") == 0) {
        size_t room = ZSTD_compressBound(num);
        void *out = malloc(room);
        size_t size = ZSTD_compress(out, room, data, num, 1);
        put_file(path, out, size);
        free(out);
    } else {
        put_file(path, data, num);
    }
}

static void remove_prepared(const char *dir)
{
    tri_file_list list;
    if (tri_file_list_read(&list, dir, NULL) != TR_OK)
        return;
    for (size_t i = 0; i < list.num; i++) {
        char *path = tri_path_join(dir, list.name[i]);
        unlink(path);
        free(path);
    }
    tri_file_list_free(&list);
    rmdir(dir);
}

/* One large text, read in blocks: the ids of the whole, for any packing, threads and shard size. */
static void check_blocks(void **state, tri_tokenizer *tokenizer)
{
    tri_bytes text = made_up_text(1200000, 1);
    int32_t end = tri_usual_separator(tokenizer);
    tri_ids whole = encode_with(tokenizer, NULL, text.data, text.num, 0);
    tri_ids_add(&whole, &end, end >= 0);
    static const struct {
        const char *kind;
        int threads;
        int64_t shard_tokens;
    } how[] = {{"txt", 1, 0}, {"txt", 3, 100000}, {"gz", 2, 0}, {"zst", 2, 333333}};
    for (int i = 0; i < 4; i++) {
        char in[300], out[300];
        snprintf(in, sizeof in, "%s/large.%s", ((temp_dir *)*state)->path, how[i].kind);
        snprintf(out, sizeof out, "%s/large-%d", ((temp_dir *)*state)->path, i);
        put_packed(in, how[i].kind, text.data, text.num);
        const char *input = in;
        tri_prepare_result r = prepare(tokenizer, how[i].threads,
                                       (tri_prepare_config){.inputs = &input,
                                                            .num_inputs = 1,
                                                            .out = out,
                                                            .shard_tokens = how[i].shard_tokens,
                                                            .separator = TRI_SEPARATOR_USUAL});
        assert_int_equal(r.documents[TRI_SPLIT_TRAIN], 1);
        assert_int_equal(r.text_bytes, text.num);
        if (how[i].shard_tokens)
            assert_int_equal(r.shards[0], (whole.num + (size_t)how[i].shard_tokens - 1) /
                                              (size_t)how[i].shard_tokens);
        tri_ids got = tokens_of(out, TRI_SPLIT_TRAIN);
        assert_int_equal(got.num, whole.num);
        assert_memory_equal(got.id, whole.id, whole.num * sizeof *whole.id);
        tri_ids_fini(&got);
        remove_prepared(out);
    }
    tri_ids_fini(&whole);
    tri_bytes_fini(&text);
    tri_tokenizer_close(tokenizer);
}

static void large_text_in_blocks(void **state)
{
    check_blocks(state, small_tokenizer());
    /* Those put something before a text, but not before its later blocks. */
    check_blocks(state, open_tokenizer(FIXTURES "tokenizer_llama2.json"));
    check_blocks(state, open_tokenizer(FIXTURES "tokenizer_metaspace.json"));
}

static void add_json_line(tri_bytes *out, const char *text, size_t num)
{
    json_t *object = json_pack("{s:i, s:o}", "id", 1, "body", json_stringn(text, num));
    char *line = json_dumps(object, JSON_COMPACT);
    tri_bytes_add(out, line, strlen(line));
    tri_bytes_add(out, "\n", 1);
    free(line);
    json_decref(object);
}

enum { NUM_DOCUMENTS = 3000 };

/* A JSONL of documents that each say their number. */
static void put_documents(const char *path, const char *kind)
{
    tri_bytes lines = {0};
    for (int d = 0; d < NUM_DOCUMENTS; d++) {
        char text[64];
        int num = snprintf(text, sizeof text, "document %d", d);
        if (d % 100 == 7)
            num = 0; /* an empty one is no document of tokens */
        add_json_line(&lines, text, (size_t)num);
        if (d % 50 == 0)
            tri_bytes_add(&lines, "\n", 1);
    }
    put_packed(path, kind, lines.data, lines.num);
    tri_bytes_fini(&lines);
}

/* Every document is in one split, whole, once and in order; the shares are exact. */
static void documents_are_divided(void **state)
{
    tri_tokenizer *tokenizer = small_tokenizer();
    const char *input = temp_file(*state, "docs.jsonl.zst"), *out = temp_file(*state, "docs");
    put_documents(input, "zst");
    const double split[] = {0, 0.05, 0.3};
    for (int s = 0; s < 3; s++) {
        tri_prepare_result r = prepare(tokenizer, 2,
                                       (tri_prepare_config){.inputs = &input,
                                                            .num_inputs = 1,
                                                            .out = out,
                                                            .field = "body",
                                                            .split = split[s],
                                                            .shard_tokens = 5000,
                                                            .force = true,
                                                            .separator = TRI_SEPARATOR_USUAL});
        assert_int_equal(r.documents[0] + r.documents[1], NUM_DOCUMENTS * 99 / 100);
        bool seen[NUM_DOCUMENTS] = {0};
        int held_out = 0;
        for (int part = 0; part < (split[s] > 0 ? 2 : 1); part++) {
            tri_ids ids = tokens_of(out, (tri_split)part);
            int32_t end = tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS);
            int before = -1;
            for (size_t begin = 0, i = 0; i < ids.num; i++) {
                if (ids.id[i] != end)
                    continue;
                tri_ids one = {.id = ids.id + begin, .num = i - begin};
                tri_bytes text = decode_with(tokenizer, &one, 0);
                tri_bytes_add(&text, "", 1);
                int number = -1;
                assert_int_equal(sscanf(text.data, "document %d", &number), 1);
                assert_true(number > before && number < NUM_DOCUMENTS && !seen[number]);
                assert_int_equal(tri_prepare_held_out(split[s], (uint64_t)number), part);
                seen[number] = true;
                before = number;
                held_out += part;
                tri_bytes_fini(&text);
                begin = i + 1;
            }
            assert_int_equal(ids.id[ids.num - 1], end);
            tri_ids_fini(&ids);
        }
        for (int d = 0; d < NUM_DOCUMENTS; d++)
            assert_int_equal(seen[d], d % 100 != 7);
        assert_int_equal(held_out, r.documents[TRI_SPLIT_EVAL]);
        assert_true(abs(held_out - (int)(split[s] * NUM_DOCUMENTS * 0.99)) <= 40 * (s > 0));
        int drawn = 0; /* empty ones included, the share is exact */
        for (uint64_t d = 0; d < 100000; d++)
            drawn += tri_prepare_held_out(split[s], d);
        assert_true(abs(drawn - (int)(split[s] * 100000)) <= 1);
    }
    remove_prepared(out);
    tri_tokenizer_close(tokenizer);
}

/* Several files of several kinds, in order; bytes and chars; other separators. */
static void directories_and_small_tokenizers(void **state)
{
    char dir[300], path[400];
    snprintf(dir, sizeof dir, "%s/mixed", ((temp_dir *)*state)->path);
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/a.txt", dir);
    put_packed(path, "txt", "one \xc3\xa9", 6);
    snprintf(path, sizeof path, "%s/b.jsonl.gz", dir);
    put_packed(path, "gz", "{\"text\":\"two\"}\n{\"text\":\"3\\n\"}", 29);
    snprintf(path, sizeof path, "%s/c.txt", dir);
    put_packed(path, "txt", "", 0);
    snprintf(path, sizeof path, "%s/d.zst", dir);
    put_packed(path, "zst", "four", 4);
    const char *input = dir, *out = temp_file(*state, "small");
    static const struct {
        const char *name;
        int32_t separator;
        const char *text;
    } want[] = {{"bytes", TRI_SEPARATOR_NONE, "one \xc3\xa9two3\nfour"},
                {"bytes", TRI_SEPARATOR_USUAL, "one \xc3\xa9two3\nfour"},
                {"bytes", '|', "one \xc3\xa9|two|3\n|four|"},
                {"chars", TRI_SEPARATOR_NONE, "one \xc3\xa9two3\nfour"}};
    for (int i = 0; i < 4; i++) {
        tri_tokenizer *tokenizer;
        tr_error err = {0};
        if (tri_prepare_tokenizer(want[i].name, &input, 1, NULL, NULL, &tokenizer, &err) != TR_OK)
            fail_msg("%s", err.message);
        prepare(tokenizer, 1,
                (tri_prepare_config){.inputs = &input,
                                     .num_inputs = 1,
                                     .out = out,
                                     .force = true,
                                     .separator = want[i].separator});
        tri_ids ids = tokens_of(out, TRI_SPLIT_TRAIN);
        tri_tokenizer *kept = open_tokenizer(out); /* the one that lies with the tokens */
        assert_true(fingerprint_of(kept) == fingerprint_of(tokenizer));
        tri_bytes text = decode_with(kept, &ids, 0);
        assert_int_equal(text.num, strlen(want[i].text));
        assert_memory_equal(text.data, want[i].text, text.num);
        tri_bytes_fini(&text);
        tri_ids_fini(&ids);
        tri_tokenizer_close(kept);
        tri_tokenizer_close(tokenizer);
    }
    remove_prepared(out);
}

static void assert_prepare_fails(tri_prepare_config config, const char *because)
{
    tri_tokenizer *tokenizer = open_tokenizer("bytes");
    tri_prepare_result result;
    tr_error err = {0};
    assert_int_equal(tri_prepare(&config, tokenizer, NULL, &result, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because))
        fail_msg("expected \"%s\" in: %s", because, err.message);
    tri_tokenizer_close(tokenizer);
}

static void prepare_refuses(void **state)
{
    temp_dir *dir = *state;
    char half[300], good[300], shard[300], other[300], out[300], say[400];
    snprintf(half, sizeof half, "%s/half.jsonl", dir->path);
    snprintf(good, sizeof good, "%s/good.txt", dir->path);
    snprintf(shard, sizeof shard, "%s/made.tok", dir->path);
    snprintf(other, sizeof other, "%s/other", dir->path);
    snprintf(out, sizeof out, "%s/out", dir->path);
    put_packed(half, "txt", "{\"text\":\"a\"}\n{\"text\":\"b", 22);
    put_packed(good, "txt", "good", 4);
    write_shard(shard, 10, 1, (int32_t[]){1, 2}, 2);
    int before = num_entries(dir->path);
    const char *inputs[] = {good, half}, *none = temp_file(dir, "absent");
    tri_prepare_config config = {.inputs = inputs, .num_inputs = 2, .out = out, .separator = -1};
    snprintf(say, sizeof say, "%s, line 2: not valid JSON", half);
    assert_prepare_fails(config, say);
    assert_int_equal(num_entries(dir->path), before); /* nothing was left behind */
    inputs[1] = none;
    assert_prepare_fails(config, "absent: cannot be found");
    inputs[1] = shard;
    assert_prepare_fails(config, "is a token shard already");
    config.num_inputs = 1;
    config.separator = 256;
    assert_prepare_fails(config, "the separator is 256");
    config.separator = -1;
    for (int n = 2; n < 10000 && !tri_prepare_held_out(config.split, 0); n++)
        config.split = 1.0 / n;
    assert_prepare_fails(config, "lower --split");
    config.split = 0;
    put_packed(good, "txt", "", 0);
    assert_prepare_fails(config, "holds no text");
    assert_int_equal(num_entries(dir->path), before);
    /* What exists is not overwritten, and what is not ours not even by force. */
    put_packed(good, "txt", "good", 4);
    tri_tokenizer *bytes = open_tokenizer("bytes");
    prepare(bytes, 1, config);
    assert_prepare_fails(config, "exists already; --force");
    config.force = true;
    put_packed(good, "txt", "better", 6);
    prepare(bytes, 1, config);
    tri_ids ids = tokens_of(out, TRI_SPLIT_TRAIN);
    assert_int_equal(ids.num, 6);
    tri_ids_fini(&ids);
    mkdir(other, 0700);
    snprintf(say, sizeof say, "%s/precious", other);
    put_packed(say, "txt", "x", 1);
    config.out = other;
    assert_prepare_fails(config, "holds other things");
    config.out = good;
    assert_prepare_fails(config, "is no directory");
    assert_int_equal(num_entries(dir->path), before + 2);
    remove_prepared(out);
    tri_tokenizer_close(bytes);
}

static void assert_prepared_fails(const char *path, const char *because)
{
    tri_prepared p;
    tr_error err = {0};
    assert_int_equal(tri_prepared_open(path, &p, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because))
        fail_msg("expected \"%s\" in: %s", because, err.message);
}

static void directories_of_shards(void **state)
{
    char dir[300], path[400];
    const int32_t tokens[] = {1, 2, 3, 4};
    tr_error err = {0};
    tri_prepared p;
    snprintf(dir, sizeof dir, "%s/loose", ((temp_dir *)*state)->path);
    mkdir(dir, 0700);
    assert_false(tri_prepared_is(dir));
    assert_prepared_fails(dir, "holds no shard");
    snprintf(path, sizeof path, "%s/x_train_1.tok", dir);
    write_shard(path, 10, 1, tokens, 4);
    snprintf(path, sizeof path, "%s/x_train_0.tok", dir);
    write_shard(path, 10, 1, tokens, 3);
    snprintf(path, sizeof path, "%s/x_val_0.tok", dir);
    write_shard(path, 10, 1, tokens, 2);
    assert_true(tri_prepared_is(dir));
    assert_int_equal(tri_prepared_open(dir, &p, &err), TR_OK);
    assert_int_equal(p.num[TRI_SPLIT_TRAIN], 2);
    assert_int_equal(p.shard[TRI_SPLIT_TRAIN][0].num_tokens, 3);
    assert_int_equal(p.tokens[TRI_SPLIT_EVAL], 2);
    tri_prepared_close(&p);
    write_shard(path, 11, 1, tokens, 2);
    assert_prepared_fails(dir, "different tokenizers or separators");
    /* A list that does not fit what is there. */
    snprintf(path, sizeof path, "%s/tokens.json", dir);
    put_file(path, "{", 1);
    assert_prepared_fails(dir, "not valid JSON");
    put_file(path, "{}", 2);
    assert_prepared_fails(dir, "no list of token shards");
#define LIST(shards)                                                                               \
    "{\"format\":\"trireme tokens\",\"version\":1,\"train\":{\"tokens\":5,\"shards\":" shards "}}"
    static const struct {
        const char *text, *because;
    } bad[] = {{LIST("[\"../x\"]"), "has no name"},
               {LIST("[1]"), "has no name"},
               {LIST("[\"absent.tok\"]"), "cannot be opened"},
               {LIST("[\"x_train_0.tok\"]"), "the shards hold 3 tokens, but tokens.json says 5"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(path, bad[i].text, strlen(bad[i].text));
        assert_prepared_fails(dir, bad[i].because);
    }
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* their own memory grows */
/* Peak memory, in bytes, of a process that prepares a text of so many MB, packed. */
static int64_t peak_of(const char *path, const char *out, const tri_tokenizer *tokenizer, int mb)
{
    tri_bytes text = made_up_text(1000000, 3);
    gzFile file = gzopen(path, "wb1");
    for (int i = 0; i < mb; i++)
        assert_int_equal(gzwrite(file, text.data, (unsigned)text.num), text.num);
    gzclose(file);
    tri_bytes_fini(&text);
    pid_t child = fork();
    if (child == 0) {
        tri_prepare_config config = {
            .inputs = &path, .num_inputs = 1, .out = out, .force = true, .separator = -1};
        tri_prepare_result result;
        tri_pool *pool;
        bool done = tri_pool_create(2, &pool, NULL) == TR_OK &&
                    tri_prepare(&config, tokenizer, pool, &result, NULL) == TR_OK;
        _exit(done ? 0 : 1);
    }
    int code;
    struct rusage used;
    assert_true(wait4(child, &code, 0, &used) == child);
    assert_int_equal(code, 0);
    return (int64_t)used.ru_maxrss * 1024;
}

/* Ten times the text takes no more memory. */
static void memory_is_bounded(void **state)
{
    tri_tokenizer *tokenizer = small_tokenizer();
    const char *path = temp_file(*state, "much.gz"), *out = temp_file(*state, "much");
    int most = getenv("TRIREME_TEST_FULL") ? 100 : 30;
    int64_t few = peak_of(path, out, tokenizer, 5), many = peak_of(path, out, tokenizer, most);
    if (many > few + 12000000)
        fail_msg("%d MB of text take %lld bytes, 5 MB only %lld", most, (long long)many,
                 (long long)few);
    remove_prepared(out);
    tri_tokenizer_close(tokenizer);
}
#endif

/* The fingerprint stays when a tokenizer is saved and opened again, and tells others apart. */
static void fingerprints(void **state)
{
    char dir[300];
    tr_error err = {0};
    snprintf(dir, sizeof dir, "%s/tokenizer", ((temp_dir *)*state)->path);
    mkdir(dir, 0700);
    tri_tokenizer *a = small_tokenizer(), *bytes = open_tokenizer("bytes");
    assert_int_equal(tri_tokenizer_save_dir(a, dir, &err), TR_OK);
    tri_tokenizer *b = open_tokenizer(dir);
    assert_true(fingerprint_of(a) == fingerprint_of(b));
    assert_true(fingerprint_of(a) != fingerprint_of(bytes));
    assert_int_equal(tri_tokenizer_special(b, TRI_SPECIAL_EOS),
                     tri_tokenizer_special(a, TRI_SPECIAL_EOS));
    assert_true(tri_tokenizer_is_dir(dir));
    tri_tokenizer_close(a);
    tri_tokenizer_close(b);
    tri_tokenizer_close(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum_is_the_documented_one),
        cmocka_unit_test(sums_find_every_bit),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damaged_shards_are_refused),
        cmocka_unit_test(damaged_tokens_are_found),
        cmocka_unit_test(shards_of_llmc),
        cmocka_unit_test(fuzzed_headers),
        cmocka_unit_test(large_text_in_blocks),
        cmocka_unit_test(documents_are_divided),
        cmocka_unit_test(directories_and_small_tokenizers),
        cmocka_unit_test(prepare_refuses),
        cmocka_unit_test(directories_of_shards),
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        cmocka_unit_test(memory_is_bounded),
#endif
        cmocka_unit_test(fingerprints),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
