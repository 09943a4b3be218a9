#include "run/trace/trace_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "run/trace/trace_file.h"
#include "run/trace/trace_line.h"

enum { LONGEST_LINE = 1 << 20 }; /* the first names all ranks that are missing */

static tr_status not_ours(const char *path, int64_t line, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: line %lld is no line of a trace of trireme; train again with --set "
                    "run.trace=true to have one",
                    path, (long long)line);
}

/* A whole number, or -1. */
static int64_t whole_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : -1;
}

/* The head has the two lines before the events. */
static tr_status read_head(const char *path, char *line, tri_trace_head *head, tr_error *err)
{
    json_t *root = NULL;
    size_t length = strlen(line);
    if (length < 3 || strcmp(line + length - 2, ",\n") != 0)
        return not_ours(path, 1, err);
    strcpy(line + length - 2, "}");
    tr_status status = tri_json_load(path, line, strlen(line), 0, &root, NULL, err);
    if (status != TR_OK)
        return status == TR_ERROR_INPUT ? not_ours(path, 1, err) : status;
    const json_t *other = json_object_get(root, "otherData");
    int64_t ranks = whole_of(other, "ranks");
    bool good = whole_of(other, "version") == TRI_TRACE_VERSION && ranks > 0 && ranks <= 1 << 20;
    *head = (tri_trace_head){.num_ranks = good ? (int)ranks : 0,
                             .num_missing =
                                 (int)json_array_size(json_object_get(other, "missing_ranks")),
                             .first_step = whole_of(other, "first_step"),
                             .num_steps = whole_of(other, "steps"),
                             .left_out = whole_of(other, "steps_left_out"),
                             .num_dropped = whole_of(other, "dropped_events"),
                             .clock_error_us = number_of(other, "clock_error_us"),
                             .peaks = {.flops = number_of(other, "peak_flops_per_s"),
                                       .flops8 = number_of(other, "peak_flops_per_s_float8"),
                                       .bytes = number_of(other, "peak_bytes_per_s")}};
    json_decref(root);
    return good ? TR_OK : not_ours(path, 1, err);
}

typedef struct trace_lines {
    const char *path;
    FILE *file;
    char *line;
    int64_t number; /* of the line */
    bool ended;     /* the end of the list was there */
} trace_lines;

static tr_status read_event(trace_lines *r, const tri_trace_head *head, tri_trace_line_fn tell,
                            void *context, tr_error *err)
{
    size_t length = strlen(r->line);
    tri_trace_line line;
    bool told;
    length -= length >= 2 && strcmp(r->line + length - 2, ",\n") == 0 ? 2 : 1;
    r->line[length] = 0;
    if (!tri_trace_line_parse(r->line, head->num_ranks, &line, &told))
        return not_ours(r->path, r->number, err);
    return told ? tell(context, &line, err) : TR_OK;
}

static tr_status read_lines(trace_lines *r, tri_trace_head *head, tri_trace_line_fn tell,
                            void *context, tr_error *err)
{
    for (; !r->ended && fgets(r->line, LONGEST_LINE, r->file); r->number++) {
        if (!strchr(r->line, '\n'))
            return not_ours(r->path, r->number, err);
        if (r->number == 1 && strstr(r->line, "\"otherData\":{\"version\":1,"))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: is of an earlier version of trireme, which wrote one for each "
                            "rank; train again with --set run.trace=true",
                            r->path);
        if (r->number == 1)
            TRI_TRY(read_head(r->path, r->line, head, err));
        if (r->number == 2 && strcmp(r->line, "\"traceEvents\":[\n") != 0)
            return not_ours(r->path, r->number, err);
        r->ended = strcmp(r->line, "]}\n") == 0;
        if (r->number > 2 && !r->ended)
            TRI_TRY(read_event(r, head, tell, context, err));
    }
    if (ferror(r->file))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be read: %s", r->path, strerror(errno));
    return r->ended ? TR_OK : not_ours(r->path, r->number, err);
}

tr_status tri_trace_read(const char *path, tri_trace_head *head, tri_trace_line_fn tell,
                         void *context, tr_error *err)
{
    trace_lines r = {.path = path, .file = fopen(path, "r"), .number = 1};
    if (!r.file)
        return tri_fail_open(err, path, errno);
    r.line = malloc(LONGEST_LINE);
    tr_status status = r.line ? read_lines(&r, head, tell, context, err)
                              : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to read it", path);
    free(r.line);
    fclose(r.file);
    return status;
}
