/* metrics.jsonl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "temp_dir.h"
#include "train/ckpt/checkpoint.h"
#include "train/log/metrics.h"
#include "train/log/text/number_text.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static tri_metrics_row row_of(int64_t step)
{
    return (tri_metrics_row){.step = step,
                             .loss = (float)(4.0 / 3 + (double)step),
                             .grad_norm = 0.1f,
                             .lr = 3e-3,
                             .tokens = 512 * (step + 1),
                             .step_ms = 12.345,
                             .tokens_per_s = 41474.3,
                             .mem_peak_bytes = 123456789012,
                             .slowest_rank = 3,
                             .slowest_ms = 12.3,
                             .slow_rank = -1};
}

/* The objects of a file; every line must be one. */
static json_t *read_lines(const char *path)
{
    json_t *lines = json_array();
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    char line[4096];
    while (fgets(line, sizeof line, stream)) {
        assert_int_equal(line[strlen(line) - 1], '\n');
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(object));
        json_array_append_new(lines, object);
    }
    fclose(stream);
    return lines;
}

static const json_t *value_of(const json_t *lines, size_t line, const char *key)
{
    return json_object_get(json_array_get(lines, line), key);
}

static void writes_and_appends(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "append.jsonl");
    tr_error err;
    for (int64_t run = 0; run < 2; run++) {
        tri_metrics *metrics;
        assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
        for (int64_t step = 10 * run; step < 10 * run + 10; step++) {
            tri_metrics_row row = row_of(step);
            row.has_eval = step == 9;
            row.eval_loss = 2.5;
            row.epoch = step % 5 == 4 ? step / 5 + 1 : 0;
            row.epoch_loss = 0.5 * (double)row.epoch;
            assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
        }
        tri_metrics_close(metrics);
    }
    json_t *lines = read_lines(path);
    assert_int_equal(json_array_size(lines), 20);
    for (size_t i = 0; i < 20; i++) {
        tri_metrics_row row = row_of((int64_t)i);
        assert_int_equal(json_integer_value(value_of(lines, i, "step")), row.step);
        assert_int_equal(json_integer_value(value_of(lines, i, "tokens")), row.tokens);
        assert_int_equal(json_integer_value(value_of(lines, i, "mem_peak_bytes")),
                         row.mem_peak_bytes);
        assert_int_equal(json_integer_value(value_of(lines, i, "slowest_rank")), 3);
        assert_true((float)json_real_value(value_of(lines, i, "loss")) == (float)row.loss);
        assert_true((float)json_real_value(value_of(lines, i, "grad_norm")) == 0.1f);
        assert_true(json_real_value(value_of(lines, i, "lr")) == 3e-3);
        assert_true(json_real_value(value_of(lines, i, "step_ms")) == 12.345);
        assert_true(json_real_value(value_of(lines, i, "tokens_per_s")) == 41474.3);
        assert_true(json_real_value(value_of(lines, i, "slowest_ms")) == 12.3);
        assert_int_equal(value_of(lines, i, "eval_loss") != NULL, i == 9);
        assert_int_equal(value_of(lines, i, "epoch") != NULL, i % 5 == 4);
        assert_int_equal(value_of(lines, i, "epoch_loss") != NULL, i % 5 == 4);
        if (i % 5 == 4) {
            assert_int_equal(json_integer_value(value_of(lines, i, "epoch")), i / 5 + 1);
            assert_true(json_real_value(value_of(lines, i, "epoch_loss")) ==
                        0.5 * (double)(i / 5 + 1));
        }
        assert_true(json_is_integer(value_of(lines, i, "version")));
    }
    json_decref(lines);
}

static void losses_round_trip(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "floats.jsonl");
    tr_error err;
    tri_metrics *metrics;
    assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
    uint32_t bits[500];
    for (uint32_t i = 0; i < 500; i++) {
        bits[i] = (i * 2654435761u) & 0xff7fffff; /* finite, from tiny to huge */
        if ((bits[i] >> 23 & 0xff) == 0xff)
            bits[i] = 1;
        float loss;
        memcpy(&loss, &bits[i], sizeof loss);
        tri_metrics_row row = row_of(i);
        row.loss = loss;
        assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
    }
    tri_metrics_close(metrics);
    json_t *lines = read_lines(path);
    assert_int_equal(json_array_size(lines), 500);
    for (size_t i = 0; i < 500; i++) {
        float loss = (float)json_real_value(value_of(lines, i, "loss"));
        assert_memory_equal(&loss, &bits[i], sizeof loss);
    }
    json_decref(lines);
}

static void what_is_not_finite_is_null(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "null.jsonl");
    tr_error err;
    tri_metrics *metrics;
    assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
    tri_metrics_row row = row_of(0);
    row.loss = NAN;
    row.grad_norm = INFINITY;
    row.tokens_per_s = -INFINITY;
    row.has_eval = true;
    row.eval_loss = NAN;
    assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
    tri_metrics_close(metrics);
    json_t *lines = read_lines(path);
    static const char *const key[] = {"loss", "grad_norm", "tokens_per_s", "eval_loss"};
    for (int i = 0; i < 4; i++)
        assert_true(json_is_null(value_of(lines, 0, key[i])));
    json_decref(lines);
}

/* What a crash left of its last line goes; a line that only lacks its end stays. */
static void mends_the_last_line(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "mend.jsonl");
    static const char *const before[] = {"{\"step\":0}\n{\"step\":1,\"lo", "{\"st",
                                         "{\"step\":0}\n{\"step\":1}", "", "{\"step\":0}\n"};
    static const size_t kept[] = {1, 0, 2, 0, 1};
    for (int i = 0; i < 5; i++) {
        tr_error err;
        assert_int_equal(put_file(path, before[i], strlen(before[i])), 0);
        tri_metrics *metrics;
        assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
        tri_metrics_row row = row_of(7);
        assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
        tri_metrics_close(metrics);
        json_t *lines = read_lines(path);
        assert_int_equal(json_array_size(lines), kept[i] + 1);
        assert_int_equal(json_integer_value(value_of(lines, kept[i], "step")), 7);
        json_decref(lines);
    }
}

/* A run directory of version 0.1.0, whose lines count from 0 and have no time, is continued: no
 * step is lost, and none stands in it twice. */
static void lines_of_version_1_count_from_0(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "old.jsonl");
    const char old[] = "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
    tr_error err;
    assert_int_equal(put_file(path, old, sizeof old - 1), 0);
    for (int64_t done = 3; done <= 5; done += 2) { /* its checkpoint; later, one of ours */
        assert_int_equal(tri_jsonl_trim(path, done, &err), TR_OK);
        tri_metrics *metrics;
        assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
        for (int64_t step = done + 1; step <= 6; step++) {
            tri_metrics_row row = row_of(step);
            assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
        }
        tri_metrics_close(metrics);
        json_t *lines = read_lines(path);
        assert_int_equal(json_array_size(lines), 6);
        for (size_t i = 0; i < 6; i++) {
            bool timed = value_of(lines, i, "time") != NULL;
            assert_int_equal(timed, i >= 3);
            assert_int_equal(json_integer_value(value_of(lines, i, "step")), timed ? i + 1 : i);
        }
        json_decref(lines);
    }
}

static void a_line_tells_when(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "when.jsonl");
    tr_error err;
    tri_metrics *metrics;
    assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
    tri_metrics_row row = row_of(1);
    row.time_s = 1790000000.1234;
    assert_int_equal(tri_metrics_write(metrics, &row, &err), TR_OK);
    tri_metrics_close(metrics);
    json_t *lines = read_lines(path);
    double when = json_real_value(value_of(lines, 0, "time"));
    assert_true(fabs(when - 1790000000.123) < 1e-5);
    json_decref(lines);
}

static void a_full_disk_is_reported_once(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "full.jsonl");
    tr_error err;
    tri_metrics *metrics;
    assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_OK);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1000; /* four lines and a part */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int num_errors = 0;
    for (int64_t step = 0; step < 20; step++) {
        tri_metrics_row row = row_of(step);
        num_errors += tri_metrics_write(metrics, &row, &err) != TR_OK;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    tri_metrics_row last = row_of(20); /* there is room again */
    assert_int_equal(tri_metrics_write(metrics, &last, NULL), TR_OK);
    tri_metrics_close(metrics);

    assert_int_equal(num_errors, 1);
    assert_int_equal(err.status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, path));
    json_t *lines = read_lines(path);
    size_t num = json_array_size(lines);
    assert_in_range(num, 3, 8);
    for (size_t i = 0; i + 1 < num; i++)
        assert_int_equal(json_integer_value(value_of(lines, i, "step")), i);
    assert_int_equal(json_integer_value(value_of(lines, num - 1, "step")), 20);
    json_decref(lines);
}

static void a_missing_directory_is_an_error(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "none/metrics.jsonl");
    tr_error err;
    tri_metrics *metrics;
    assert_int_equal(tri_metrics_open(path, &metrics, &err), TR_ERROR_RUNTIME);
    assert_null(metrics);
    assert_non_null(strstr(err.message, path));
    tri_metrics_close(NULL);
}

/* Digits are printf's, whatever their number and wherever the point is. */
static void numbers_are_as_printf_writes_them(void **state)
{
    (void)state;
    size_t num_short = 0;
    for (uint64_t i = 0; i < 300000; i++) {
        uint32_t word[4];
        char text[64], wanted[64];
        tri_philox(7, i, 0, 0, word);
        double x = exp(word[0] / 4294967296.0 * 32 - 10) * (word[1] & 1 ? -1 : 1);
        if (i % 3 == 0)
            x = (double)(float)x;
        if (i % 3 == 1)
            x = (double)(word[0] % 2000000) / 1024;
        snprintf(wanted, sizeof wanted, "%.9g", x);
        if (tri_short_text(x, text)) {
            assert_string_equal(text, wanted);
            num_short++;
        }
        snprintf(wanted, sizeof wanted, "%.3f", fabs(x));
        if (tri_thousandths_text(fabs(x), text))
            assert_string_equal(text, wanted);
        int64_t whole = (int64_t)((uint64_t)word[2] << 32 | word[3]) >> (word[1] % 64);
        snprintf(wanted, sizeof wanted, "%lld", (long long)whole);
        assert_string_equal(tri_whole_text(whole, text), wanted);
    }
    assert_true(num_short > 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_as_printf_writes_them),
        cmocka_unit_test(writes_and_appends),
        cmocka_unit_test(losses_round_trip),
        cmocka_unit_test(what_is_not_finite_is_null),
        cmocka_unit_test(mends_the_last_line),
        cmocka_unit_test(lines_of_version_1_count_from_0),
        cmocka_unit_test(a_line_tells_when),
        cmocka_unit_test(a_full_disk_is_reported_once),
        cmocka_unit_test(a_missing_directory_is_an_error),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
