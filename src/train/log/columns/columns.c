#include "train/log/columns/columns_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

tr_status tri_columns_create(const char *run_dir, tri_columns **columns, tr_error *err)
{
    tri_columns *c = calloc(1, sizeof *c);
    *columns = NULL;
    if (c)
        c->path = tri_path_join(run_dir, "metrics.jsonl");
    if (!c || !c->path) {
        free(c);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its metrics", run_dir);
    }
    c->width = 1;
    *columns = c;
    return TR_OK;
}

static void clear(tri_columns *c)
{
    char *path = c->path;
    for (size_t i = 0; i < c->num_columns; i++)
        free(c->columns[i].cells);
    free(c->spans);
    *c = (tri_columns){.path = path, .width = 1};
}

void tri_columns_destroy(tri_columns *c)
{
    if (!c)
        return;
    clear(c);
    free(c->path);
    free(c);
}

size_t tri_columns_bytes(const tri_columns *c)
{
    return sizeof *c + c->capacity * (sizeof *c->spans + c->num_columns * sizeof(tri_column_cell));
}

int64_t tri_columns_num_lines(const tri_columns *c)
{
    return c->num_lines;
}

size_t tri_columns_num_keys(const tri_columns *c)
{
    return c->num_columns;
}

tri_column_key tri_columns_key(const tri_columns *c, size_t i)
{
    const tri_column *k = &c->columns[i];
    return (tri_column_key){k->name, k->whole, k->last};
}

const char *tri_columns_loads(const tri_columns *c, int64_t *step)
{
    *step = c->loads_step;
    return *c->loads ? c->loads : NULL;
}

/* ---- room ---- */

void tri_cell_join(tri_column_cell *to, const tri_column_cell *from)
{
    if (from->num > 0) {
        to->min = to->num > 0 ? fmin(to->min, from->min) : from->min;
        to->max = to->num > 0 ? fmax(to->max, from->max) : from->max;
    }
    to->sum += from->sum;
    to->num += from->num;
    to->nulls += from->nulls;
}

/* Twice as many lines in each span. */
static void widen(tri_columns *c)
{
    size_t half = (c->num + 1) / 2;
    for (size_t i = 0; i < half; i++) {
        bool pair = 2 * i + 1 < c->num;
        tri_row_span span = c->spans[2 * i];
        if (pair) {
            const tri_row_span *next = &c->spans[2 * i + 1];
            span.lines += next->lines;
            memcpy(span.last, next->last, sizeof span.last);
        }
        c->spans[i] = span;
        for (size_t k = 0; k < c->num_columns; k++) {
            tri_column_cell joined = c->columns[k].cells[2 * i];
            if (pair)
                tri_cell_join(&joined, &c->columns[k].cells[2 * i + 1]);
            c->columns[k].cells[i] = joined;
        }
    }
    for (size_t k = 0; k < c->num_columns; k++)
        memset(c->columns[k].cells + half, 0, (c->num - half) * sizeof(tri_column_cell));
    c->num = half;
    c->width *= 2;
}

static bool grow(tri_columns *c)
{
    size_t capacity = c->capacity ? 2 * c->capacity : 256;
    tri_row_span *spans = realloc(c->spans, capacity * sizeof *spans);
    if (!spans)
        return false;
    c->spans = spans;
    for (size_t k = 0; k < c->num_columns; k++) {
        tri_column_cell *cells = realloc(c->columns[k].cells, capacity * sizeof *cells);
        if (!cells)
            return false;
        memset(cells + c->capacity, 0, (capacity - c->capacity) * sizeof *cells);
        c->columns[k].cells = cells;
    }
    c->capacity = capacity;
    return true;
}

/* The span that the next line goes into. */
static tri_row_span *span_for_line(tri_columns *c)
{
    if (c->num > 0 && c->spans[c->num - 1].lines < c->width)
        return &c->spans[c->num - 1];
    if (c->num == TRI_COLUMNS_MAX_CELLS)
        widen(c);
    if (c->num > 0 && c->spans[c->num - 1].lines < c->width)
        return &c->spans[c->num - 1];
    if (c->num == c->capacity && !grow(c))
        return NULL;
    c->spans[c->num] = (tri_row_span){.lines = 0};
    return &c->spans[c->num++];
}

tri_column *tri_column_named(const tri_columns *c, const char *name, size_t length)
{
    for (size_t i = 0; i < c->num_columns; i++)
        if (strncmp(c->columns[i].name, name, length) == 0 && !c->columns[i].name[length])
            return (tri_column *)(uintptr_t)&c->columns[i];
    return NULL;
}

static tri_column *column_of(tri_columns *c, const tri_metrics_member *m)
{
    if (m->name_length == 0 || m->name_length >= TRI_KEY_BYTES)
        return NULL;
    tri_column *k = tri_column_named(c, m->name, m->name_length);
    if (k || c->num_columns == TRI_COLUMNS_MAX_KEYS)
        return k;
    k = &c->columns[c->num_columns];
    *k = (tri_column){
        .whole = true, .last = NAN, .cells = calloc(c->capacity + 1, sizeof(tri_column_cell))};
    if (!k->cells)
        return NULL;
    memcpy(k->name, m->name, m->name_length);
    c->num_columns++;
    return k;
}

/* ---- lines ---- */

bool tri_member_named(const tri_metrics_member *m, const char *name)
{
    return strncmp(m->name, name, m->name_length) == 0 && !name[m->name_length];
}

static double number_of(const tri_metrics_member *members, size_t num, const char *name)
{
    for (size_t i = 0; i < num; i++)
        if (tri_member_named(&members[i], name))
            return members[i].real;
    return NAN;
}

/* A line's place on every axis. False: it is not the line of a step. */
bool tri_line_places(const tri_metrics_member *members, size_t num, double *hours,
                     double x[TRI_COLUMNS_NUM_X])
{
    double step_ms = number_of(members, num, "step_ms");
    x[TRI_COLUMNS_STEP] = number_of(members, num, "step");
    x[TRI_COLUMNS_TOKENS] = number_of(members, num, "tokens");
    x[TRI_COLUMNS_TIME] = number_of(members, num, "time");
    if (isnan(x[TRI_COLUMNS_TIME]))
        x[TRI_COLUMNS_STEP]++; /* version 1 counted from 0 */
    if (!(x[TRI_COLUMNS_STEP] >= 1))
        return false;
    *hours += step_ms > 0 && isfinite(step_ms) ? step_ms / 3.6e6 : 0;
    x[TRI_COLUMNS_HOURS] = *hours;
    return true;
}

void tri_cell_add(tri_column_cell *cell, double value)
{
    if (!isfinite(value)) {
        cell->nulls++;
        return;
    }
    cell->min = cell->num > 0 ? fmin(cell->min, value) : value;
    cell->max = cell->num > 0 ? fmax(cell->max, value) : value;
    cell->sum += value;
    cell->num++;
}

static void add_member(tri_columns *c, const tri_metrics_member *m, double step)
{
    if (m->kind == TRI_MEMBER_LIST && tri_member_named(m, "layer_loads") &&
        m->text_length < TRI_LOADS_BYTES) {
        memcpy(c->loads, m->text, m->text_length);
        c->loads[m->text_length] = 0;
        c->loads_step = (int64_t)step;
    }
    if ((m->kind != TRI_MEMBER_NUMBER && m->kind != TRI_MEMBER_NULL) ||
        tri_member_named(m, "step") || tri_member_named(m, "time") ||
        tri_member_named(m, "version"))
        return;
    tri_column *k = column_of(c, m);
    if (!k)
        return;
    k->whole &= m->is_whole || m->kind == TRI_MEMBER_NULL;
    k->last = m->real;
    tri_cell_add(&k->cells[c->num - 1], m->real);
}

/* The line that is being added. */
typedef struct adding {
    tri_columns *columns;
    int64_t at;
    bool failed;
} adding;

static void add_line(void *context, const tri_metrics_member *members, size_t num)
{
    adding *a = context;
    tri_columns *c = a->columns;
    double x[TRI_COLUMNS_NUM_X];
    if (!tri_line_places(members, num, &c->hours, x))
        return;
    tri_row_span *span = span_for_line(c);
    if (!span) {
        a->failed = true;
        return;
    }
    if (span->lines++ == 0) {
        span->at = a->at;
        memcpy(span->first, x, sizeof x);
    }
    memcpy(span->last, x, sizeof x);
    c->num_lines++;
    for (size_t i = 0; i < num; i++)
        add_member(c, &members[i], x[TRI_COLUMNS_STEP]);
}

static tr_status visit_line(void *context, const char *text, size_t num_bytes, int64_t at,
                            tr_error *err)
{
    adding *a = context;
    a->at = at;
    TRI_TRY(tri_metrics_members(text, num_bytes, add_line, a, err));
    return a->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the metrics of a run")
                     : TR_OK;
}

/* ---- the file ---- */

/* A file that can be read and is no pipe or device; -1. */
static int open_file(const char *path, struct stat *info)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, info) != 0 || !S_ISREG(info->st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool is_same_file(const tri_columns *c, int fd, const struct stat *info)
{
    char mark[TRI_MARK_BYTES];
    return (int64_t)info->st_ino == c->inode && info->st_size >= c->offset &&
           pread(fd, mark, c->num_marked, c->offset - (int64_t)c->num_marked) ==
               (ssize_t)c->num_marked &&
           memcmp(mark, c->mark, c->num_marked) == 0;
}

static void set_mark(tri_columns *c, int fd)
{
    size_t num = c->offset < TRI_MARK_BYTES ? (size_t)c->offset : TRI_MARK_BYTES;
    ssize_t got = pread(fd, c->mark, num, c->offset - (int64_t)num);
    c->num_marked = got == (ssize_t)num ? num : 0;
}

tr_status tri_columns_update(tri_columns *c, tr_error *err)
{
    struct stat info;
    int fd = open_file(c->path, &info);
    if (fd < 0) {
        clear(c);
        return TR_OK;
    }
    if (!is_same_file(c, fd, &info))
        clear(c);
    c->inode = (int64_t)info.st_ino;
    adding a = {.columns = c};
    tr_status status = TR_OK;
    if (info.st_size > c->offset) {
        status = tri_lines_scan(fd, c->path, &c->offset, visit_line, &a, err);
        set_mark(c, fd);
    }
    close(fd);
    if (status != TR_OK) /* half a line may have been added */
        clear(c);
    return status;
}

int tri_columns_reopen(const tri_columns *c)
{
    struct stat info;
    int fd = open_file(c->path, &info);
    if (fd >= 0 && !is_same_file(c, fd, &info)) {
        close(fd);
        fd = -1;
    }
    return fd;
}
