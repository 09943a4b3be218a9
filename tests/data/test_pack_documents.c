/* Documents packed into rows (data.pack with data.task=lm): every token once in an epoch, full
 * rows, each document apart from the others, and what a last token predicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/rng.h"
#include "data/data.h"
#include "data/prepare/shard.h"
#include "temp_dir.h"

enum { SEQ_LEN = 32, MAX_LEN = 512, MAX_TOKENS = 1 << 20 };

static int32_t stream[MAX_TOKENS]; /* what the shards of a test hold, one after the other */
static int uses[MAX_TOKENS];
static uint32_t num_stream;

/* ---- files ---- */

static void write_shard(const char *path, int32_t separator, const int32_t *tokens, size_t num)
{
    tri_shard_writer writer;
    tr_error err = {0};
    unlink(path);
    if (tri_shard_begin(&writer, path, MAX_TOKENS, separator, 0, &err) != TR_OK ||
        tri_shard_write(&writer, tokens, num, &err) != TR_OK ||
        tri_shard_end(&writer, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* Documents whose tokens are all different: token i of the stream is i, but 0 where one ends. */
static void add_document(int64_t length)
{
    for (int64_t i = 0; i + 1 < length; i++, num_stream++)
        stream[num_stream] = (int32_t)num_stream + 1;
    stream[num_stream++] = 0;
}

/* Of one token, a row, a row and one, three rows; and others between. */
static void put_odd_documents(int num)
{
    static const int64_t odd[] = {1,           2, SEQ_LEN - 1, SEQ_LEN,         1, 1,
                                  SEQ_LEN + 1, 7, 3 * SEQ_LEN, 3 * SEQ_LEN + 5, 3};
    num_stream = 0;
    for (int i = 0; i < num; i++)
        add_document(i % 3 == 0 ? odd[i / 3 % 11] : 1 + i * 37 % 50);
}

/* The stream in shards that cut documents anywhere; the last is for evaluation when asked for. */
static const char *put_stream(void **state, const char *name, bool held_out)
{
    const char *dir = temp_file(*state, name);
    uint32_t cut[] = {0, 1, num_stream / 3, num_stream / 3 + 11, num_stream - 100, num_stream};
    mkdir(dir, 0700);
    for (int i = 0; i < 5; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%c_%s.tok", dir, 'a' + i,
                 held_out && i == 4 ? "val" : "train");
        write_shard(path, 0, stream + cut[i], cut[i + 1] - cut[i]);
    }
    return dir;
}

/* ---- rows ---- */

static tri_data_config pack_config(const char *source)
{
    return (tri_data_config){.source = source, .seq_len = SEQ_LEN, .seed = 3, .pack = true};
}

static tri_data *open_with(tri_data_config config)
{
    tri_data *data;
    tr_error err = {0};
    if (tri_data_open(&config, &data, &err) != TR_OK)
        fail_msg("%s", err.message);
    return data;
}

static void assert_open_fails(tri_data_config config, const char *because)
{
    tri_data *data;
    tr_error err = {0};
    assert_int_equal(tri_data_open(&config, &data, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because))
        fail_msg("expected \"%s\" in: %s", because, err.message);
}

typedef struct row {
    int32_t tokens[MAX_LEN], targets[MAX_LEN], docs[MAX_LEN], positions[MAX_LEN];
} row;

static void get(const tri_data *data, tri_split split, uint64_t sample, row *r)
{
    memset(r, 0, sizeof *r); /* as the session presets it */
    memset(r->targets, -1, sizeof r->targets);
    tri_data_row(data, split, sample,
                 &(tri_row){.tokens = r->tokens,
                            .targets = r->targets,
                            .docs = r->docs,
                            .positions = r->positions,
                            .num_targets = SEQ_LEN});
}

/* Where the piece that begins at place `at` of a row ends; ids count up, positions from 0. */
static int piece_end(const row *r, int at, int32_t which, int seq_len)
{
    int end = at;
    for (; end < seq_len && r->docs[end] == r->docs[at]; end++)
        assert_int_equal(r->positions[end], end - at);
    assert_int_equal(r->docs[at], which);
    return end;
}

static void check_padding(const row *r, int at, int seq_len)
{
    for (; at < seq_len; at++)
        assert_true(r->docs[at] == -1 && r->targets[at] == -1 && r->positions[at] == 0 &&
                    r->tokens[at] == 0);
}

/* ---- tokens ---- */

/* Where in the stream a piece is: by a token that is there once; -1: it is a separator alone. */
static int64_t place_of(const row *r, int at)
{
    return r->tokens[at] == 0 ? -1 : r->tokens[at] - 1;
}

/* A piece of `num` tokens, against the stream; limit is where its split ends. Returns num. */
static int check_piece(const row *r, int at, int end, int64_t limit, int64_t *separators)
{
    int64_t place = place_of(r, at);
    for (int i = at; i < end; i++) {
        bool is_last = i + 1 == end;
        int32_t next = place >= 0 && place + i - at + 1 < limit ? stream[place + i - at + 1] : -1;
        if (place < 0) { /* a separator alone ends its document */
            assert_true(is_last);
            assert_int_equal(r->targets[i], -1);
        } else {
            assert_int_equal(r->tokens[i], stream[place + i - at]);
            assert_int_equal(r->targets[i], !is_last                         ? r->tokens[i + 1]
                                            : r->tokens[i] != 0 && next == 0 ? 0
                                                                             : -1);
            uses[place + i - at]++;
        }
        assert_true(is_last || r->tokens[i] != 0); /* nothing of another document */
        *separators += r->tokens[i] == 0;
    }
    /* It begins with a document, or a multiple of rows after its beginning. */
    int64_t begin = place;
    while (begin > 0 && stream[begin - 1] != 0)
        begin--;
    assert_true(place < 0 || (place - begin) % SEQ_LEN == 0);
    return end - at;
}

/* All rows of an epoch; returns how many tokens they hold. */
static int64_t check_epoch(const tri_data *data, tri_split split, int64_t epoch, int64_t limit,
                           int64_t *separators)
{
    int64_t num = tri_data_num_windows(data, split), places = 0;
    for (int64_t i = 0; i < num; i++) {
        row r;
        int at = 0;
        get(data, split, (uint64_t)(epoch * num + i), &r);
        for (int32_t which = 0; at < SEQ_LEN && r.docs[at] >= 0; which++)
            at += check_piece(&r, at, piece_end(&r, at, which, SEQ_LEN), limit, separators);
        check_padding(&r, at, SEQ_LEN);
        assert_true(at > 0);
        places += at;
    }
    return places;
}

static void every_token_once_an_epoch(void **state)
{
    put_odd_documents(300);
    tri_data *data = open_with(pack_config(put_stream(state, "once", false)));
    int64_t num = tri_data_num_windows(data, TRI_SPLIT_TRAIN);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_EVAL), 0);
    assert_int_equal(tri_data_epoch_rows(data), num);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int64_t separators = 0, alone = 0;
        memset(uses, 0, sizeof uses);
        assert_int_equal(check_epoch(data, TRI_SPLIT_TRAIN, epoch, num_stream, &separators),
                         num_stream);
        for (uint32_t i = 0; i < num_stream; i++) {
            alone += stream[i] == 0 && uses[i] == 0;
            assert_int_equal(uses[i], stream[i] != 0 || uses[i]);
        }
        assert_int_equal(separators, 300);
        assert_true(alone > 30); /* documents of one token, and rests of long ones */
    }
    char text[200];
    tri_data_describe(data, text, sizeof text);
    assert_non_null(strstr(text, " in 5 shards, 300 documents, "));
    tri_data_close(data);
}

/* A row is a pure function of (seed, sample): in any order, of any opening. */
static void rows_depend_on_seed_and_sample_only(void **state)
{
    put_odd_documents(300);
    tri_data_config config = pack_config(put_stream(state, "pure", true));
    config.eval_fraction = 0.1;
    tri_data *data = open_with(config), *again = open_with(config);
    config.seed = 4;
    tri_data *other = open_with(config);
    int64_t num = tri_data_num_windows(data, TRI_SPLIT_TRAIN), differ = 0, moved = 0;
    for (int64_t i = 3 * num - 1; i >= 0; i--) {
        row r, same, unlike, later;
        get(data, TRI_SPLIT_TRAIN, (uint64_t)(3 * num - 1 - i), &r);
        get(data, TRI_SPLIT_TRAIN, (uint64_t)i, &r);
        get(again, TRI_SPLIT_TRAIN, (uint64_t)i, &same);
        assert_memory_equal(&r, &same, sizeof r);
        get(other, TRI_SPLIT_TRAIN, (uint64_t)i, &unlike);
        differ += memcmp(&r, &unlike, sizeof r) != 0;
        get(data, TRI_SPLIT_TRAIN, (uint64_t)(i + num), &later);
        moved += memcmp(&r, &later, sizeof r) != 0;
        assert_true(tri_data_window(data, TRI_SPLIT_TRAIN, (uint64_t)i) < (uint64_t)num);
    }
    assert_true(differ > 2 * num && moved > 2 * num);
    for (int64_t i = 0; i < tri_data_num_windows(data, TRI_SPLIT_EVAL); i++) {
        row r, same; /* held out: the same rows for every seed, and again from the first */
        get(data, TRI_SPLIT_EVAL, (uint64_t)i, &r);
        get(other, TRI_SPLIT_EVAL, (uint64_t)(i + tri_data_num_windows(data, TRI_SPLIT_EVAL)),
            &same);
        assert_memory_equal(&r, &same, sizeof r);
    }
    tri_data_close(data);
    tri_data_close(again);
    tri_data_close(other);
}

/* Held out in shards of its own, or the tail: each token in one split, and no target from the
 * other, though a document lies in both. */
static void the_two_splits_share_nothing(void **state)
{
    for (int own = 0; own < 2; own++) {
        put_odd_documents(400);
        if (own) /* evaluation begins with a separator: that is no target of training either */
            stream[num_stream - 100] = 0;
        tri_data_config config = pack_config(put_stream(state, own ? "own" : "tail", own));
        config.eval_fraction = 0.1;
        tri_data *data = open_with(config);
        int64_t separators = 0, held_out = own ? 100 : (int64_t)(0.1 * num_stream);
        int64_t train = num_stream - held_out;
        assert_true(stream[train - 1] != 0); /* in the middle of a document */
        memset(uses, 0, sizeof uses);
        assert_int_equal(check_epoch(data, TRI_SPLIT_TRAIN, 1, train, &separators), train);
        for (int64_t i = 0; i < num_stream; i++)
            assert_true(uses[i] == (i < train) || stream[i] == 0);
        int64_t num = tri_data_num_windows(data, TRI_SPLIT_EVAL), places = 0;
        for (int64_t i = 0; i < num; i++) {
            row r;
            get(data, TRI_SPLIT_EVAL, (uint64_t)i, &r);
            for (int at = 0; at < SEQ_LEN && r.docs[at] >= 0; at++, places++) {
                assert_true(r.tokens[at] == 0 || r.tokens[at] > train);
                uses[r.tokens[at] ? r.tokens[at] - 1 : MAX_TOKENS - 1]++;
            }
        }
        assert_int_equal(places, held_out);
        for (int64_t i = train; i < num_stream; i++)
            assert_true(uses[i] == 1 || stream[i] == 0);
        tri_data_close(data);
    }
}

/* Tokens of llm.c, where the separator begins a document: it is what the last token before it
 * predicts. */
static void a_separator_may_begin_documents(void **state)
{
    enum { SEP = 50256, NUM = 200 };
    struct {
        int32_t header[256];
        uint16_t tokens[NUM];
    } file = {.header = {20240520, 1, NUM}};
    const char *path = temp_file(*state, "gpt2.bin");
    int64_t documents = 0, begun = 0;
    for (int i = 0; i < NUM; i++)
        file.tokens[i] = i % 23 == 0 || i % 23 == 9 ? SEP : (uint16_t)(i + 1);
    assert_int_equal(put_file(path, &file, sizeof file), 0);
    tri_data *data = open_with(pack_config(path));
    for (int64_t i = 0; i < tri_data_num_windows(data, TRI_SPLIT_TRAIN); i++) {
        row r;
        get(data, TRI_SPLIT_TRAIN, (uint64_t)i, &r);
        for (int at = 0, which = 0; at < SEQ_LEN && r.docs[at] >= 0; which++, documents++) {
            int end = piece_end(&r, at, which, SEQ_LEN);
            begun += r.tokens[at] == SEP;
            for (; at < end; at++)
                assert_int_equal(r.targets[at], at + 1 < end          ? r.tokens[at + 1]
                                                : r.tokens[at] == NUM ? -1 /* the end of all */
                                                                      : SEP);
        }
    }
    assert_int_equal(documents, 18);
    assert_int_equal(begun, 18);
    tri_data_close(data);
}

/* ---- how full rows are ---- */

/* Log-normal lengths, as those of web pages: few are very long, most are short. */
static void rows_are_full(void **state)
{
    num_stream = 0;
    for (uint64_t i = 0; num_stream < 800000; i++) {
        float normal;
        tri_random_normal(7, 4 * i, 1, 0, 1, &normal);
        add_document(1 + (int64_t)(120 * exp(1.2 * normal)));
    }
    tri_data_config config = pack_config(put_stream(state, "full", false));
    config.seq_len = MAX_LEN;
    tri_data *data = open_with(config);
    double rows = (double)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
    double full = num_stream / (rows * MAX_LEN);
    char text[200], share[40];
    snprintf(share, sizeof share, " rows of 512, %.1f%% full", 100 * full);
    assert_non_null(strstr(tri_data_describe(data, text, sizeof text), share));
    print_message("%s\n", text);
    if (full < 0.97)
        fail_msg("rows are %.1f%% full", 100 * full);
    tri_data_close(data);
}

/* Some rows of an evaluation stand for all: they are not the longest documents alone. */
static void evaluation_is_not_sorted(void **state)
{
    num_stream = 0;
    for (int i = 0; i < 4000; i++)
        add_document(i % 5 == 0 ? SEQ_LEN : 2);
    tri_data_config config = pack_config(put_stream(state, "sorted", false));
    config.eval_fraction = 0.4;
    tri_data *data = open_with(config);
    int whole = 0, mixed = 0;
    for (uint64_t i = 0; i < 100; i++) {
        row r;
        get(data, TRI_SPLIT_EVAL, i, &r);
        whole += r.docs[SEQ_LEN - 1] == 0;
        mixed += r.docs[SEQ_LEN - 1] > 0;
    }
    assert_true(whole > 50 && mixed > 5);
    tri_data_close(data);
}

/* More pieces than are packed at a time. */
static void many_documents(void **state)
{
    num_stream = 0;
    for (int i = 0; num_stream < MAX_TOKENS - 8; i++)
        add_document(1 + i % 3);
    tri_data *data = open_with(pack_config(put_stream(state, "many", false)));
    int64_t num = tri_data_num_windows(data, TRI_SPLIT_TRAIN), separators = 0;
    memset(uses, 0, sizeof uses);
    assert_int_equal(check_epoch(data, TRI_SPLIT_TRAIN, 0, num_stream, &separators), num_stream);
    for (uint32_t i = 0; i < num_stream; i++)
        assert_true(uses[i] == 1 || stream[i] == 0);
    assert_true(num * SEQ_LEN < num_stream + 10 * SEQ_LEN);
    tri_data_close(data);
}

/* ---- other sources ---- */

/* Plain bytes: each file is a document, which nothing follows. */
static void files_are_documents(void **state)
{
    static const int length[] = {70, 5, 1, 32, 20};
    char dir[300];
    int64_t pieces = 0, places = 0;
    snprintf(dir, sizeof dir, "%s/files", ((temp_dir *)*state)->path);
    mkdir(dir, 0700);
    for (int i = 0; i < 5; i++) {
        char path[400], text[100];
        snprintf(path, sizeof path, "%s/%d.txt", dir, i);
        for (int k = 0; k < length[i]; k++)
            text[k] = (char)('A' + 5 * k % 50 + i);
        assert_int_equal(put_file(path, text, (size_t)length[i]), 0);
    }
    tri_data *data = open_with(pack_config(dir));
    for (int64_t i = 0; i < tri_data_num_windows(data, TRI_SPLIT_TRAIN); i++) {
        row r;
        get(data, TRI_SPLIT_TRAIN, (uint64_t)i, &r);
        for (int at = 0, which = 0; at < SEQ_LEN && r.docs[at] >= 0; which++, pieces++) {
            int end = piece_end(&r, at, which, SEQ_LEN);
            for (places += end - at; at < end; at++) {
                assert_int_equal(r.targets[at], at + 1 < end ? r.tokens[at + 1] : -1);
                if (at + 1 < end)
                    assert_int_equal((r.tokens[at + 1] - r.tokens[at] + 50) % 50, 5);
            }
        }
    }
    assert_int_equal(pieces, 3 + 4);
    assert_int_equal(places, 128);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 4);
    tri_data_close(data);
}

static void synthetic_rows_are_documents(void **state)
{
    (void)state;
    tri_data_config config = pack_config("synthetic");
    config.seq_len = MAX_LEN;
    config.vocab = 100;
    tri_data *data = open_with(config);
    int64_t documents = 0, shortest = MAX_LEN, longest = 0;
    for (uint64_t i = 0; i < 200; i++) {
        row r, other;
        int at = 0;
        get(data, TRI_SPLIT_TRAIN, i, &r);
        for (int which = 0; at < MAX_LEN; which++, documents++) {
            int begin = at, end = piece_end(&r, at, which, MAX_LEN);
            assert_int_equal(r.tokens[begin], 0);
            for (; at < end; at++)
                assert_int_equal(r.targets[at], at + 1 < end ? r.tokens[at + 1] : 0);
            shortest = end - begin < shortest ? end - begin : shortest;
            longest = end - begin > longest ? end - begin : longest;
        }
        get(data, TRI_SPLIT_EVAL, i, &other);
        assert_memory_not_equal(&r, &other, sizeof r);
    }
    assert_true(shortest <= 2 && longest == MAX_LEN / 4);
    assert_in_range(documents, 15 * 200, 30 * 200);
    tri_data_close(data);
    config.seq_len = 3; /* documents of one token */
    data = open_with(config);
    row r;
    get(data, TRI_SPLIT_TRAIN, 0, &r);
    assert_true(r.docs[2] == 2 && r.tokens[2] == 0 && r.targets[2] == 0);
    tri_data_close(data);
}

/* Rows without data.pack keep their bits: hash of rows as they were before there was packing. */
static void synthetic_windows_stay_as_they_were(void **state)
{
    (void)state;
    tri_data_config config = {.source = "synthetic", .seq_len = 100, .seed = 5, .vocab = 77};
    tri_checksum sum;
    tri_checksum_init(&sum);
    tri_data *data = open_with(config);
    for (uint64_t i = 0; i < 100; i++) {
        row r;
        get(data, i % 2 ? TRI_SPLIT_EVAL : TRI_SPLIT_TRAIN, i, &r);
        tri_checksum_add(&sum, &r, sizeof r);
    }
    assert_int_equal(tri_checksum_end(&sum), UINT64_C(0xfdb12d5536ff0865));
    tri_data_close(data);
}

/* ---- refused ---- */

static void what_cannot_be_packed_is_refused(void **state)
{
    int32_t tokens[200];
    for (int i = 0; i < 200; i++)
        tokens[i] = i;
    const char *path = temp_file(*state, "none.tok");
    write_shard(path, -1, tokens, 200);
    assert_open_fails(pack_config(path), "has no separator between documents; prepare it with "
                                         "--separator ID");
    int32_t separators[200] = {0};
    write_shard(path, 0, separators, 200);
    assert_open_fails(pack_config(path), "no document has two tokens");
    write_shard(path, 199, tokens, 200);
    tri_data_config config = pack_config(path);
    tri_data_close(open_with(config));
    config.seq_len = 300;
    assert_open_fails(config, "lower data.seq_len");
    tri_data_config long_rows = pack_config(temp_file(*state, "long.txt"));
    char *text = calloc(1, (2 << 20) + 1);
    assert_int_equal(put_file(long_rows.source, text, (2 << 20) + 1), 0);
    free(text);
    long_rows.seq_len = (1 << 20) + 1;
    assert_open_fails(long_rows, "set data.pack=false");
    long_rows.seq_len = 1 << 20;
    tri_data_close(open_with(long_rows));
}

/* A token outside the vocabulary is noticed when it is used. */
static void a_damaged_token_is_noticed(void **state)
{
    put_odd_documents(30);
    const char *path = temp_file(*state, "damaged.tok");
    write_shard(path, 0, stream, num_stream);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, TRI_SHARD_HEADER_BYTES + 4 * 40, SEEK_SET);
    assert_int_equal(fwrite("\xff\xff\xff\x7f", 4, 1, file), 1);
    fclose(file);
    tri_data *data = open_with(pack_config(path));
    tr_error err = {0};
    for (int64_t i = 0; i < tri_data_num_windows(data, TRI_SPLIT_TRAIN); i++) {
        row r;
        get(data, TRI_SPLIT_TRAIN, (uint64_t)i, &r);
        for (int t = 0; t < SEQ_LEN; t++)
            assert_true(r.tokens[t] >= 0 && r.tokens[t] < MAX_TOKENS && r.targets[t] < MAX_TOKENS);
    }
    assert_int_equal(tri_data_problem(data, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "damaged.tok: token 40 is 2147483647"));
    tri_data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_once_an_epoch),
        cmocka_unit_test(rows_depend_on_seed_and_sample_only),
        cmocka_unit_test(the_two_splits_share_nothing),
        cmocka_unit_test(a_separator_may_begin_documents),
        cmocka_unit_test(rows_are_full),
        cmocka_unit_test(evaluation_is_not_sorted),
        cmocka_unit_test(many_documents),
        cmocka_unit_test(files_are_documents),
        cmocka_unit_test(synthetic_rows_are_documents),
        cmocka_unit_test(synthetic_windows_stay_as_they_were),
        cmocka_unit_test(what_cannot_be_packed_is_refused),
        cmocka_unit_test(a_damaged_token_is_noticed),
    };
    return cmocka_run_group_tests_name("packed documents", tests, temp_dir_setup,
                                       temp_dir_teardown);
}
