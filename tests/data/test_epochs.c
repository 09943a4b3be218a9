/* Epochs: every sample once in each, padding instead of a batch that wraps; and the order of
 * samples when the number of ranks changes in the middle of a run. */
#include "small_models.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "temp_dir.h"
#include "train/batch.h"
#include "train/log/record.h"
#include "trireme/trireme.h"

static void every_sample_once_in_each_epoch(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 7, 8, 9, 64, 100, 1000};
    static const int64_t batches[] = {1, 3, 8, 64, 2000};
    for (int i = 0; i < 8; i++)
        for (int b = 0; b < 5; b++) {
            tri_epochs epochs;
            tr_error err;
            assert_int_equal(tri_epochs_init(&epochs, 3, rows[i], batches[b], &err), TR_OK);
            assert_int_equal(epochs.steps, (rows[i] + batches[b] - 1) / batches[b]);
            uint64_t next = 0;
            int64_t steps = tri_epochs_num_steps(&epochs, 0);
            for (int64_t step = 0; step < steps; step++) {
                int64_t real = 0;
                for (int64_t row = 0; row < batches[b] + 5; row++) {
                    uint64_t sample;
                    if (!tri_epochs_sample(&epochs, batches[b], step, row, &sample))
                        continue;
                    assert_int_equal(row, real); /* padding comes last */
                    assert_int_equal(sample, next);
                    next++;
                    real++;
                }
                assert_true(real > 0);
                assert_int_equal(real, tri_epochs_batch_rows(&epochs, batches[b], step));
                int64_t ended = tri_epochs_ended(&epochs, step);
                assert_int_equal(ended,
                                 next % (uint64_t)rows[i] == 0 ? next / (uint64_t)rows[i] : 0);
            }
            assert_int_equal(next, 3 * rows[i]);
        }
}

static void ten_thousand_rows_in_batches_of_64(void **state)
{
    (void)state;
    tri_epochs epochs;
    tr_error err;
    assert_int_equal(tri_epochs_init(&epochs, 3, 10000, 64, &err), TR_OK);
    assert_int_equal(epochs.steps, 157);
    assert_int_equal(tri_epochs_num_steps(&epochs, 0), 471);
    assert_int_equal(tri_epochs_num_steps(&epochs, 100), 100);  /* the smaller */
    assert_int_equal(tri_epochs_num_steps(&epochs, 1000), 471); /* of the two */
    assert_int_equal(tri_epochs_batch_rows(&epochs, 64, 156), 16);
    assert_int_equal(tri_epochs_batch_rows(&epochs, 64, 157), 64);
    assert_int_equal(tri_epochs_ended(&epochs, 156), 1);
    assert_int_equal(tri_epochs_ended(&epochs, 155), 0);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    tri_epochs epochs;
    tr_error err;
    assert_int_equal(tri_epochs_init(&epochs, 2, TRI_DATA_ENDLESS, 8, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "train.steps"));
    assert_int_equal(tri_epochs_init(&epochs, 1000000, INT64_MAX / 4, 8, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_epochs_init(&epochs, 0, TRI_DATA_ENDLESS, 8, &err), TR_OK);
    assert_int_equal(tri_epochs_num_steps(&epochs, 7), 7);
    tr_settings *settings = settings_of(TINY, SET("train.epochs=2"));
    assert_int_equal(tri_api_check(settings, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "train.epochs is 2"));
    tr_settings_destroy(settings);
}

/* ---- through a session ---- */

enum { NUM_BYTES = 900, SEQ_LEN = 16 };

static const char *put_text(temp_dir *dir)
{
    char text[NUM_BYTES];
    for (int i = 0; i < NUM_BYTES; i++)
        text[i] = (char)(i * 37 % 251);
    const char *path = temp_file(dir, "text.txt");
    assert_int_equal(put_file(path, text, sizeof text), 0);
    return path;
}

/* A session of one rank among dp, alone: it fills its rows but cannot exchange sums. */
static tr_session *open_rank(const char *text, int dp, int microbatches, tr_settings **settings)
{
    char source[300], ranks[40], parts[60];
    snprintf(source, sizeof source, "data.source=%s", text);
    snprintf(ranks, sizeof ranks, "layout.dp=%d", dp);
    snprintf(parts, sizeof parts, "layout.microbatches=%d", microbatches);
    *settings = settings_of(TINY, SET(source, ranks, parts, "data.seq_len=16", "train.batch=7",
                                      "train.steps=0", "train.epochs=3", "model.num_layers=1",
                                      "model.dim=8", "model.num_heads=1"));
    tr_session *session = compiled(*settings);
    tr_error err = {0};
    if (tri_session_start(&session->session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

typedef struct seen {
    int times[4096]; /* of each sample */
    int total;
} seen;

static void see(void *context, uint64_t sample)
{
    seen *s = context;
    assert_true(sample < 4096);
    s->times[sample]++;
    s->total++;
}

/* Fills one step of every rank; the rows that have targets are those that were told of. */
static void fill_step(tr_session *session, int dp, int64_t step, seen *s)
{
    tri_session *in = &session->session;
    int before = s->total, real = 0;
    in->sampled = see;
    in->sampled_context = s;
    in->step = step;
    int64_t rows = tri_microbatch_rows(&in->config.compile);
    for (in->dp_rank = 0; in->dp_rank < dp; in->dp_rank++) {
        tri_fill_train_batch(in);
        for (uint32_t m = 0; m < in->programs[TRI_PROGRAM_TRAIN].num_microbatches; m++) {
            const int32_t *targets = tri_session_host(in, TRI_PROGRAM_TRAIN, TRI_HOST_TARGETS, m);
            for (int64_t r = 0; r < rows; r++) {
                real += targets[r * SEQ_LEN] >= 0;
                for (int t = 0; t < SEQ_LEN; t++)
                    assert_int_equal(targets[r * SEQ_LEN + t] >= 0, targets[r * SEQ_LEN] >= 0);
            }
        }
    }
    assert_int_equal(real, s->total - before);
    assert_int_equal(real, tri_epochs_batch_rows(&in->epochs, 7, step));
}

static void changing_dp_loses_and_repeats_nothing(void **state)
{
    const char *text = put_text(*state);
    tr_settings *two_settings, *three_settings;
    tr_session *two = open_rank(text, 2, 1, &two_settings);
    tr_session *three = open_rank(text, 3, 2, &three_settings);
    int64_t num_rows = tri_data_num_windows(two->session.data, TRI_SPLIT_TRAIN);
    assert_int_equal(tri_data_num_windows(three->session.data, TRI_SPLIT_TRAIN), num_rows);
    assert_true(num_rows % 7 != 0);
    assert_int_equal(tr_session_num_steps(two), 3 * ((num_rows + 6) / 7));
    for (int64_t stop = 0; stop <= two->session.num_steps; stop++) {
        static seen s;
        s = (seen){0};
        for (int64_t step = 0; step < two->session.num_steps; step++)
            fill_step(step < stop ? two : three, step < stop ? 2 : 3, step, &s);
        assert_int_equal(s.total, 3 * num_rows);
        for (int64_t sample = 0; sample < 3 * num_rows; sample++)
            assert_int_equal(s.times[sample], 1);
    }
    tr_session_destroy(two);
    tr_session_destroy(three);
    tr_settings_destroy(two_settings);
    tr_settings_destroy(three_settings);
}

/* The windows of each epoch are all of them, in another order. */
static void samples_of_an_epoch_are_all_windows(void **state)
{
    tr_settings *settings;
    tr_session *session = open_rank(put_text(*state), 1, 1, &settings);
    const tri_data *data = session->session.data;
    uint64_t num = (uint64_t)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
    int same = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool came[128] = {false};
        for (uint64_t i = 0; i < num; i++) {
            uint64_t window = tri_data_window(data, TRI_SPLIT_TRAIN, epoch * num + i);
            assert_true(window < num && !came[window]);
            came[window] = true;
            same += window == tri_data_window(data, TRI_SPLIT_TRAIN, i);
        }
    }
    assert_true(same < (int)(num + num / 2));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* The mean over an epoch is the mean over all of its targets, however they fell into batches. */
static void padding_has_no_weight(void **state)
{
    const char *text = put_text(*state);
    double mean[2];
    for (int i = 0; i < 2; i++) {
        char source[300];
        snprintf(source, sizeof source, "data.source=%s", text);
        tr_settings *settings = settings_of(
            TINY, SET(source, "data.seq_len=16", i ? "train.batch=7" : "train.batch=1",
                      "train.epochs=1", "train.steps=0", "optim.lr=0", "model.dropout=0"));
        tr_session *session;
        tr_error err = {0};
        if (tr_session_create(settings, &session, &err) != TR_OK)
            fail_msg("%s", err.message);
        double sum = 0, targets = 0;
        int64_t tokens = 0;
        for (int64_t step = 0; step < tr_session_num_steps(session); step++) {
            tr_step done;
            assert_int_equal(tr_session_step(session, &done, &err), TR_OK);
            sum += done.loss * done.targets;
            targets += done.targets;
            tokens += done.tokens;
            assert_int_equal(done.epoch, step + 1 == tr_session_num_steps(session));
        }
        int64_t rows = tri_data_num_windows(session->session.data, TRI_SPLIT_TRAIN);
        assert_true(targets == (double)(rows * SEQ_LEN));
        assert_int_equal(tokens, rows * SEQ_LEN);
        mean[i] = sum / targets;
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    assert_true(mean[0] > 4 && mean[1] / mean[0] < 1 + 1e-6 && mean[1] / mean[0] > 1 - 1e-6);
}

/* ---- the record ---- */

static void the_record_names_every_sample(void **state)
{
    temp_dir *dir = *state;
    tr_settings *settings;
    tr_session *session = open_rank(put_text(dir), 2, 1, &settings);
    char where[256], path[300], line[1024];
    strcpy(where, temp_file(dir, "samples"));
    assert_int_equal(mkdir(where, 0700), 0);
    for (int r = 0; r < 4; r++) { /* what an earlier run of four ranks left */
        snprintf(path, sizeof path, "%s/rank-%d.jsonl", where, r);
        assert_int_equal(put_file(path, "old\n", 4), 0);
    }
    tr_error err = {0};
    tri_record *record;
    tri_record_config config = {.dir = where, .rank = 0, .num_ranks = 2};
    assert_int_equal(tri_record_open(&config, &session->session, &record, &err), TR_OK);
    tri_record_close(record);
    config.rank = 1;
    assert_int_equal(tri_record_open(&config, &session->session, &record, &err), TR_OK);
    assert_int_equal(num_entries(where), 2);
    session->session.dp_rank = 1;
    for (int64_t step = 0; step < 2; step++) {
        session->session.step = step;
        tri_fill_train_batch(&session->session);
        assert_int_equal(tri_record_step(record, step + 1, &err), TR_OK);
    }
    tri_record_close(record);
    snprintf(path, sizeof path, "%s/rank-1.jsonl", where);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    char expected[200];
    const tri_data *data = session->session.data;
    snprintf(expected, sizeof expected,
             "{\"step\":1,\"rank\":1,\"dp\":1,\"samples\":[4,5,6],\"windows\":[%d,%d,%d],\"time\":",
             (int)tri_data_window(data, TRI_SPLIT_TRAIN, 4),
             (int)tri_data_window(data, TRI_SPLIT_TRAIN, 5),
             (int)tri_data_window(data, TRI_SPLIT_TRAIN, 6));
    line[strlen(expected)] = 0;
    assert_string_equal(line, expected);
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, "\"samples\":[11,12,13]"));
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_in_each_epoch),
        cmocka_unit_test(ten_thousand_rows_in_batches_of_64),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(changing_dp_loses_and_repeats_nothing),
        cmocka_unit_test(samples_of_an_epoch_are_all_windows),
        cmocka_unit_test(padding_has_no_weight),
        cmocka_unit_test(the_record_names_every_sample),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
