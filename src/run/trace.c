#include "run/trace.h"
#include "base/fs.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };

struct tri_trace {
    int rank;
    char lane_name[TRI_TRACE_MAX_LANES][40]; /* "": none */
    int64_t max_events;
    atomic_int_least64_t num_added; /* also those that did not fit */
    tri_trace_event event[];
};

tr_status tri_trace_create(int rank, int64_t max_events, tri_trace **out, tr_error *err)
{
    *out = NULL;
    size_t bytes;
    if (max_events < 1 ||
        __builtin_mul_overflow((size_t)max_events, sizeof(tri_trace_event), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(tri_trace), &bytes))
        return tri_fail(err, TR_ERROR_INPUT, "a trace of %lld events cannot be kept",
                        (long long)max_events);
    tri_trace *trace = malloc(bytes);
    if (!trace)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a trace of %lld events",
                        (long long)max_events);
    /* Touched here, so that the first use of a page does not show up as time in the trace. */
    memset(trace, 0, bytes);
    trace->rank = rank;
    trace->max_events = max_events;
    atomic_init(&trace->num_added, 0);
    *out = trace;
    return TR_OK;
}

void tri_trace_destroy(tri_trace *trace)
{
    free(trace);
}

void tri_trace_name_lane(tri_trace *trace, int lane, const char *name)
{
    assert(lane >= 0 && lane < TRI_TRACE_MAX_LANES);
    snprintf(trace->lane_name[lane], sizeof trace->lane_name[lane], "%s", name);
}

void tri_trace_add(tri_trace *trace, const tri_trace_event *event)
{
    assert(event->lane >= 0 && event->lane < TRI_TRACE_MAX_LANES);
    assert(event->num_args >= 0 && event->num_args <= TRI_TRACE_MAX_ARGS);
    int64_t slot = atomic_fetch_add_explicit(&trace->num_added, 1, memory_order_relaxed);
    if (slot < trace->max_events)
        trace->event[slot] = *event;
}

const tri_trace_event *tri_trace_events(const tri_trace *trace)
{
    return trace->event;
}

int64_t tri_trace_num_events(const tri_trace *trace)
{
    int64_t added = atomic_load(&trace->num_added);
    return added < trace->max_events ? added : trace->max_events;
}

int64_t tri_trace_num_dropped(const tri_trace *trace)
{
    return atomic_load(&trace->num_added) - tri_trace_num_events(trace);
}

/* ---- writing ---- */

/* Text on its way to the file. The first failure sticks, so that callers need not look. */
typedef struct text_out {
    tri_atomic_file file;
    tr_status status;
    tr_error *err;
    size_t num;
    char buffer[1 << 14];
} text_out;

static void flush(text_out *out)
{
    if (out->status == TR_OK)
        out->status = tri_atomic_write(&out->file, out->buffer, out->num, out->err);
    out->num = 0;
}

static void put_bytes(text_out *out, const char *text, size_t num)
{
    while (num > 0) {
        if (out->num == sizeof out->buffer)
            flush(out);
        size_t room = sizeof out->buffer - out->num;
        size_t part = num < room ? num : room;
        memcpy(out->buffer + out->num, text, part);
        out->num += part;
        text += part;
        num -= part;
    }
}

/* For short pieces only: numbers and fixed text. */
__attribute__((format(printf, 2, 3))) static void put(text_out *out, const char *format, ...)
{
    char piece[256];
    va_list args;
    va_start(args, format);
    int num = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    assert(num >= 0 && (size_t)num < sizeof piece);
    put_bytes(out, piece, (size_t)num);
}

static void put_string(text_out *out, const char *text)
{
    put_bytes(out, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20)
            put(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            put(out, "\\%c", c);
        else
            put_bytes(out, text, 1);
    }
    put_bytes(out, "\"", 1);
}

static void put_number(text_out *out, double value)
{
    if (!isfinite(value)) {
        put(out, "null");
        return;
    }
    if (fabs(value) <= 0x1p53 && value == trunc(value)) {
        put(out, "%" PRId64, (int64_t)value);
        return;
    }
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", value);
    for (char *c = digits; *c; c++) /* the host program's locale may write another point */
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    put(out, "%s", digits);
}

/* The format counts in microseconds; nanoseconds become three decimals, without rounding. */
static void put_microseconds(text_out *out, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    put(out, "%s%" PRIu64 ".%03d", ns < 0 ? "-" : "", size / 1000, (int)(size % 1000));
}

static void put_event(text_out *out, const tri_trace *trace, const tri_trace_event *event)
{
    put(out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", trace->rank, event->lane);
    put_microseconds(out, event->start_ns);
    put(out, ",\"dur\":");
    put_microseconds(out, event->duration_ns);
    put(out, ",\"name\":");
    put_string(out, event->name);
    put(out, ",\"cat\":");
    put_string(out, event->category ? event->category : "");
    for (int i = 0; i < event->num_args; i++) {
        put(out, i == 0 ? ",\"args\":{" : ",");
        put_string(out, event->arg[i].key);
        put(out, ":");
        put_number(out, event->arg[i].value);
    }
    put(out, event->num_args > 0 ? "}}" : "}");
}

/* Names for the process and for the lanes that have a name or an event, in the order of lanes. */
static void put_names(text_out *out, const tri_trace *trace)
{
    bool used[TRI_TRACE_MAX_LANES] = {false};
    int64_t num = tri_trace_num_events(trace);
    for (int64_t i = 0; i < num; i++)
        used[trace->event[i].lane] = true;
    put(out,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\","
        "\"args\":{\"name\":\"rank %d\"}},\n",
        trace->rank, trace->rank);
    put(out,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\","
        "\"args\":{\"sort_index\":%d}}",
        trace->rank, trace->rank);
    for (int lane = 0; lane < TRI_TRACE_MAX_LANES; lane++) {
        if (!used[lane] && !trace->lane_name[lane][0])
            continue;
        char plain[32];
        snprintf(plain, sizeof plain, "lane %d", lane);
        put(out,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":",
            trace->rank, lane);
        put_string(out, trace->lane_name[lane][0] ? trace->lane_name[lane] : plain);
        put(out,
            "}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\","
            "\"args\":{\"sort_index\":%d}}",
            trace->rank, lane, lane);
    }
}

tr_status tri_trace_write(const tri_trace *trace, const char *path, tr_error *err)
{
    text_out *out = malloc(sizeof *out);
    if (!out)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    out->err = err;
    out->num = 0;
    out->status = tri_atomic_begin(&out->file, path, err);
    put(out,
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"version\":%d,\"dropped_events\":%" PRId64,
        VERSION, tri_trace_num_dropped(trace));
    put(out, "},\n\"traceEvents\":[\n");
    put_names(out, trace);
    int64_t num = tri_trace_num_events(trace);
    for (int64_t i = 0; i < num && out->status == TR_OK; i++)
        put_event(out, trace, &trace->event[i]);
    put(out, "\n]}\n");
    flush(out);
    tr_status status = out->status == TR_OK ? tri_atomic_commit(&out->file, err) : out->status;
    free(out);
    return status;
}
