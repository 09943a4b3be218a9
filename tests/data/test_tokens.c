/* Rows from tokens: each window once per epoch, a pure function of seed and sample, over shards and
 * epochs; documents and positions; blends in exact proportions; text that is prepared on the way;
 * and which rank sees which sample when their number changes. */
#include "small_models.h"

#include <math.h>
#include <stdint.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "data/data.h"
#include "data/prepare/prepare.h"
#include "data/prepare/shard.h"
#include "data/source/blend.h"
#include "data/source/source.h"
#include "data/tokenizer/tokenizer.h"
#include "temp_dir.h"
#include "train/batch.h"

enum { SEQ_LEN = 16 };

static void write_shard(const char *path, int32_t vocab, int32_t separator, const int32_t *tokens,
                        size_t num)
{
    tri_shard_writer writer;
    tr_error err = {0};
    unlink(path);
    if (tri_shard_begin(&writer, path, vocab, separator, 0, &err) != TR_OK ||
        tri_shard_write(&writer, tokens, num, &err) != TR_OK ||
        tri_shard_end(&writer, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* A directory of shards in which token i of the whole is first + i, cut at odd places; the last is
 * kept for evaluation. */
static void put_counting(char *dir, size_t dir_size, void **state, const char *name, int32_t first)
{
    static int32_t tokens[4000];
    static const int cut[] = {0, 1, 700, 717, 3000, 3400};
    snprintf(dir, dir_size, "%s/%s", ((temp_dir *)*state)->path, name);
    mkdir(dir, 0700);
    for (int i = 0; i < 4000; i++)
        tokens[i] = first + i;
    for (int i = 0; i + 1 < 6; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%c_%s.tok", dir, 'a' + i, i == 4 ? "val" : "train");
        write_shard(path, 100000, -1, tokens + cut[i], (size_t)(cut[i + 1] - cut[i]));
    }
}

static tri_data *open_with(tri_data_config config)
{
    tri_data *data;
    tr_error err = {0};
    if (tri_data_open(&config, &data, &err) != TR_OK)
        fail_msg("%s", err.message);
    return data;
}

static tri_data *open_tokens(const char *source, uint64_t seed)
{
    return open_with((tri_data_config){
        .source = source, .seq_len = SEQ_LEN, .seed = seed, .eval_fraction = 0.1});
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
    int32_t tokens[SEQ_LEN], targets[SEQ_LEN], docs[SEQ_LEN], positions[SEQ_LEN];
} row;

static void get(const tri_data *data, tri_split split, uint64_t sample, row *r)
{
    memset(r, 0x55, sizeof *r);
    tri_data_row(data, split, sample,
                 &(tri_row){.tokens = r->tokens,
                            .targets = r->targets,
                            .docs = r->docs,
                            .positions = r->positions,
                            .num_targets = SEQ_LEN});
}

/* ---- windows ---- */

static void every_window_once_per_epoch(void **state)
{
    char dir[300];
    put_counting(dir, sizeof dir, state, "count", 0);
    tri_data *data = open_tokens(dir, 3), *again = open_tokens(dir, 3),
             *other = open_tokens(dir, 4);
    int64_t num = tri_data_num_windows(data, TRI_SPLIT_TRAIN), differ = 0;
    assert_int_equal(num, 3000 / SEQ_LEN - 1);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_EVAL), 399 / SEQ_LEN);
    int phases[SEQ_LEN] = {0}, kinds = 0;
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        int uses[3000] = {0}, used = 0;
        for (int64_t i = 0; i < num; i++) {
            row r, same, unlike;
            uint64_t sample = (uint64_t)(epoch * num + i);
            get(data, TRI_SPLIT_TRAIN, sample, &r);
            for (int t = 0; t < SEQ_LEN; t++) { /* across the borders of shards too */
                assert_int_equal(r.tokens[t], r.tokens[0] + t);
                assert_int_equal(r.targets[t], r.tokens[t] + 1);
                uses[r.tokens[t]]++;
            }
            assert_true(r.targets[SEQ_LEN - 1] < 3000); /* nothing of the evaluation */
            if (i == 0)
                kinds += phases[r.tokens[0] % SEQ_LEN]++ == 0;
            get(again, TRI_SPLIT_TRAIN, (uint64_t)(5 * num - 1) - sample, &same); /* any order */
            get(again, TRI_SPLIT_TRAIN, sample, &same);
            assert_memory_equal(&r, &same, sizeof r);
            get(other, TRI_SPLIT_TRAIN, sample, &unlike);
            differ += memcmp(&r, &unlike, sizeof r) != 0;
        }
        for (int i = 0; i < 3000; i++) {
            assert_true(uses[i] <= 1);
            used += uses[i];
        }
        assert_int_equal(used, num * SEQ_LEN);
    }
    assert_true(kinds > 1);            /* windows begin elsewhere in other epochs */
    assert_true(differ > 9 * num / 2); /* and come in another order for another seed */
    for (uint64_t i = 0; i < 30; i++) {
        row r;
        get(data, TRI_SPLIT_EVAL, i, &r);
        assert_int_equal(r.tokens[0], 3000 + (int)(i % 24) * SEQ_LEN);
    }
    tri_data_close(data);
    tri_data_close(again);
    tri_data_close(other);
}

/* Without a part of its own, evaluation gets the tail. */
static void the_tail_is_held_out(void **state)
{
    int32_t tokens[1000];
    const char *path = temp_file(*state, "one.tok");
    for (int i = 0; i < 1000; i++)
        tokens[i] = i;
    write_shard(path, 1000, -1, tokens, 1000);
    tri_data *data = open_tokens(path, 1);
    row r;
    get(data, TRI_SPLIT_EVAL, 0, &r);
    assert_int_equal(r.tokens[0], 900);
    for (uint64_t i = 0; i < 200; i++) {
        get(data, TRI_SPLIT_TRAIN, i, &r);
        assert_true(r.targets[SEQ_LEN - 1] < 900);
    }
    assert_int_equal(tri_data_vocab_needed(data), 1000);
    tri_data_close(data);
    tri_data_config config = {.source = path, .seq_len = 600, .eval_fraction = 0.5};
    assert_open_fails(config, "has 1000 tokens, but windows of data.seq_len = 600");
    config = (tri_data_config){.source = path, .seq_len = 8, .vocab = 999};
    assert_open_fails(config, "model.vocab is 999, but");
    config = (tri_data_config){.source = path, .seq_len = 8, .mask_documents = true};
    assert_open_fails(config, "has no separator between documents");
}

/* ---- documents ---- */

static void check_documents(const row *r, bool first)
{
    int32_t document = 0, begin = 0;
    for (int t = 0; t < SEQ_LEN; t++) {
        bool starts = t > 0 && (first ? r->tokens[t] == 0 : r->tokens[t - 1] == 0);
        if (starts) {
            document++;
            begin = t;
        }
        assert_int_equal(r->docs[t], document);
        assert_int_equal(r->positions[t], t - begin);
    }
}

static void put_llmc(const char *path, const int32_t *tokens, size_t num)
{
    unsigned char *data = calloc(1, 1024 + 2 * num);
    uint32_t header[3] = {htole32(20240520), htole32(1), htole32((uint32_t)num)};
    assert_non_null(data);
    memcpy(data, header, sizeof header);
    for (size_t i = 0; i < num; i++) {
        uint16_t token = htole16((uint16_t)(tokens[i] == 0 ? 50256 : tokens[i]));
        memcpy(data + 1024 + 2 * i, &token, 2);
    }
    put_file(path, data, 1024 + 2 * num);
    free(data);
}

static void documents_and_positions(void **state)
{
    int32_t tokens[2000];
    for (int i = 0; i < 2000; i++) { /* some are longer than a row, some are one token */
        uint32_t one_in = i / 100 % 3 ? 40 : 4;
        tokens[i] = tri_random_word(1, (uint64_t)i, 0, 0) % one_in == 0 ? 0 : 1 + i % 1000;
    }
    const char *ours = temp_file(*state, "docs.tok"), *llmc = temp_file(*state, "docs.bin");
    write_shard(ours, 1001, 0, tokens, 2000);
    put_llmc(llmc, tokens, 2000);
    for (int kind = 0; kind < 2; kind++) {
        tri_data_config config = {.source = kind ? llmc : ours, .seq_len = SEQ_LEN, .seed = 5};
        tri_data *plain = open_with(config);
        config.mask_documents = true;
        tri_data *masked = open_with(config);
        int borders = 0;
        for (uint64_t i = 0; i < 300; i++) {
            row r, p;
            get(masked, TRI_SPLIT_TRAIN, i, &r);
            get(plain, TRI_SPLIT_TRAIN, i, &p);
            assert_memory_equal(r.tokens, p.tokens, sizeof r.tokens);
            assert_memory_equal(r.targets, p.targets, sizeof r.targets);
            assert_int_equal(p.docs[3], 0x55555555); /* what the caller preset stays */
            assert_int_equal(p.positions[3], 0x55555555);
            for (int t = 0; kind && t < SEQ_LEN; t++)
                r.tokens[t] = r.tokens[t] == 50256 ? 0 : r.tokens[t];
            check_documents(&r, kind == 1);
            borders += r.docs[SEQ_LEN - 1];
        }
        assert_true(borders > 100);
        tri_data_close(plain);
        tri_data_close(masked);
    }
}

static void files_of_plain_text_are_documents(void **state)
{
    char dir[300], path[400];
    snprintf(dir, sizeof dir, "%s/plain", ((temp_dir *)*state)->path);
    mkdir(dir, 0700);
    for (int f = 0; f < 20; f++) {
        char text[12];
        memset(text, 'a' + f, sizeof text);
        snprintf(path, sizeof path, "%s/%02d", dir, f);
        put_file(path, text, (size_t)(1 + f % 12));
    }
    tri_data *data = open_with(
        (tri_data_config){.source = dir, .seq_len = SEQ_LEN, .seed = 1, .mask_documents = true});
    for (uint64_t i = 0; i < 50; i++) {
        row r;
        get(data, TRI_SPLIT_TRAIN, i, &r);
        for (int t = 0, begin = 0; t < SEQ_LEN; t++) {
            begin = t > 0 && r.tokens[t] != r.tokens[t - 1] ? t : begin;
            assert_int_equal(r.docs[t], r.tokens[t] - r.tokens[0]);
            assert_int_equal(r.positions[t], t - begin);
        }
    }
    tri_data_close(data);
}

/* A shard whose tokens lie: no crash, and the caller is told where. */
static void tokens_outside_the_vocabulary(void **state)
{
    int32_t tokens[100];
    const char *path = temp_file(*state, "lie.tok");
    tr_error err = {0};
    for (int i = 0; i < 100; i++)
        tokens[i] = i == 77 ? 60000 : i;
    write_shard(path, 100, -1, tokens, 100);
    tri_data *data = open_with((tri_data_config){.source = path, .seq_len = SEQ_LEN, .seed = 1});
    row r;
    bool seen = false;
    assert_int_equal(tri_data_problem(data, &err), TR_OK);
    for (uint64_t i = 0; i < 100; i++) {
        get(data, TRI_SPLIT_TRAIN, i, &r);
        for (int t = 0; t < SEQ_LEN; t++) {
            assert_true(r.tokens[t] >= 0 && r.tokens[t] < 100 && r.targets[t] < 100);
            seen = seen || r.targets[t] < 0;
        }
    }
    assert_true(seen);
    assert_int_equal(tri_data_problem(data, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "lie.tok: token 77 is 60000"));
    tri_data_close(data);
    /* And a step of training does not compute with it. */
    char source[400];
    snprintf(source, sizeof source, "data.source=%s", path);
    tr_settings *settings = settings_of(TINY, SET(source, "model.vocab=0", "train.batch=50",
                                                  "data.seq_len=16", "data.eval_fraction=0"));
    tr_session *session;
    if (tr_session_create(settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tr_session_step(session, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "lie.tok: token 77 is 60000"));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* ---- blends ---- */

static void proportions_are_exact(void **state)
{
    (void)state;
    static const uint64_t cases[][6] = {{7, 3},          {1, 1},          {1},
                                        {1, 2, 3, 4, 5}, {1, 9999},       {500, 1, 1},
                                        {3, 3, 3, 1},    {123456, 98765}, {97, 89, 83, 79, 73, 71}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tri_blend blend;
        tr_error err = {0};
        uint64_t taken[6] = {0};
        int num = 0;
        while (num < 6 && cases[c][num])
            num++;
        assert_int_equal(tri_blend_init(&blend, cases[c], num, &err), TR_OK);
        double sum = 0, worst = 0;
        for (int i = 0; i < num; i++)
            sum += (double)cases[c][i];
        for (uint64_t n = 0; n < 50000; n++) {
            uint64_t within;
            int source = tri_blend_at(&blend, n, &within);
            assert_true(source >= 0 && source < num);
            assert_int_equal(within, taken[source]++); /* its samples, each once, in order */
            for (int i = 0; i < num; i++) {
                double owed = (double)(n + 1) * (double)cases[c][i] / sum;
                worst = fmax(worst, fabs((double)taken[i] - owed));
            }
        }
        assert_true(worst < 1);
        tri_blend_fini(&blend);
    }
}

static void lists_of_sources(void **state)
{
    tri_blend_list list;
    tr_error err = {0};
    uint64_t weight[TRI_BLEND_MAX_SOURCES];
    const char *odd = temp_file(*state, "a,b:2");
    put_file(odd, "x", 1);
    assert_int_equal(tri_blend_parse("a:0.7,dir/b:0.3", &list, &err), TR_OK);
    assert_int_equal(list.num, 2);
    assert_string_equal(list.part[1].path, "dir/b");
    tri_blend_weights(&list, weight);
    assert_int_equal(weight[0], 7);
    assert_int_equal(weight[1], 3);
    tri_blend_list_fini(&list);
    assert_int_equal(tri_blend_parse("a; b:2 ;c:x", &list, &err), TR_OK);
    assert_int_equal(list.num, 3);
    assert_string_equal(list.part[1].path, "b");
    assert_string_equal(list.part[2].path, "c:x");
    tri_blend_weights(&list, weight);
    assert_int_equal(weight[1], 2);
    tri_blend_list_fini(&list);
    assert_int_equal(tri_blend_parse(odd, &list, &err), TR_OK); /* it exists under this name */
    assert_int_equal(list.num, 1);
    assert_string_equal(list.part[0].path, odd);
    tri_blend_list_fini(&list);
    assert_int_equal(tri_blend_parse("a,,b", &list, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_blend_parse("a:0,b", &list, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "the weight in \"a:0\""));
    assert_int_equal(tri_blend_parse("a:-1", &list, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_blend_parse("a:nan", &list, &err), TR_ERROR_INPUT);
}

/* Sample n of a blend is the right sample of the right source, through epochs of its own. */
static void blended_rows(void **state)
{
    char a[300], b[300], both[700];
    put_counting(a, sizeof a, state, "blend-a", 0);
    put_counting(b, sizeof b, state, "blend-b", 50000);
    snprintf(both, sizeof both, "%s:3,%s:1", a, b);
    tri_data *data = open_tokens(both, 9), *one[2] = {open_tokens(a, 9), open_tokens(b, 9)};
    for (int split = 0; split < 2; split++) {
        uint64_t taken[2] = {0};
        for (uint64_t n = 0; n < 2000; n++) {
            row r, want;
            get(data, (tri_split)split, n, &r);
            int source = r.tokens[0] >= 50000;
            get(one[source], (tri_split)split, taken[source]++, &want);
            assert_memory_equal(&r, &want, sizeof r);
            assert_true(fabs((double)taken[0] - 0.75 * (double)(n + 1)) < 1);
        }
    }
    tri_data_close(data);
    tri_data_close(one[0]);
    tri_data_close(one[1]);
}

/* ---- ranks ---- */

typedef struct recorder {
    int seen[400];
    int64_t batch;
} recorder;

static void record(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    recorder *r = context;
    assert_int_equal(split, TRI_SPLIT_TRAIN);
    assert_true(sample < 400);
    assert_non_null(row->tokens);
    r->seen[sample]++;
}

/* One rank of dp fills its batches of some steps. */
static void fill_as_rank(recorder *r, int dp, int rank, int64_t from, int64_t to)
{
    char layout[32];
    tr_error err = {0};
    snprintf(layout, sizeof layout, "layout.dp=%d", dp);
    tr_settings *settings = settings_of(TINY, SET("model.num_layers=1", "run.device=null", layout));
    tr_session *session = compiled(settings);
    tri_session *s = &session->session;
    s->dp_rank = rank;
    s->row = record;
    s->row_context = r;
    r->batch = s->config.compile.batch;
    if (tri_session_start(s, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (s->step = from; s->step < to; s->step++)
        tri_fill_train_batch(s);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* Two ranks, then three: together they see every sample once, whoever sees it. */
static void ranks_that_change_lose_nothing(void **state)
{
    (void)state;
    recorder r = {0};
    for (int rank = 0; rank < 2; rank++)
        fill_as_rank(&r, 2, rank, 0, 7);
    for (int rank = 0; rank < 3; rank++)
        fill_as_rank(&r, 3, rank, 7, 20);
    for (int64_t i = 0; i < 400; i++)
        assert_int_equal(r.seen[i], i < 20 * r.batch ? 1 : 0);
}

/* ---- text on the way ---- */

/* Tells whether shards under a directory of caches were written again. */
static long inodes_in(const char *dir)
{
    struct stat info = {0};
    char path[700];
    DIR *handle = opendir(dir);
    assert_non_null(handle);
    const struct dirent *entry;
    long sum = 0;
    while ((entry = readdir(handle)))
        if (entry->d_name[0] != '.' && !strstr(entry->d_name, ".lock")) {
            snprintf(path, sizeof path, "%s/%s/train-00000.tok", dir, entry->d_name);
            assert_int_equal(stat(path, &info), 0);
            sum += (long)info.st_ino;
        }
    closedir(handle);
    return sum;
}

static void text_is_prepared_once(void **state)
{
    char run[300], cache[400], text[300];
    snprintf(run, sizeof run, "%s/run", ((temp_dir *)*state)->path);
    snprintf(cache, sizeof cache, "%s/data", run);
    snprintf(text, sizeof text, "%s/lines.jsonl", ((temp_dir *)*state)->path);
    FILE *stream = fopen(text, "w");
    for (int i = 0; i < 400; i++)
        fprintf(stream, "{\"text\": \"line %d\", \"other\": \"x\"}\n", i);
    fclose(stream);
    tri_data_config config = {
        .source = text, .seq_len = SEQ_LEN, .seed = 1, .tokenizer = "chars", .cache = run};
    for (int i = 0; i < 3; i++) /* at once: one prepares, all can open */
        if (fork() == 0) {
            tri_data *data;
            _exit(tri_data_open(&config, &data, NULL) == TR_OK ? 0 : 1);
        }
    for (int i = 0, code; i < 3; i++) {
        assert_true(wait(&code) > 0);
        assert_int_equal(code, 0);
    }
    long made = inodes_in(cache);
    tri_data *data = open_with(config);
    int64_t vocab;
    tr_error err = {0};
    assert_int_equal(tri_data_vocab(&config, &vocab, &err), TR_OK);
    assert_int_equal(tri_data_vocab_needed(data), 15); /* "line " and ten digits */
    assert_int_equal(vocab, 15);
    tri_data_close(data);
    assert_int_equal(inodes_in(cache), made);
    tri_tokenizer *tokenizer;
    assert_int_equal(tri_data_tokenizer(&config, &tokenizer, &err), TR_OK);
    assert_int_equal(tri_tokenizer_vocab(tokenizer), 15);
    tri_tokenizer_close(tokenizer);
    stream = fopen(text, "a"); /* another text is prepared again */
    fprintf(stream, "{\"text\": \"more\"}\n");
    fclose(stream);
    data = open_with(config);
    assert_int_equal(tri_data_vocab_needed(data), 18); /* m, o, r */
    tri_data_close(data);
    config.tokenizer = ""; /* JSONL without a tokenizer: its text as bytes */
    data = open_with(config);
    row r;
    get(data, TRI_SPLIT_TRAIN, 0, &r);
    for (int t = 0; t < SEQ_LEN; t++)
        assert_non_null(strchr("line 0123456789more", r.tokens[t]));
    tri_data_close(data);
    config.field = "absent";
    assert_open_fails(config, "its fields are: ");
    config.cache = NULL;
    assert_open_fails(config, "trireme data prepare");
}

static void tokenizers_must_agree(void **state)
{
    char dirs[2][300], both[700];
    tr_error err = {0};
    tri_prepare_result result;
    const char *text = "README.md", *names[2] = {"bytes", "chars"};
    for (int i = 0; i < 2; i++) {
        tri_tokenizer *tokenizer;
        snprintf(dirs[i], sizeof dirs[i], "%s/agree-%d", ((temp_dir *)*state)->path, i);
        assert_int_equal(tri_prepare_tokenizer(names[i], &text, 1, NULL, NULL, &tokenizer, &err),
                         TR_OK);
        tri_prepare_config config = {
            .inputs = &text, .num_inputs = 1, .out = dirs[i], .separator = -1};
        assert_int_equal(tri_prepare(&config, tokenizer, NULL, &result, &err), TR_OK);
        tri_tokenizer_close(tokenizer);
    }
    tri_data_config config = {.source = dirs[1], .seq_len = SEQ_LEN, .tokenizer = "bytes"};
    assert_open_fails(config, "was prepared with another tokenizer");
    config.source = dirs[0];
    tri_data_close(open_with(config));
    snprintf(both, sizeof both, "%s,%s", dirs[0], dirs[1]);
    config = (tri_data_config){.source = both, .seq_len = SEQ_LEN};
    assert_open_fails(config, "prepared with different tokenizers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_once_per_epoch),
        cmocka_unit_test(the_tail_is_held_out),
        cmocka_unit_test(documents_and_positions),
        cmocka_unit_test(files_of_plain_text_are_documents),
        cmocka_unit_test(tokens_outside_the_vocabulary),
        cmocka_unit_test(proportions_are_exact),
        cmocka_unit_test(lists_of_sources),
        cmocka_unit_test(blended_rows),
        cmocka_unit_test(ranks_that_change_lose_nothing),
        cmocka_unit_test(text_is_prepared_once),
        cmocka_unit_test(tokenizers_must_agree),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
