/* Made-up rows: those with a label, and those with tokens to be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/data.h"

enum { SEQ_LEN = 40, MAX_LABELS = 8 };

typedef struct one_row {
    int32_t tokens[SEQ_LEN], docs[SEQ_LEN], targets[SEQ_LEN];
} one_row;

static tri_data *open_data(tri_data_config config)
{
    tri_data *data;
    tr_error err = {0};
    config.source = "synthetic";
    if (tri_data_open(&config, &data, &err) != TR_OK)
        fail_msg("%s", err.message);
    return data;
}

static void get_row(const tri_data *data, tri_split split, uint64_t sample, one_row *row)
{
    memset(row, 0, sizeof *row); /* as the session presets it */
    memset(row->targets, -1, sizeof row->targets);
    tri_data_row(data, split, sample,
                 &(tri_row){.tokens = row->tokens, .docs = row->docs, .targets = row->targets});
}

/* ---- labels ---- */

static tri_data_config labels_config(int64_t num_labels, int64_t samples)
{
    return (tri_data_config){.task = TRI_DATA_CLASSIFY,
                             .seq_len = SEQ_LEN,
                             .vocab = 200,
                             .seed = 3,
                             .eval_fraction = 0.1,
                             .num_labels = num_labels,
                             .samples = samples};
}

/* Cues are the first words; with 200 tokens, 196 / (2 labels) of them for each label, at most 32.
 */
static int32_t label_by_hand(const one_row *row, int64_t num_labels)
{
    int64_t cues = 196 / (2 * num_labels), count[MAX_LABELS] = {0};
    cues = cues < 32 ? cues : 32;
    for (int i = 0; i < SEQ_LEN; i++)
        if (row->tokens[i] >= 4 && row->tokens[i] < 4 + num_labels * cues)
            count[(row->tokens[i] - 4) / cues]++;
    int32_t best = 0;
    for (int32_t l = 1; l < num_labels; l++)
        if (count[l] > count[best])
            best = l;
    assert_true(count[best] > 0);
    return best;
}

static void labels_say_what_most_cues_say(void **state)
{
    (void)state;
    for (int64_t num_labels = 2; num_labels <= 5; num_labels += 3) {
        tri_data *data = open_data(labels_config(num_labels, 0));
        int64_t count[MAX_LABELS] = {0}, shortest = SEQ_LEN, longest = 0;
        for (uint64_t sample = 0; sample < 1000; sample++) {
            one_row row;
            get_row(data, TRI_SPLIT_TRAIN, sample, &row);
            int64_t length = 0;
            while (length < SEQ_LEN && row.docs[length] == 0)
                length++;
            for (int64_t i = length; i < SEQ_LEN; i++) {
                assert_int_equal(row.docs[i], -1);
                assert_int_equal(row.tokens[i], 0);
            }
            assert_int_equal(row.tokens[0], 1);
            assert_int_equal(row.tokens[length - 1], 2);
            for (int64_t i = 1; i < length - 1; i++)
                assert_in_range(row.tokens[i], 4, 199);
            assert_int_equal(row.targets[0], label_by_hand(&row, num_labels));
            assert_int_equal(row.targets[1], -1); /* one label, nothing behind it */
            count[row.targets[0]]++;
            shortest = length < shortest ? length : shortest;
            longest = length > longest ? length : longest;
        }
        assert_int_equal(shortest, SEQ_LEN / 4);
        assert_int_equal(longest, SEQ_LEN);
        for (int64_t l = 0; l < num_labels; l++) /* no label is rare */
            assert_true(count[l] * num_labels > 600 && count[l] * num_labels < 1400);
        tri_data_close(data);
    }
}

static void each_row_once_in_every_epoch(void **state)
{
    (void)state;
    enum { NUM = 97 };
    tri_data *data = open_data(labels_config(2, NUM)), *again = open_data(labels_config(2, NUM));
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), NUM);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_EVAL), 10);
    one_row first[NUM], row, other;
    bool seen[NUM] = {false}, moved = false;
    for (uint64_t sample = 0; sample < NUM; sample++) {
        get_row(data, TRI_SPLIT_TRAIN, sample, &first[sample]);
        get_row(again, TRI_SPLIT_TRAIN, sample, &row);
        assert_memory_equal(&row, &first[sample], sizeof row);
        get_row(data, TRI_SPLIT_EVAL, sample % 10, &other);
        assert_memory_not_equal(&other, &row, sizeof row);
        get_row(data, TRI_SPLIT_EVAL, sample % 10 + 10, &row); /* from the beginning again */
        assert_memory_equal(&other, &row, sizeof row);
    }
    for (uint64_t sample = 0; sample < NUM; sample++) {
        get_row(data, TRI_SPLIT_TRAIN, NUM + sample, &row);
        int at = 0;
        while (at < NUM && memcmp(&row, &first[at], sizeof row) != 0)
            at++;
        assert_true(at < NUM);
        assert_false(seen[at]);
        seen[at] = true;
        moved |= (uint64_t)at != sample;
    }
    assert_true(moved);
    tri_data_close(data);
    tri_data_close(again);
}

/* ---- masks ---- */

static void masks_hide_what_is_to_be_found(void **state)
{
    (void)state;
    tri_data_config config = {
        .task = TRI_DATA_MLM, .seq_len = SEQ_LEN, .vocab = 50, .seed = 3, .mask_fraction = 0.2};
    tri_data *masked = open_data(config);
    config.task = TRI_DATA_LM;
    config.vocab = 49; /* the last one is the mask */
    tri_data *plain = open_data(config);
    double num = 0, hidden = 0, kept = 0, other = 0;
    for (uint64_t sample = 0; sample < 2000; sample++) {
        one_row a, b;
        get_row(masked, TRI_SPLIT_TRAIN, sample, &a);
        get_row(plain, TRI_SPLIT_TRAIN, sample, &b);
        for (int i = 0; i < SEQ_LEN; i++) {
            if (a.targets[i] < 0) {
                assert_int_equal(a.tokens[i], b.tokens[i]);
                continue;
            }
            assert_int_equal(a.targets[i], b.tokens[i]);
            num++;
            hidden += a.tokens[i] == 49;
            kept += a.tokens[i] == b.tokens[i];
            other += a.tokens[i] != 49 && a.tokens[i] != b.tokens[i];
        }
    }
    assert_true(num > 0.19 * 2000 * SEQ_LEN && num < 0.21 * 2000 * SEQ_LEN);
    assert_true(hidden > 0.78 * num && hidden < 0.82 * num);
    assert_true(kept > 0.08 * num && kept < 0.13 * num); /* some other tokens are the same one */
    assert_true(other > 0.07 * num && other < 0.12 * num);
    tri_data_close(masked);
    tri_data_close(plain);
}

static void refused(void **state)
{
    (void)state;
    tri_data_config few = labels_config(2, 0), short_rows = few, many = few;
    tri_data_config no_mask = {.task = TRI_DATA_MLM, .seq_len = 8, .vocab = 2};
    few.vocab = 7;
    short_rows.seq_len = 2;
    many.num_labels = 2000;
    many.vocab = 10000;
    const tri_data_config configs[] = {few, short_rows, many, no_mask};
    static const char *const words[] = {"model.vocab is 7", "data.seq_len is 2",
                                        "model.num_labels is 2000", "model.vocab is 2"};
    for (int i = 0; i < 4; i++) {
        tri_data_config config = configs[i];
        tri_data *data;
        tr_error err = {0};
        config.source = "synthetic";
        assert_int_equal(tri_data_open(&config, &data, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, words[i]))
            fail_msg("expected \"%s\" in: %s", words[i], err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_say_what_most_cues_say),
        cmocka_unit_test(each_row_once_in_every_epoch),
        cmocka_unit_test(masks_hide_what_is_to_be_found),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
