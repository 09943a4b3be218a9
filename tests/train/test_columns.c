/* metrics.jsonl as columns: every number of a short run, bounded memory for a long one, the lines
 * themselves where somebody looks closely, and files that were cut or replaced meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "temp_dir.h"
#include "train/log/columns/columns.h"

static temp_dir *work;

/* Line i of a made-up run; the loss is null at every 100th, held-out losses are at every 10th. */
static void add_lines(FILE *file, int64_t from, int64_t to)
{
    for (int64_t i = from; i <= to; i++) {
        char loss[32] = "null", eval[48] = "";
        if (i % 100 != 0)
            snprintf(loss, sizeof loss, "%lld", (long long)i);
        if (i % 10 == 0)
            snprintf(eval, sizeof eval, "\"eval_loss\":%lld.5,", (long long)i);
        fprintf(file,
                "{\"step\":%lld,\"loss\":%s,\"tokens\":%lld,\"step_ms\":3600.0,%s\"layer_loads\":"
                "[1.5,%lld],\"time\":%lld.250,\"version\":2}\n",
                (long long)i, loss, (long long)(i * 512), eval, (long long)i,
                (long long)(1790000000 + i));
    }
}

static void write_lines(const char *mode, int64_t from, int64_t to)
{
    FILE *file = fopen(temp_file(work, "metrics.jsonl"), mode);
    assert_non_null(file);
    add_lines(file, from, to);
    assert_int_equal(fclose(file), 0);
}

static tri_columns *open_columns(void)
{
    tri_columns *columns;
    assert_int_equal(tri_columns_create(work->path, &columns, NULL), TR_OK);
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    return columns;
}

static tri_columns_curve curve_of(const tri_columns *columns, const char *key, tri_columns_x x,
                                  double from, double to, size_t points)
{
    tri_columns_curve curve;
    assert_int_equal(tri_columns_curve_of(columns, key, x, from, to, points, &curve, NULL), TR_OK);
    return curve;
}

static void test_short(void **state)
{
    int64_t step;
    (void)state;
    write_lines("w", 1, 250);
    tri_columns *columns = open_columns();
    assert_int_equal(tri_columns_num_lines(columns), 250);
    tri_columns_curve c = curve_of(columns, "loss", TRI_COLUMNS_STEP, -INFINITY, INFINITY, 1000);
    assert_int_equal(c.num, 248);
    assert_int_equal(c.missing, 2);
    assert_true(c.first == 1 && c.last == 250);
    for (size_t i = 0; i < c.num; i++)
        assert_true(c.points[i].x == c.points[i].mean && c.points[i].min == c.points[i].max);
    free(c.points);
    c = curve_of(columns, "eval_loss", TRI_COLUMNS_TOKENS, 512 * 100, 512 * 200, 1000);
    assert_int_equal(c.num, 11);
    assert_true(c.points[0].x == 51200 && c.points[0].mean == 100.5);
    free(c.points);
    c = curve_of(columns, "loss", TRI_COLUMNS_HOURS, -INFINITY, INFINITY, 1);
    assert_true(fabs(c.last - 0.25) < 1e-9);
    free(c.points);
    c = curve_of(columns, "loss", TRI_COLUMNS_TIME, 1790000011, 1790000021, 2);
    assert_true(c.num >= 2 && c.points[0].min == 11 && c.points[c.num - 1].max == 20);
    free(c.points);
    assert_string_equal(tri_columns_loads(columns, &step), "[1.5,250]");
    assert_int_equal(step, 250);
    assert_int_equal(tri_columns_curve_of(columns, "time", TRI_COLUMNS_STEP, 0, 1, 1, &c, NULL),
                     TR_ERROR_INPUT);
    assert_int_equal(tri_columns_num_keys(columns), 4);
    tri_columns_destroy(columns);
}

/* Half a line is not there yet; the rest of it makes it whole. */
static void test_growing(void **state)
{
    (void)state;
    write_lines("w", 1, 10);
    tri_columns *columns = open_columns();
    FILE *file = fopen(temp_file(work, "metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"step\":11,\"loss\":1", file);
    fflush(file);
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    assert_int_equal(tri_columns_num_lines(columns), 10);
    fputs("1,\"time\":1.5}\nno line\n{\"step\":0}\n{\"step\":12,\"loss\":\"text\",\"time\":1.5}\n",
          file);
    fclose(file);
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    assert_int_equal(tri_columns_num_lines(columns), 13); /* one of version 1 */
    tri_columns_curve c = curve_of(columns, "loss", TRI_COLUMNS_STEP, 11, 11, 10);
    assert_true(c.num == 1 && c.points[0].mean == 11);
    free(c.points);
    write_lines("w", 1, 5); /* cut: begun anew */
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    assert_int_equal(tri_columns_num_lines(columns), 5);
    assert_int_equal(rename(temp_file(work, "metrics.jsonl"), temp_file(work, "old")), 0);
    write_lines("w", 1, 300); /* another file */
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    assert_int_equal(tri_columns_num_lines(columns), 300);
    assert_int_equal(unlink(temp_file(work, "metrics.jsonl")), 0);
    assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
    assert_int_equal(tri_columns_num_lines(columns), 0);
    tri_columns_destroy(columns);
}

/* More lines than cells: the sums stay right, memory stays, and a close look is exact. */
static void test_long(void **state)
{
    enum { LINES = 150000, PIECE = 25000 };
    (void)state;
    write_lines("w", 1, PIECE);
    tri_columns *columns = open_columns();
    size_t most = 0;
    for (int64_t at = PIECE; at < LINES; at += PIECE) {
        write_lines("a", at + 1, at + PIECE);
        assert_int_equal(tri_columns_update(columns, NULL), TR_OK);
        size_t bytes = tri_columns_bytes(columns);
        assert_true(most == 0 || bytes == most || at == PIECE);
        most = bytes;
    }
    assert_int_equal(tri_columns_num_lines(columns), LINES);
    assert_true(most < (size_t)TRI_COLUMNS_MAX_CELLS * 400);
    tri_columns_curve c = curve_of(columns, "loss", TRI_COLUMNS_STEP, -INFINITY, INFINITY, 400);
    int64_t num = 0;
    double sum = 0, wanted = 0;
    assert_true(c.num > 390 && c.num <= 401);
    for (size_t i = 0; i < c.num; i++) {
        num += c.points[i].num;
        sum += c.points[i].mean * (double)c.points[i].num;
        assert_true(i == 0 || c.points[i].min > c.points[i - 1].max);
    }
    for (int64_t i = 1; i <= LINES; i++)
        wanted += i % 100 ? (double)i : 0;
    assert_int_equal(num, LINES - LINES / 100);
    assert_int_equal(c.missing, LINES / 100);
    assert_true(fabs(sum - wanted) < 1e-6 * wanted);
    free(c.points);
    c = curve_of(columns, "loss", TRI_COLUMNS_STEP, 90000, 90120, 400);
    assert_int_equal(c.num, 119); /* 90000 and 90100 are null */
    assert_int_equal(c.missing, 2);
    assert_true(c.points[0].x == 90001 && c.points[118].x == 90120);
    free(c.points);
    c = curve_of(columns, "loss", TRI_COLUMNS_HOURS, 90.0005, 90.0105, 400);
    assert_int_equal(c.num, 10);
    assert_true(c.points[0].mean == 90001);
    free(c.points);
    tri_columns_destroy(columns);
}

static int setup(void **state)
{
    if (temp_dir_setup(state) != 0)
        return -1;
    work = *state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, setup, temp_dir_teardown);
}
