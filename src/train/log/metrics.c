#include "train/log/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "train/log/row_numbers.h"

/* Version 1 counted steps from 0 and had no time. */
enum { VERSION = 2, MAX_LINE_BYTES = 1024 };

struct tri_metrics {
    int fd;
    char *path;
    bool has_failed;
};

/* Makes the file end with a whole line. */
static int mend_tail(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return -1;
    char tail[MAX_LINE_BYTES];
    off_t from = info.st_size > MAX_LINE_BYTES ? info.st_size - MAX_LINE_BYTES : 0;
    ssize_t num = pread(fd, tail, sizeof tail, from);
    if (num <= 0 || tail[num - 1] == '\n')
        return num < 0 ? -1 : 0;
    const char *newline = memrchr(tail, '\n', (size_t)num);
    size_t line = newline ? (size_t)(newline - tail) + 1 : 0;
    if (!newline && from > 0)
        return write(fd, "\n", 1) == 1 ? 0 : -1; /* no line of ours: not ours to remove */
    json_t *object;
    tr_status status = tri_json_load("", tail + line, (size_t)num - line, 0, &object, NULL, NULL);
    json_decref(object);
    if (status == TR_ERROR_RUNTIME) {
        errno = ENOMEM;
        return -1;
    }
    if (status == TR_OK) /* only the newline is missing: somebody edited the file */
        return write(fd, "\n", 1) == 1 ? 0 : -1;
    return ftruncate(fd, from + (off_t)line);
}

tr_status tri_metrics_open(const char *path, tri_metrics **out, tr_error *err)
{
    *out = NULL;
    tri_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics)
        metrics->path = strdup(path);
    if (!metrics || !metrics->path) {
        free(metrics);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    }
    metrics->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (metrics->fd < 0 || mend_tail(metrics->fd) != 0) {
        tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(errno));
        tri_metrics_close(metrics);
        return TR_ERROR_RUNTIME;
    }
    *out = metrics;
    return TR_OK;
}

void tri_metrics_close(tri_metrics *metrics)
{
    if (!metrics)
        return;
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics->path);
    free(metrics);
}

static json_t *json_of(const tri_row_number *number)
{
    if (number->whole)
        return json_integer(number->integer);
    return isfinite(number->real) ? json_real(number->real) : json_null();
}

static json_t *row_object(const tri_metrics_row *row)
{
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < tri_row_num_numbers(row); i++) {
        tri_row_number number = tri_row_number_at(row, i);
        if (number.present)
            failed |= json_object_set_new(object, number.name, json_of(&number));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* One write; a line that only partly fitted is taken back. Returns 0 or the errno. */
static int append_line(int fd, const char *line, size_t num_bytes)
{
    ssize_t written;
    do {
        written = write(fd, line, num_bytes);
    } while (written < 0 && errno == EINTR);
    if (written == (ssize_t)num_bytes)
        return 0;
    int reason = written < 0 ? errno : ENOSPC;
    struct stat info;
    if (written > 0 && fstat(fd, &info) == 0 && info.st_size >= written &&
        ftruncate(fd, info.st_size - written) != 0)
        reason = errno;
    return reason;
}

/* The time has more digits than the other numbers, so the library does not write it. Returns the
 * bytes of the whole line, 0 when it is too long. */
static size_t end_line(char line[MAX_LINE_BYTES], size_t num_bytes, double time_s)
{
    size_t room = MAX_LINE_BYTES - (num_bytes - 1); /* from the closing brace on */
    int added =
        snprintf(line + num_bytes - 1, room, ",\"time\":%.3f,\"version\":%d}\n", time_s, VERSION);
    return added > 0 && (size_t)added < room ? num_bytes - 1 + (size_t)added : 0;
}

tr_status tri_metrics_write(tri_metrics *metrics, const tri_metrics_row *row, tr_error *err)
{
    char line[MAX_LINE_BYTES];
    int reason = ENOMEM;
    tri_json_begin();
    json_t *object = row_object(row);
    if (object) {
        size_t num_bytes =
            json_dumpb(object, line, sizeof line, JSON_COMPACT | JSON_REAL_PRECISION(9));
        num_bytes = tri_json_built() ? num_bytes : 0;
        json_decref(object);
        num_bytes =
            num_bytes > 0 && num_bytes <= sizeof line ? end_line(line, num_bytes, row->time_s) : 0;
        if (num_bytes > 0)
            reason = append_line(metrics->fd, line, num_bytes);
    }
    if (reason == 0 || metrics->has_failed)
        return TR_OK;
    metrics->has_failed = true;
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: step %lld cannot be written: %s; lines will be missing until this is "
                    "mended",
                    metrics->path, (long long)row->step, strerror(reason));
}
