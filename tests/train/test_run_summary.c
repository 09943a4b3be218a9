/* The summary of metrics.jsonl, and what events.jsonl tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "temp_dir.h"
#include "train/ckpt/checkpoint.h"
#include "train/log/events.h"
#include "train/log/run_summary.h"

#include <math.h>
#include <sys/time.h>

enum { MANY = 2000 }; /* lines that are worth a summary */

static void write_to(const char *dir, const char *name, const char *mode, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void add_lines(const char *dir, int from, int to, double loss)
{
    char path[400];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    for (int i = from; i <= to; i++)
        fprintf(file,
                "{\"step\":%d,\"loss\":%.9g,\"lr\":0.003,\"tokens\":%d,\"step_ms\":100.5,"
                "\"tokens_per_s\":1000.5,\"time\":%.3f,\"version\":2}\n",
                i, loss, i * 100, 1790000000 + i * 0.5);
    fclose(file);
}

static const char *new_run(temp_dir *dir, const char *name)
{
    const char *path = temp_file(dir, name);
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static tri_run_summary read_summary(const char *dir)
{
    tri_run_summary summary;
    tr_error err = {0};
    if (tri_run_summary_read(dir, &summary, &err) != TR_OK)
        fail_msg("%s", err.message);
    return summary;
}

/* The kept summary; "" where there is none. */
static void read_kept(const char *dir, char text[8192])
{
    char path[400];
    snprintf(path, sizeof path, "%s/.summary.json", dir);
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, 8191, file) : 0] = 0;
    if (file)
        fclose(file);
}

/* Changes the kept number of lines, so that it shows whether it was believed. */
static void mark_kept(const char *dir)
{
    char text[8192];
    read_kept(dir, text);
    char *at = strstr(text, "\"lines\":"); /* and four digits */
    assert_non_null(at);
    memcpy(at, "\"lines\":1777", 12);
    write_to(dir, ".summary.json", "w", text);
}

static void has_numbers(void **state)
{
    const char *dir = new_run(*state, "numbers");
    add_lines(dir, 1, 10, 4);
    write_to(dir, "metrics.jsonl", "a",
             "{\"step\":11,\"loss\":null,\"tokens\":1100,\"time\":1790000006.5}\n"
             "nonsense\n[1,2]\n{\"step\":\"x\"}\n\n"
             "{\"step\":12,\"loss\":2,\"tokens\":1200,\"eval_loss\":2.5,\"epoch\":1,"
             "\"time\":1790000006.75,\"version\":2}\n"
             "{\"step\":13,\"loss\":1,\"tok");
    tri_run_summary s = read_summary(dir);
    assert_int_equal(s.num_lines, 12);
    assert_int_equal(s.step, 12);
    assert_int_equal(s.tokens, 1200);
    assert_true(s.loss == 2 && s.eval_loss == 2.5 && s.best_eval_step == 12);
    assert_int_equal(s.epoch_step, 12);
    assert_int_equal(s.width, 1);
    assert_true(s.count[9] == 1 && s.sum[9] == 4 && s.count[10] == 0 && s.count[11] == 1);
    assert_true(fabs(s.tokens_per_s - 1000.5) < 1e-9);
    assert_true(s.slow_gap_s > 1.49 && s.slow_gap_s < 1.51);
    assert_true(s.gap_s > 0.4 && s.gap_s < 0.7);
    assert_false(tri_dir_has(dir, ".summary.json")); /* so few lines are not worth a file */
}

static void old_lines_count_from_one(void **state)
{
    const char *dir = new_run(*state, "old");
    write_to(dir, "metrics.jsonl", "w",
             "{\"step\":0,\"loss\":3,\"step_ms\":20}\n{\"step\":1,\"loss\":2,\"step_ms\":20}\n");
    tri_run_summary s = read_summary(dir);
    assert_int_equal(s.step, 2);
    assert_true(isnan(s.time) && fabs(s.gap_s - 0.02) < 1e-9);
}

static void nothing_there(void **state)
{
    tri_run_summary s = read_summary(new_run(*state, "empty"));
    assert_true(s.num_lines == 0 && s.step == 0 && isnan(s.loss));
}

static void goes_on(void **state)
{
    const char *dir = new_run(*state, "on"), *whole = new_run(*state, "whole");
    add_lines(dir, 1, MANY, 3);
    write_to(dir, "metrics.jsonl", "a", "{\"step\":20");
    read_summary(dir);
    mark_kept(dir);
    assert_int_equal(read_summary(dir).num_lines, 1777);
    write_to(dir, "metrics.jsonl", "a", "01,\"loss\":1,\"tokens\":7,\"time\":1790001001}\n");
    tri_run_summary s = read_summary(dir);
    assert_int_equal(s.num_lines, 1778);
    add_lines(whole, 1, MANY, 3);
    write_to(whole, "metrics.jsonl", "a",
             "{\"step\":2001,\"loss\":1,\"tokens\":7,\"time\":1790001001}\n");
    tri_run_summary all = read_summary(whole);
    assert_int_equal(all.num_lines, MANY + 1);
    assert_true(s.step == all.step && s.tokens == all.tokens && s.loss == all.loss &&
                s.slow_gap_s == all.slow_gap_s && s.tokens_per_s == all.tokens_per_s &&
                s.width == all.width);
    assert_memory_equal(s.count, all.count, sizeof s.count);
    assert_memory_equal(s.sum, all.sum, sizeof s.sum);
}

/* The file is another one, shorter, or changed in its place. */
static void does_not_trust(void **state)
{
    const char *dir = new_run(*state, "trust");
    char *path = tri_path_join(dir, "metrics.jsonl");
    tr_error err = {0};
    add_lines(dir, 1, MANY, 3);
    read_summary(dir);
    mark_kept(dir);
    assert_int_equal(tri_jsonl_trim(path, 1500, &err), TR_OK); /* as resuming does */
    assert_int_equal(read_summary(dir).num_lines, 1500);
    add_lines(dir, 1501, MANY, 3);
    assert_int_equal(read_summary(dir).num_lines, MANY);

    mark_kept(dir);
    assert_int_equal(truncate(path, 100000), 0); /* the same inode */
    add_lines(dir, 3000, 5000, 5);
    int64_t num_lines = read_summary(dir).num_lines;
    char *kept = tri_path_join(dir, ".summary.json");
    remove(kept);
    assert_int_equal(read_summary(dir).num_lines, num_lines);
    free(kept);

    assert_int_equal(truncate(path, 0), 0);
    add_lines(dir, 1, MANY, 3);
    read_summary(dir);
    mark_kept(dir);
    FILE *file = fopen(path, "r+"); /* one byte in the middle: the ends are the same */
    assert_non_null(file);
    fseek(file, 90000, SEEK_SET);
    fputc(' ', file);
    fclose(file);
    struct timeval times[2] = {{1790000000, 0}, {1790000001, 0}};
    assert_int_equal(utimes(path, times), 0);
    assert_true(read_summary(dir).num_lines >= MANY - 1);

    mark_kept(dir); /* another file of the same ends that has grown */
    char *text;
    size_t num_bytes;
    assert_int_equal(tri_file_read(path, &text, &num_bytes, &err), TR_OK);
    assert_int_equal(tri_file_replace(path, text, num_bytes, &err), TR_OK);
    free(text);
    add_lines(dir, MANY + 1, MANY + 1, 3);
    assert_true(read_summary(dir).num_lines >= MANY);
    free(path);
}

static void leaves_files_of_others(void **state)
{
    const char *dir = new_run(*state, "others"), *target = temp_file(*state, "target");
    add_lines(dir, 1, MANY, 3);
    write_to(dir, ".summary.json", "w", "{\"mine\":1}");
    assert_int_equal(read_summary(dir).num_lines, MANY);
    char text[8192], *path = tri_path_join(dir, ".summary.json");
    read_kept(dir, text);
    assert_string_equal(text, "{\"mine\":1}");
    remove(path);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(read_summary(dir).num_lines, MANY);
    struct stat info;
    assert_true(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    assert_false(tri_path_exists(target));
    remove(path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(read_summary(dir).num_lines, MANY);
    free(path);
}

/* One of ours that was changed by hand is read again, or made new; whatever is in it. */
static void broken_summaries(void **state)
{
    const char *dir = new_run(*state, "broken");
    static const char *const from[] = {"\"width\":", "\"bins\":[", "\"ends\":", "\"lines\":2000"};
    static const char *const to[] = {"\"width\":-", "\"bins\":[-", "\"ends\":1", "\"lines\":[]  "};
    add_lines(dir, 1, MANY, 3);
    for (int i = 0; i < 4; i++) {
        read_summary(dir);
        char text[8192], changed[9000];
        read_kept(dir, text);
        char *at = strstr(text, from[i]);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to[i],
                 at + strlen(from[i]));
        write_to(dir, ".summary.json", "w", changed);
        tri_run_summary s = read_summary(dir);
        assert_true(s.num_lines == MANY && s.width == 32);
    }
}

/* ---- events ---- */

#define START                                                                                      \
    "{\"time\":\"2026-01-31T11:00:00Z\",\"event\":\"start\",\"host\":\"node1\",\"pid\":4711,"      \
    "\"layout\":{\"dp\":4,\"tp\":2,\"pp\":1},\"version\":2}\n"

static void events_tell(void **state)
{
    const char *dir = new_run(*state, "events");
    tri_run_story story;
    assert_int_equal(tri_events_read(dir, &story, NULL), TR_OK);
    assert_true(!story.started && !story.ended && story.pid == -1);
    write_to(dir, "events.jsonl", "w",
             START "{\"event\":\"failed\",\"reason\":\"rank 2 died\"}\n"
                   "garbage\n{\"event\":\"restart\"}\n");
    assert_int_equal(tri_events_read(dir, &story, NULL), TR_OK);
    assert_true(story.started && !story.ended && story.restarts == 1);
    assert_string_equal(story.reason, "rank 2 died");
    assert_string_equal(story.host, "node1");
    assert_true(story.pid == 4711 && story.dp == 4 && story.tp == 2 && story.pp == 1);
    assert_true(story.began == 1769857200);
    write_to(dir, "events.jsonl", "a",
             "{\"event\":\"stop\",\"at_step\":5}\n"
             "{\"event\":\"end\",\"steps\":5,\"saved\":4,\"exit_code\":3}"); /* no line end */
    assert_int_equal(tri_events_read(dir, &story, NULL), TR_OK);
    assert_true(story.ended && story.asked && story.steps == 5 && story.saved == 4 &&
                story.exit_code == 3);
    write_to(dir, "events.jsonl", "a", "\n" START);
    assert_int_equal(tri_events_read(dir, &story, NULL), TR_OK);
    assert_true(story.started && !story.ended && !story.asked && story.exit_code == -1 &&
                story.reason[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_numbers),      cmocka_unit_test(old_lines_count_from_one),
        cmocka_unit_test(nothing_there),    cmocka_unit_test(goes_on),
        cmocka_unit_test(does_not_trust),   cmocka_unit_test(leaves_files_of_others),
        cmocka_unit_test(broken_summaries), cmocka_unit_test(events_tell),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
