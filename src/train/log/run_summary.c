#include "train/log/run_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "base/json.h"
#include "train/log/metrics_read.h"

enum {
    VERSION = 1,
    MEAN_OF = 64,          /* lines that a mean is over */
    ENDS = 256,            /* bytes at each end that tell one file from another */
    WORTH_BYTES = 64 << 10 /* of new lines that make it worth to keep a new summary */
};
#define KIND "summary of metrics.jsonl by trireme"

/* Which bytes of which file a summary is of. */
typedef struct file_mark {
    int64_t inode, changed_ns, size; /* as the file was when it was read */
    int64_t bytes;                   /* that were read: whole lines */
    int64_t ends;                    /* checksum of the first and the last of them */
} file_mark;

/* ---- adding lines ---- */

/* Twice as many steps in each bin. */
static void widen(tri_run_summary *s)
{
    for (int i = 0; i < TRI_SUMMARY_BINS; i++) {
        int64_t count = 0;
        double sum = 0;
        for (int k = 2 * i; k < 2 * i + 2 && k < TRI_SUMMARY_BINS; k++) {
            count += s->count[k];
            sum += s->sum[k];
        }
        s->count[i] = count;
        s->sum[i] = sum;
    }
    s->width *= 2;
}

static void add_loss(tri_run_summary *s, const tri_metrics_line *line)
{
    while ((line->step - 1) / s->width >= TRI_SUMMARY_BINS)
        widen(s);
    if (!isfinite(line->loss))
        return;
    s->count[(line->step - 1) / s->width]++;
    s->sum[(line->step - 1) / s->width] += line->loss;
}

/* A mean that forgets. */
static double mean_with(double mean, double value, int64_t num)
{
    if (!isfinite(value))
        return mean;
    return isnan(mean) ? value : mean + (value - mean) / (double)(num < MEAN_OF ? num : MEAN_OF);
}

/* A night between two commands is no pace. */
static void add_gap(tri_run_summary *s, const tri_metrics_line *line)
{
    const double pause_s = 600, times = 20, keeps = 0.999;
    double gap = line->time - s->time;
    if (!(gap >= 0))
        gap = line->step_ms * 1e-3;
    if (!(gap >= 0))
        return;
    gap = fmin(gap, fmax(pause_s, times * (s->gap_s > 0 ? s->gap_s : 0)));
    s->slow_gap_s = fmax(gap, isnan(s->slow_gap_s) ? 0 : s->slow_gap_s * keeps);
    s->gap_s = mean_with(s->gap_s, gap, s->num_lines);
}

static void add_line(void *context, const tri_metrics_line *line)
{
    tri_run_summary *s = context;
    if (s->num_lines++ > 0)
        add_gap(s, line);
    else
        s->first_time = line->time;
    s->step = line->step;
    s->tokens = line->tokens;
    s->loss = line->loss;
    s->time = line->time;
    s->tokens_per_s = mean_with(s->tokens_per_s, line->tokens_per_s, s->num_lines);
    add_loss(s, line);
    if (line->epoch > 0) {
        s->epoch = line->epoch;
        s->epoch_step = line->step;
    }
    if (!isfinite(line->eval_loss))
        return;
    s->eval_loss = line->eval_loss;
    s->eval_step = line->step;
    if (!(s->best_eval_loss <= line->eval_loss)) {
        s->best_eval_loss = line->eval_loss;
        s->best_eval_step = line->step;
    }
}

/* ---- on the disk ---- */

/* Every number of the file has a row. */
static const struct {
    const char *name;
    size_t at;
} counts[] =
    {
        {"lines", offsetof(tri_run_summary, num_lines)},
        {"step", offsetof(tri_run_summary, step)},
        {"tokens", offsetof(tri_run_summary, tokens)},
        {"epoch", offsetof(tri_run_summary, epoch)},
        {"epoch_step", offsetof(tri_run_summary, epoch_step)},
        {"eval_step", offsetof(tri_run_summary, eval_step)},
        {"best_eval_step", offsetof(tri_run_summary, best_eval_step)},
        {"width", offsetof(tri_run_summary, width)},
},
  numbers[] =
      {
          {"loss", offsetof(tri_run_summary, loss)},
          {"tokens_per_s", offsetof(tri_run_summary, tokens_per_s)},
          {"first_time", offsetof(tri_run_summary, first_time)},
          {"time", offsetof(tri_run_summary, time)},
          {"gap_s", offsetof(tri_run_summary, gap_s)},
          {"slow_gap_s", offsetof(tri_run_summary, slow_gap_s)},
          {"eval_loss", offsetof(tri_run_summary, eval_loss)},
          {"best_eval_loss", offsetof(tri_run_summary, best_eval_loss)},
},
  marks[] = {
      {"inode", offsetof(file_mark, inode)}, {"changed_ns", offsetof(file_mark, changed_ns)},
      {"size", offsetof(file_mark, size)},   {"bytes", offsetof(file_mark, bytes)},
      {"ends", offsetof(file_mark, ends)},
};
enum {
    NUM_COUNTS = sizeof counts / sizeof *counts,
    NUM_NUMBERS = sizeof numbers / sizeof *numbers,
    NUM_MARKS = sizeof marks / sizeof *marks
};

static bool get_integer(const json_t *value, void *out)
{
    int64_t integer = json_integer_value(value);
    memcpy(out, &integer, sizeof integer);
    return json_is_integer(value);
}

static bool get_number(const json_t *value, void *out)
{
    double number = json_is_null(value) ? NAN : json_number_value(value);
    memcpy(out, &number, sizeof number);
    return json_is_null(value) || json_is_number(value);
}

static json_t *number_json(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

/* Whether all is there, and such as this program writes it. */
static bool parse(const json_t *root, tri_run_summary *s, file_mark *mark)
{
    bool good = true;
    for (int i = 0; i < NUM_COUNTS; i++)
        good &= get_integer(json_object_get(root, counts[i].name), (char *)s + counts[i].at);
    for (int i = 0; i < NUM_NUMBERS; i++)
        good &= get_number(json_object_get(root, numbers[i].name), (char *)s + numbers[i].at);
    for (int i = 0; i < NUM_MARKS; i++)
        good &= get_integer(json_object_get(root, marks[i].name), (char *)mark + marks[i].at);
    const json_t *bins = json_object_get(root, "bins"), *sums = json_object_get(root, "sums");
    for (size_t i = 0; i < TRI_SUMMARY_BINS; i++) {
        good &= get_integer(json_array_get(bins, i), &s->count[i]) && s->count[i] >= 0 &&
                s->count[i] <= s->num_lines;
        good &= get_number(json_array_get(sums, i), &s->sum[i]);
    }
    return good && s->width > 0 && s->step >= 0 && s->step / TRI_SUMMARY_BINS <= s->width &&
           s->num_lines >= 0 && s->num_lines <= mark->bytes;
}

typedef enum summary_kept { KEPT_NONE, KEPT_OURS, KEPT_ANOTHERS } summary_kept;

/* What lies under the name of the summary; only with KEPT_OURS and *whole it was read. */
static summary_kept load(const char *path, tri_run_summary *s, file_mark *mark, bool *whole)
{
    struct stat info;
    json_t *root;
    *whole = false;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? KEPT_NONE : KEPT_ANOTHERS;
    if (!S_ISREG(info.st_mode) || tri_json_load_file(path, 0, &root, NULL, NULL) != TR_OK)
        return KEPT_ANOTHERS;
    const char *kind = json_string_value(json_object_get(root, "kind"));
    bool ours = kind && strcmp(kind, KIND) == 0;
    *whole = ours && json_integer_value(json_object_get(root, "version")) == VERSION &&
             parse(root, s, mark);
    json_decref(root);
    return ours ? KEPT_OURS : KEPT_ANOTHERS;
}

/* A summary that cannot be kept is made again. */
static void keep(const char *path, const tri_run_summary *s, const file_mark *mark)
{
    tri_json_begin();
    json_t *root = json_object(), *bins = json_array(), *sums = json_array();
    json_object_set_new(root, "kind", json_string(KIND));
    json_object_set_new(root, "version", json_integer(VERSION));
    int64_t integer;
    double number;
    for (int i = 0; i < NUM_MARKS; i++) {
        memcpy(&integer, (const char *)mark + marks[i].at, sizeof integer);
        json_object_set_new(root, marks[i].name, json_integer(integer));
    }
    for (int i = 0; i < NUM_COUNTS; i++) {
        memcpy(&integer, (const char *)s + counts[i].at, sizeof integer);
        json_object_set_new(root, counts[i].name, json_integer(integer));
    }
    for (int i = 0; i < NUM_NUMBERS; i++) {
        memcpy(&number, (const char *)s + numbers[i].at, sizeof number);
        json_object_set_new(root, numbers[i].name, number_json(number));
    }
    for (int i = 0; i < TRI_SUMMARY_BINS; i++) {
        json_array_append_new(bins, json_integer(s->count[i]));
        json_array_append_new(sums, number_json(s->sum[i]));
    }
    json_object_set_new(root, "bins", bins);
    json_object_set_new(root, "sums", sums);
    char *text = tri_json_dump(root, JSON_COMPACT);
    if (text)
        (void)tri_file_replace(path, text, strlen(text), NULL);
    free(text);
    json_decref(root);
}

/* ---- reading ---- */

/* Of the first and the last of `bytes` bytes; 0 when they cannot be read. */
static int64_t ends_of(int fd, int64_t bytes)
{
    char ends[2 * ENDS];
    size_t size = bytes < ENDS ? (size_t)bytes : ENDS;
    if (pread(fd, ends, size, 0) != (ssize_t)size ||
        pread(fd, ends + size, size, bytes - (int64_t)size) != (ssize_t)size)
        return 0;
    return (int64_t)(tri_checksum_bytes(ends, 2 * size) >> 1); /* JSON has no unsigned ones */
}

static int64_t changed_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* Whether the bytes that a mark speaks of are still there. A file that was changed and did not grow
 * was edited. */
static bool is_still(const file_mark *mark, int fd, const struct stat *info)
{
    bool same = mark->size == info->st_size;
    return mark->inode == (int64_t)info->st_ino && mark->bytes <= info->st_size &&
           mark->size <= info->st_size && (!same || mark->changed_ns == changed_ns(info)) &&
           mark->ends == ends_of(fd, mark->bytes);
}

static const tri_run_summary nothing = {.tokens = -1,
                                        .loss = NAN,
                                        .tokens_per_s = NAN,
                                        .first_time = NAN,
                                        .time = NAN,
                                        .gap_s = NAN,
                                        .slow_gap_s = NAN,
                                        .eval_loss = NAN,
                                        .best_eval_loss = NAN,
                                        .width = 1};

static tr_status read_open(int fd, const char *path, const char *kept_path, tri_run_summary *s,
                           tr_error *err)
{
    struct stat info;
    file_mark mark = {0};
    bool whole;
    if (fstat(fd, &info) != 0)
        return tri_fail_open(err, path, errno);
    if (!S_ISREG(info.st_mode))
        return tri_fail_kind(err, path, info.st_mode);
    summary_kept kept = load(kept_path, s, &mark, &whole);
    if (!whole || !is_still(&mark, fd, &info)) {
        *s = nothing;
        mark = (file_mark){0};
    }
    int64_t before = mark.bytes;
    TRI_TRY(tri_metrics_scan(fd, path, &mark.bytes, add_line, s, err));
    if (kept == KEPT_ANOTHERS || mark.bytes - before < WORTH_BYTES)
        return TR_OK;
    if (fstat(fd, &info) != 0) /* once more: it may have grown meanwhile */
        return TR_OK;
    mark.inode = (int64_t)info.st_ino;
    mark.changed_ns = changed_ns(&info);
    mark.size = info.st_size;
    mark.ends = ends_of(fd, mark.bytes);
    keep(kept_path, s, &mark);
    return TR_OK;
}

tr_status tri_run_summary_read(const char *run_dir, tri_run_summary *summary, tr_error *err)
{
    char *path = tri_path_join(run_dir, "metrics.jsonl");
    char *kept = tri_path_join(run_dir, ".summary.json");
    *summary = nothing;
    int fd = path && kept ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    tr_status status = TR_OK;
    if (!path || !kept)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", run_dir);
    else if (fd >= 0)
        status = read_open(fd, path, kept, summary, err);
    else if (errno != ENOENT)
        status = tri_fail_open(err, path, errno);
    if (fd >= 0)
        close(fd);
    free(path);
    free(kept);
    return status;
}
