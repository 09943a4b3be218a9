#include "run/trace/trace_read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "run/trace/trace_file.h"

enum { LONGEST_LINE = 1 << 20 }; /* the first names all ranks that are missing */

static tr_status not_ours(const char *path, int64_t line, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: line %lld is no line of a trace of trireme; train again with --set "
                    "run.trace=true to have one",
                    path, (long long)line);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
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

static bool read_time(const json_t *event, const char *key, int64_t *ns)
{
    const json_t *value = json_object_get(event, key);
    double us = json_number_value(value);
    *ns = json_is_number(value) && fabs(us) < 1e15 ? llround(us * 1e3) : 0;
    return json_is_number(value) && fabs(us) < 1e15;
}

/* The head has the two lines before the events. */
static bool read_head(char *line, tri_trace_head *head)
{
    json_t *root = NULL;
    size_t length = strlen(line);
    if (length < 3 || strcmp(line + length - 2, ",\n") != 0)
        return false;
    strcpy(line + length - 2, "}");
    if (tri_json_load("", line, strlen(line), 0, &root, NULL, NULL) != TR_OK)
        return false;
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
    return good;
}

static bool is_line_good(const tri_trace_head *head, const json_t *event, tri_trace_line *line)
{
    int64_t rank = whole_of(event, "pid"), lane = whole_of(event, "tid");
    const json_t *args = json_object_get(event, "args");
    if (rank < 0 || rank >= head->num_ranks || lane < 0 || lane >= TRI_TRACE_MAX_LANES)
        return false;
    *line = (tri_trace_line){.rank = (int)rank,
                             .lane = (int)lane,
                             .name = text_of(event, "name"),
                             .category = text_of(event, "cat"),
                             .group = text_of(args, "group"),
                             .step = whole_of(args, "step"),
                             .instruction = whole_of(args, "instruction"),
                             .microbatch = whole_of(args, "microbatch"),
                             .chunk = whole_of(args, "chunk"),
                             .peer = whole_of(args, "peer"),
                             .awaited = whole_of(args, "waited_for_at"),
                             .message = whole_of(args, "message"),
                             .flops = number_of(args, "flops"),
                             .bytes = number_of(args, "bytes"),
                             .float8 = whole_of(args, "float8") == 1};
    if (strcmp(text_of(event, "ph"), "M") == 0) {
        line->name = text_of(args, "name");
        line->category = "row";
        return true;
    }
    return read_time(event, "ts", &line->start_ns) && read_time(event, "dur", &line->duration_ns) &&
           line->duration_ns >= 0;
}

/* Arrows, and places of rows, say nothing that other lines do not. */
static bool is_told(const json_t *event)
{
    const char *phase = text_of(event, "ph");
    return strcmp(phase, "X") == 0 ||
           (strcmp(phase, "M") == 0 && strcmp(text_of(event, "name"), "thread_name") == 0);
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
    json_t *event = NULL;
    tri_trace_line line;
    if (length >= 2 && strcmp(r->line + length - 2, ",\n") == 0)
        length -= 2;
    tr_status status = tri_json_load(r->path, r->line, length, 0, &event, NULL, err);
    if (status == TR_ERROR_INPUT)
        return not_ours(r->path, r->number, err);
    TRI_TRY(status);
    if (is_told(event))
        status = is_line_good(head, event, &line) ? tell(context, &line, err)
                                                  : not_ours(r->path, r->number, err);
    json_decref(event);
    return status;
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
        bool good =
            r->number == 1 ? read_head(r->line, head) : strcmp(r->line, "\"traceEvents\":[\n") == 0;
        if (r->number <= 2 && !good)
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
