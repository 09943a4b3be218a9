#include "train/log/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "train/log/row_numbers.h"

/* Version 1 counted steps from 0 and had no time. */
enum { VERSION = 2, MAX_LINE_BYTES = 4096 };

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

typedef struct metrics_line {
    char chars[MAX_LINE_BYTES];
    size_t length;
    bool too_long;
} metrics_line;

static void add(metrics_line *l, const char *text)
{
    size_t length = strlen(text);
    l->too_long |= length > sizeof l->chars - l->length;
    if (l->too_long)
        return;
    memcpy(l->chars + l->length, text, length);
    l->length += length;
}

static void add_name(metrics_line *l, const char *name)
{
    add(l, "\"");
    for (const char *c = name; *c; c++) {
        char text[8] = {*c};
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            snprintf(text, sizeof text, "\\u%04x", *c);
        add(l, text);
    }
    add(l, "\":");
}

/* In the metrics alone: other files have numbers, and no lists. */
static void add_loads(metrics_line *l, const tri_metrics_row *row)
{
    char text[32];
    for (size_t i = 0; i < row->num_layer_loads; i++) {
        snprintf(text, sizeof text, "%s%.4g", i ? "," : "\"layer_loads\":[",
                 (double)row->layer_loads[i]);
        add(l, text);
    }
    if (row->num_layer_loads > 0)
        add(l, "],");
}

/* By hand: this runs in every step, and objects of a library take several times as long. */
static void make_line(metrics_line *l, const tri_metrics_row *row)
{
    static const tri_odd_numbers odd = {"null", "null", "null"};
    char text[TRI_NUMBER_BYTES];
    l->length = 0;
    l->too_long = false;
    add(l, "{");
    for (size_t i = 0; i < tri_row_num_numbers(row); i++) {
        tri_row_number number = tri_row_number_at(row, i);
        if (!number.present)
            continue;
        add_name(l, number.name);
        add(l, tri_number_text(&number, &odd, text));
        add(l, ",");
    }
    add_loads(l, row);
    add(l, "\"time\":");
    add(l, tri_time_text(row->time_s, text));
    snprintf(text, sizeof text, ",\"version\":%d}\n", VERSION);
    add(l, text);
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

tr_status tri_metrics_write(tri_metrics *metrics, const tri_metrics_row *row, tr_error *err)
{
    metrics_line l;
    make_line(&l, row);
    int reason = l.too_long ? EMSGSIZE : append_line(metrics->fd, l.chars, l.length);
    if (reason == 0 || metrics->has_failed)
        return TR_OK;
    metrics->has_failed = true;
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: step %lld cannot be written: %s; lines will be missing until this is "
                    "mended",
                    metrics->path, (long long)row->step, strerror(reason));
}
