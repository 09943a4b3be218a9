/* Rows of tokens: the same ones always, each window once per epoch, nothing shared between splits,
 * and the statistics of the synthetic language. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "data/data.h"
#include "data/source/source.h"
#include "temp_dir.h"

#include <math.h>
#include <stdbool.h>

enum { MAX_SEQ_LEN = 256 };

static void get_row(const tri_data *data, tri_split split, uint64_t sample, int32_t *tokens,
                    int32_t *targets)
{
    tri_data_row(data, split, sample, &(tri_row){.tokens = tokens, .targets = targets});
}

static tri_data *open_data(const char *source, int64_t seq_len, int64_t vocab, uint64_t seed,
                           double eval_fraction)
{
    tri_data_config config = {.source = source,
                              .seq_len = seq_len,
                              .vocab = vocab,
                              .seed = seed,
                              .eval_fraction = eval_fraction};
    tri_data *data;
    tr_error err;
    if (tri_data_open(&config, &data, &err) != TR_OK)
        fail_msg("%s", err.message);
    return data;
}

static void assert_open_fails(const char *source, int64_t seq_len, int64_t vocab, uint64_t seed,
                              double eval_fraction, const char *because)
{
    tri_data_config config = {.source = source,
                              .seq_len = seq_len,
                              .vocab = vocab,
                              .seed = seed,
                              .eval_fraction = eval_fraction};
    tri_data *data;
    tr_error err;
    assert_int_equal(tri_data_open(&config, &data, &err), TR_ERROR_INPUT);
    assert_null(data);
    if (!strstr(err.message, because))
        fail_msg("expected \"%s\" in: %s", because, err.message);
}

/* A text in which no window of 16 occurs twice (position_of makes sure), so that a row tells where
 * it was taken from. */
static void put_counting_text(const char *path, size_t num_bytes)
{
    unsigned char *text = malloc(num_bytes);
    assert_non_null(text);
    for (size_t i = 0; i < num_bytes; i++)
        text[i] = (unsigned char)(i % 2 == 0 ? i / 2 % 256 : i / 512 + i / 2 % 7);
    assert_int_equal(put_file(path, text, num_bytes), 0);
    free(text);
}

/* Where a row lies in the text; fails when it is no part of it. */
static size_t position_of(const unsigned char *text, size_t num_bytes, const int32_t *tokens,
                          const int32_t *targets, size_t seq_len)
{
    unsigned char row[MAX_SEQ_LEN + 1];
    for (size_t i = 0; i < seq_len; i++)
        row[i] = (unsigned char)tokens[i];
    row[seq_len] = (unsigned char)targets[seq_len - 1];
    for (size_t i = 0; i + 1 < seq_len; i++)
        assert_int_equal(targets[i], tokens[i + 1]);
    const unsigned char *found = memmem(text, num_bytes, row, seq_len + 1);
    assert_non_null(found);
    assert_null(memmem(found + 1, num_bytes - (size_t)(found + 1 - text), row, seq_len + 1));
    return (size_t)(found - text);
}

static size_t read_text(const char *path, unsigned char *text, size_t max_bytes)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t num = fread(text, 1, max_bytes, stream);
    fclose(stream);
    return num;
}

static void shuffle_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t nums[] = {1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 100, 1000, 4096, 5001};
    for (int n = 0; n < 14; n++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            bool *seen = calloc(nums[n], sizeof *seen);
            assert_non_null(seen);
            for (uint64_t i = 0; i < nums[n]; i++) {
                uint64_t to = tri_data_shuffle(42, epoch, nums[n], i);
                assert_true(to < nums[n] && !seen[to]);
                seen[to] = true;
            }
            free(seen);
        }
    /* Counts that no table could hold work too. */
    assert_true(tri_data_shuffle(1, 2, UINT64_MAX, UINT64_MAX - 1) < UINT64_MAX);
    assert_true(tri_data_shuffle(1, 2, (1ull << 40) + 1, 5) <= 1ull << 40);
}

/* Places and neighbours are spread out, and differ between epochs and seeds. */
static void shuffle_looks_random(void **state)
{
    (void)state;
    enum { NUM = 4000 };
    double displacement = 0, step = 0;
    int same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < NUM; i++) {
        uint64_t to = tri_data_shuffle(7, 0, NUM, i);
        displacement += fabs((double)to - (double)i) / NUM;
        step += fabs((double)to - (double)tri_data_shuffle(7, 0, NUM, (i + 1) % NUM)) / NUM;
        same_epoch += to == tri_data_shuffle(7, 1, NUM, i);
        same_seed += to == tri_data_shuffle(8, 0, NUM, i);
    }
    /* Two random places are a third of the range apart in the mean. */
    assert_true(fabs(displacement / NUM - 1.0 / 3) < 0.02);
    assert_true(fabs(step / NUM - 1.0 / 3) < 0.02);
    assert_true(same_epoch < 10 && same_seed < 10);
}

/* Every order of three is as likely as another, so small texts are shuffled too. */
static void shuffle_of_three_is_fair(void **state)
{
    (void)state;
    int count[27] = {0};
    for (uint64_t epoch = 0; epoch < 6000; epoch++)
        count[tri_data_shuffle(3, epoch, 3, 0) * 9 + tri_data_shuffle(3, epoch, 3, 1) * 3 +
              tri_data_shuffle(3, epoch, 3, 2)]++;
    int num_orders = 0;
    for (int i = 0; i < 27; i++) {
        num_orders += count[i] > 0;
        assert_true(count[i] == 0 || (count[i] > 600 && count[i] < 1500));
    }
    assert_int_equal(num_orders, 6);
}

static void rows_are_pure(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "pure.txt");
    put_counting_text(path, 5000);
    const char *const source[] = {path, "synthetic"};
    for (int s = 0; s < 2; s++) {
        tri_data *a = open_data(source[s], 32, 256, 5, 0.2);
        tri_data *b = open_data(source[s], 32, 256, 5, 0.2);
        tri_data *other = open_data(source[s], 32, 256, 6, 0.2);
        int32_t row_a[2][32], row_b[2][32], row_other[2][32];
        int num_same = 0;
        for (int split = 0; split < 2; split++)
            for (uint64_t i = 0; i < 300; i++) {
                uint64_t sample = i * 7919 % 300 + (i % 2 ? 1ull << 40 : 0);
                get_row(a, (tri_split)split, sample, row_a[0], row_a[1]);
                get_row(b, (tri_split)split, sample + 1, row_b[0], row_b[1]);
                get_row(b, (tri_split)split, sample, row_b[0], row_b[1]);
                assert_memory_equal(row_a, row_b, sizeof row_a);
                get_row(other, (tri_split)split, sample, row_other[0], row_other[1]);
                num_same += split == TRI_SPLIT_TRAIN && !memcmp(row_a, row_other, sizeof row_a);
                for (int t = 0; t < 32; t++)
                    assert_in_range(row_a[0][t], 0, 255);
            }
        assert_true(num_same < 30); /* another seed, another order */
        tri_data_close(a);
        tri_data_close(b);
        tri_data_close(other);
    }
}

static void every_window_comes_once_per_epoch(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "epoch.txt");
    static const size_t sizes[] = {17, 31, 32, 33, 48, 49, 1000, 4003};
    for (int s = 0; s < 8; s++) {
        put_counting_text(path, sizes[s]);
        unsigned char text[8192];
        read_text(path, text, sizeof text);
        tri_data *data = open_data(path, 16, 256, 11, 0);
        size_t num = (size_t)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
        assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_EVAL), 0);
        assert_true(num >= 1 && num >= (sizes[s] - 1) / 16 - 1 && num <= (sizes[s] - 1) / 16);
        bool touched[8192] = {false};
        size_t phases[200];
        for (uint64_t epoch = 0; epoch < 200; epoch++) {
            bool used[8192] = {false};
            size_t first = SIZE_MAX;
            for (uint64_t i = 0; i < num; i++) {
                int32_t tokens[16], targets[16];
                get_row(data, TRI_SPLIT_TRAIN, epoch * num + i, tokens, targets);
                size_t at = position_of(text, sizes[s], tokens, targets, 16);
                first = at < first ? at : first;
                for (size_t b = at; b < at + 16; b++) {
                    assert_false(used[b]); /* windows of one epoch do not overlap */
                    used[b] = touched[b] = true;
                }
            }
            for (size_t b = first; b < first + 16 * num; b++)
                assert_true(used[b]); /* and lie side by side */
            phases[epoch] = first;
        }
        if (sizes[s] >= 48) { /* the borders move, and over the epochs nothing is left out */
            int num_moved = 0;
            for (int epoch = 1; epoch < 200; epoch++)
                num_moved += phases[epoch] != phases[epoch - 1];
            assert_true(num_moved > 150);
            for (size_t b = 0; b + 1 < sizes[s]; b++)
                assert_true(touched[b]);
        }
        tri_data_close(data);
    }
}

static void splits_are_disjoint(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "split.txt");
    put_counting_text(path, 4000);
    unsigned char text[4096];
    size_t num_bytes = read_text(path, text, sizeof text);
    tri_data *data = open_data(path, 16, 0, 3, 0.1);
    size_t num_eval = (size_t)tri_data_num_windows(data, TRI_SPLIT_EVAL);
    size_t num_train = (size_t)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
    assert_int_equal(num_eval, (400 - 1) / 16);
    int32_t tokens[16], targets[16];
    for (uint64_t i = 0; i < 2 * num_eval; i++) { /* in order, and round again */
        get_row(data, TRI_SPLIT_EVAL, i, tokens, targets);
        size_t at = position_of(text, num_bytes, tokens, targets, 16);
        assert_int_equal(at, 3600 + i % num_eval * 16);
    }
    for (uint64_t i = 0; i < 50 * num_train; i++) {
        get_row(data, TRI_SPLIT_TRAIN, i, tokens, targets);
        assert_true(position_of(text, num_bytes, tokens, targets, 16) + 16 < 3600);
    }
    assert_int_equal(tri_data_vocab_needed(data), 256);
    tri_data_close(data);
}

/* However small the fraction, there is one window to evaluate; the text is used to its end. */
static void a_small_fraction_gives_one_window(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "small.txt");
    put_counting_text(path, 34);
    tri_data *data = open_data(path, 16, 256, 3, 1e-6);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_EVAL), 1);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 1);
    tri_data_close(data);
}

static void a_directory_is_its_files_in_order(void **state)
{
    temp_dir *dir = *state;
    char sub[128], path[256];
    strcpy(sub, temp_file(dir, "texts"));
    assert_int_equal(mkdir(sub, 0700), 0);
    static const char *const file[][2] = {{"2.txt", "ghi"},     {"1.txt", "abcdef"},
                                          {"3.txt", ""},        {"4.txt", "j"},
                                          {"5.txt", "klmnopq"}, {".hidden", "XXXX"}};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", sub, file[i][0]);
        assert_int_equal(put_file(path, file[i][1], strlen(file[i][1])), 0);
    }
    snprintf(path, sizeof path, "%s/0-link", sub);
    assert_int_equal(symlink("1.txt", path), 0);
    snprintf(path, sizeof path, "%s/below", sub);
    assert_int_equal(mkdir(path, 0700), 0);

    tri_data *data = open_data(sub, 4, 256, 1, 0);
    int32_t tokens[4], targets[4];
    for (uint64_t i = 0; i < 100; i++) {
        get_row(data, TRI_SPLIT_TRAIN, i, tokens, targets);
        for (int t = 0; t < 4; t++) {
            assert_in_range(tokens[t], 'a', 'p');
            assert_int_equal(tokens[t] + 1, targets[t]);
        }
    }
    char text[200];
    assert_string_equal(tri_data_describe(data, text, sizeof text),
                        "17 bytes of text in 4 files, bytes, 3 windows of 4");
    tri_data_close(data);
}

static void descriptions(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "describe.txt");
    put_counting_text(path, 274432);
    char text[200];
    tri_data *data = open_data(path, 128, 256, 1, 0);
    assert_string_equal(tri_data_describe(data, text, sizeof text),
                        "268 KiB of text in 1 file, bytes, 2,143 windows of 128");
    tri_data_close(data);
    data = open_data(path, 128, 256, 1, 0.1);
    assert_string_equal(tri_data_describe(data, text, sizeof text),
                        "268 KiB of text in 1 file, bytes, 1,928 windows of 128, 214 more for "
                        "evaluation");
    tri_data_close(data);
    data = open_data("synthetic", 64, 50257, 1, 0);
    tri_data_describe(data, text, sizeof text);
    assert_non_null(strstr(text, "synthetic"));
    assert_non_null(strstr(text, "50,257"));
    assert_int_equal(tri_data_vocab_needed(data), 50257);
    assert_true(tri_data_num_windows(data, TRI_SPLIT_EVAL) == TRI_DATA_ENDLESS);
    tri_data_close(data);
    char grouped[32];
    assert_string_equal(tri_text_grouped(0, grouped), "0");
    assert_string_equal(tri_text_grouped(-999, grouped), "-999");
    assert_string_equal(tri_text_grouped(-1000, grouped), "-1,000");
    assert_string_equal(tri_text_grouped(INT64_MAX, grouped), "9,223,372,036,854,775,807");
}

enum { SYNTHETIC_VOCAB = 64, SYNTHETIC_LEN = 128, SYNTHETIC_ROWS = 4000 };

typedef struct statistics {
    int count[SYNTHETIC_VOCAB];
    int pair[SYNTHETIC_VOCAB][SYNTHETIC_VOCAB]; /* [token][the one after] */
} statistics;

static void gather(statistics *s, uint64_t seed, tri_split split)
{
    memset(s, 0, sizeof *s);
    tri_data *data = open_data("synthetic", SYNTHETIC_LEN, SYNTHETIC_VOCAB, seed, 0);
    for (uint64_t sample = 0; sample < SYNTHETIC_ROWS; sample++) {
        int32_t tokens[SYNTHETIC_LEN], targets[SYNTHETIC_LEN];
        get_row(data, split, sample, tokens, targets);
        for (int t = 0; t < SYNTHETIC_LEN; t++) {
            assert_in_range(tokens[t], 0, SYNTHETIC_VOCAB - 1);
            if (t > 0)
                assert_int_equal(tokens[t], targets[t - 1]);
            s->count[tokens[t]]++;
            s->pair[tokens[t]][targets[t]]++;
        }
    }
    tri_data_close(data);
}

static int favourite(const statistics *s, int token)
{
    int best = 0;
    for (int next = 1; next < SYNTHETIC_VOCAB; next++)
        if (s->pair[token][next] > s->pair[token][best])
            best = next;
    return best;
}

/* Half of the tokens follow the map, and the map is the same for every seed and split. */
static void half_of_the_synthetic_tokens_follow_the_map(void **state)
{
    (void)state;
    static statistics one, two;
    gather(&one, 1, TRI_SPLIT_TRAIN);
    gather(&two, 2, TRI_SPLIT_EVAL);
    double harmonic = 0;
    for (int k = 0; k < SYNTHETIC_VOCAB; k++)
        harmonic += 1.0 / (k + 1);
    for (int token = 0; token < SYNTHETIC_VOCAB; token++) {
        int next = favourite(&one, token);
        assert_int_equal(next, favourite(&two, token));
        assert_int_not_equal(next, token);
        /* A fresh draw hits the same token now and then. */
        double expected = 0.5 + 0.5 / (next + 1) / harmonic;
        double share = (double)two.pair[token][next] / two.count[token];
        double deviation = sqrt(0.25 / two.count[token]);
        if (fabs(share - expected) > 5 * deviation)
            fail_msg("token %d is followed by %d in %.3f of cases, not %.3f", token, next, share,
                     expected);
    }
}

/* What does not follow the map is Zipf-distributed: weight 1 / (k + 1). */
static void fresh_synthetic_tokens_are_zipf(void **state)
{
    (void)state;
    static statistics s;
    gather(&s, 1, TRI_SPLIT_TRAIN);
    double fresh[SYNTHETIC_VOCAB] = {0}, out_of[SYNTHETIC_VOCAB] = {0}, harmonic = 0;
    for (int k = 0; k < SYNTHETIC_VOCAB; k++)
        harmonic += 1.0 / (k + 1);
    for (int token = 0; token < SYNTHETIC_VOCAB; token++)
        for (int next = 0; next < SYNTHETIC_VOCAB; next++)
            if (next != favourite(&s, token)) {
                fresh[next] += s.pair[token][next];
                out_of[next] += 0.5 * s.count[token];
            }
    for (int k = 0; k < SYNTHETIC_VOCAB; k++) {
        double expected = 1.0 / (k + 1) / harmonic;
        double share = fresh[k] / out_of[k];
        assert_true(fabs(share - expected) < 5 * sqrt(expected / out_of[k]));
    }
    int low = 0, high = 0;
    for (int k = 0; k < 8; k++) {
        low += s.count[k];
        high += s.count[SYNTHETIC_VOCAB - 1 - k];
    }
    assert_true(low > 5 * high);
}

static void synthetic_splits_differ(void **state)
{
    (void)state;
    tri_data *data = open_data("synthetic", 64, 512, 1, 0);
    int32_t train[2][64], eval[2][64];
    for (uint64_t sample = 0; sample < 100; sample++) {
        get_row(data, TRI_SPLIT_TRAIN, sample, train[0], train[1]);
        get_row(data, TRI_SPLIT_EVAL, sample, eval[0], eval[1]);
        assert_memory_not_equal(train, eval, sizeof train);
    }
    tri_data_close(data);
}

static void errors(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "error.txt");
    assert_int_equal(put_file(path, "", 0), 0);
    assert_open_fails(path, 16, 256, 1, 0, "the file is empty");
    put_counting_text(path, 16);
    assert_open_fails(path, 16, 256, 1, 0,
                      "has 16 bytes, but windows of data.seq_len = 16 need at least 17; lower "
                      "data.seq_len");
    put_counting_text(path, 33);
    assert_open_fails(path, 16, 256, 1, 0.1, "need at least 34");
    put_counting_text(path, 100);
    assert_open_fails(path, 16, 256, 1, 0.9, "leaves 10 to train on");
    assert_open_fails(path, 16, 255, 1, 0, "set model.vocab to 256");
    assert_open_fails(path, 0, 256, 1, 0, "data.seq_len is 0");
    assert_open_fails(path, 16, -1, 1, 0, "model.vocab is -1");
    assert_open_fails(path, 16, 256, 1, 1, "data.eval_fraction is 1");
    assert_open_fails(path, 16, 256, 1, NAN, "data.eval_fraction is");
    assert_open_fails("", 16, 256, 1, 0, "data.source is not set");
    assert_open_fails(NULL, 16, 256, 1, 0, "data.source is not set");
    assert_open_fails("synthetic", 16, 1, 1, 0, "model.vocab is 1");
    const char *missing = temp_file(dir, "missing.txt");
    assert_open_fails(missing, 16, 256, 1, 0, missing);
    const char *sub = temp_file(dir, "no-text");
    assert_int_equal(mkdir(sub, 0700), 0);
    assert_open_fails(sub, 16, 256, 1, 0, "the directory holds no text");
    tri_data_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffle_is_a_bijection),
        cmocka_unit_test(shuffle_looks_random),
        cmocka_unit_test(shuffle_of_three_is_fair),
        cmocka_unit_test(rows_are_pure),
        cmocka_unit_test(every_window_comes_once_per_epoch),
        cmocka_unit_test(splits_are_disjoint),
        cmocka_unit_test(a_small_fraction_gives_one_window),
        cmocka_unit_test(a_directory_is_its_files_in_order),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(half_of_the_synthetic_tokens_follow_the_map),
        cmocka_unit_test(fresh_synthetic_tokens_are_zipf),
        cmocka_unit_test(synthetic_splits_differ),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
