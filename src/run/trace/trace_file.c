#include "run/trace/trace_file.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"

/* Text on its way to the file. The first failure sticks, so that callers need not look. */
typedef struct text_out {
    tri_atomic_file file;
    tr_status status;
    tr_error *err;
    size_t num;
    char buffer[1 << 16];
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

/* ---- the lines of a rank ---- */

static void put_arg(text_out *out, const char *key, double value)
{
    put(out, ",\"%s\":", key);
    put_number(out, value);
}

static void put_args(text_out *out, const tri_trace_event *event)
{
    const tri_trace_label *label = event->label;
    double us = 1e-3 * (double)(event->duration_ns + 1);
    put(out, ",\"args\":{\"step\":%" PRId64, event->step);
    if (label->instruction > 0)
        put_arg(out, "instruction", (double)(label->instruction - 1));
    if (event->microbatch > 0)
        put_arg(out, "microbatch", event->microbatch - 1);
    if (label->chunk > 0)
        put_arg(out, "chunk", (double)(label->chunk - 1));
    if (label->group) {
        put(out, ",\"group\":");
        put_string(out, label->group);
    }
    if (label->peer > 0)
        put_arg(out, "peer", label->peer - 1);
    if (event->message)
        put_arg(out, "message", (double)event->message);
    if (event->awaited > 0)
        put_arg(out, "waited_for_at", event->awaited - 1);
    if (label->bytes > 0)
        put_arg(out, "bytes", label->bytes);
    if (label->flops > 0)
        put_arg(out, "flops", label->flops);
    if (label->float8)
        put_arg(out, "float8", 1);
    if (label->flops > 0 && !event->waits)
        put_arg(out, "gflop_per_s", label->flops * 1e-3 / us);
    if (label->bytes > 0 && !event->waits)
        put_arg(out, "gbyte_per_s", label->bytes * 1e-3 / us);
    put(out, "}");
}

/* Half an arrow: from the beginning of what sends to the end of what receives. */
static void put_flow(text_out *out, const tri_trace_event *event, int rank, int64_t start_ns)
{
    bool sends = event->label->flow == TRI_FLOW_SENDS;
    int64_t last = event->duration_ns > 0 ? event->duration_ns - 1 : 0;
    put(out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", sends ? "s" : "f\",\"bp\":\"e", rank,
        event->lane);
    put_microseconds(out, sends ? start_ns : start_ns + last);
    put(out, ",\"id\":%" PRIu64 ",\"name\":\"message\",\"cat\":\"message\"},\n", event->message);
}

static void put_event(text_out *out, const tri_trace_about *about, const tri_trace_event *event)
{
    int64_t start = tri_trace_aligned(&about->clock, event->start_ns);
    put(out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", about->rank, event->lane);
    put_microseconds(out, start);
    put(out, ",\"dur\":");
    put_microseconds(out, event->duration_ns);
    put(out, ",\"name\":");
    put_string(out, event->label->name);
    put(out, ",\"cat\":");
    put_string(out, event->waits ? "wait" : event->label->category);
    put_args(out, event);
    put(out, "},\n");
    if (event->label->flow != TRI_FLOW_NONE && event->message && !event->waits)
        put_flow(out, event, about->rank, start);
}

static void put_name(text_out *out, const char *what, int rank, int lane, const char *name,
                     int order)
{
    put(out, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_name\",\"args\":{\"name\":", rank,
        lane, what);
    put_string(out, name);
    put(out,
        "}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_sort_index\",\"args\":"
        "{\"sort_index\":%d}},\n",
        rank, lane, what, order);
}

/* Names for the process and for the lanes that have a name or an event, in the order of lanes. */
static void put_names(text_out *out, const tri_trace *trace)
{
    bool used[TRI_TRACE_MAX_LANES] = {false};
    int64_t num = tri_trace_num_events(trace);
    int rank = tri_trace_about_read(trace)->rank;
    char name[TRI_TRACE_LANE_NAME];
    for (int64_t i = 0; i < num; i++)
        used[tri_trace_events(trace)[i].lane] = true;
    snprintf(name, sizeof name, "rank %d", rank);
    put_name(out, "process", rank, 0, name, rank);
    for (int lane = 0; lane < TRI_TRACE_MAX_LANES; lane++) {
        const char *given = tri_trace_lane_name(trace, lane);
        if (!used[lane] && !*given)
            continue;
        snprintf(name, sizeof name, "lane %d", lane);
        put_name(out, "thread", rank, lane, *given ? given : name,
                 tri_trace_lane_order(trace, lane));
    }
}

static void put_rank(text_out *out, const tri_trace *trace)
{
    int64_t num = tri_trace_num_events(trace);
    put_names(out, trace);
    for (int64_t i = 0; i < num && out->status == TR_OK; i++)
        put_event(out, tri_trace_about_read(trace), &tri_trace_events(trace)[i]);
}

/* ---- parts ---- */

/* What the first line of a part says. */
typedef struct part {
    char *path;
    int rank, num_ranks;
    int64_t first_step, num_steps, left_out, dropped, clock_error_ns;
    tri_trace_peaks peaks;
    long begin; /* of the events, in the file */
} part;

typedef struct part_list {
    part *parts;
    size_t num;
} part_list;

/* The number in "trace-3.part", or -1. */
static int rank_of_name(const char *name)
{
    int rank = -1, end = 0;
    return sscanf(name, "trace-%d.part%n", &rank, &end) == 1 && end > 0 && !name[end] ? rank : -1;
}

static part about_to_part(const tri_trace *trace)
{
    const tri_trace_about *about = tri_trace_about_read(trace);
    return (part){.rank = about->rank,
                  .num_ranks = about->num_ranks,
                  .first_step = about->first_step,
                  .num_steps = about->num_steps,
                  .left_out = about->left_out,
                  .dropped = tri_trace_num_dropped(trace),
                  .peaks = about->peaks,
                  .clock_error_ns = about->clock.error_ns};
}

static text_out *open_out(const char *path, tr_error *err)
{
    text_out *out = malloc(sizeof *out);
    if (!out) {
        tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
        return NULL;
    }
    out->err = err;
    out->num = 0;
    out->status = tri_atomic_begin(&out->file, path, err);
    return out;
}

static tr_status close_out(text_out *out)
{
    flush(out);
    tr_status status = out->status == TR_OK ? tri_atomic_commit(&out->file, out->err) : out->status;
    tri_atomic_abort(&out->file);
    free(out);
    return status;
}

tr_status tri_trace_write_part(const tri_trace *trace, const char *dir, tr_error *err)
{
    char path[4200];
    part about = about_to_part(trace);
    snprintf(path, sizeof path, "%s/trace-%d.part", dir, about.rank);
    text_out *out = open_out(path, err);
    if (!out)
        return TR_ERROR_RUNTIME;
    put(out, "{\"version\":%d,\"rank\":%d,\"ranks\":%d,\"first_step\":%" PRId64, TRI_TRACE_VERSION,
        about.rank, about.num_ranks, about.first_step);
    put(out, ",\"steps\":%" PRId64 ",\"left_out\":%" PRId64 ",\"dropped\":%" PRId64,
        about.num_steps, about.left_out, about.dropped);
    put(out, ",\"clock_error_ns\":%" PRId64 "}\n", about.clock_error_ns);
    put_rank(out, trace);
    return close_out(out);
}

/* False for what is none: it is left where it is. */
static bool read_part(part *p)
{
    char line[400];
    json_t *root = NULL;
    int version = 0;
    json_int_t first = 0, steps = 0, left_out = 0, dropped = 0, error_ns = 0;
    FILE *file = fopen(p->path, "r");
    bool good =
        file && fgets(line, sizeof line, file) && strchr(line, '\n') &&
        tri_json_load(p->path, line, strlen(line), 0, &root, NULL, NULL) == TR_OK &&
        json_unpack(root, "{s:i s:i s:i s:I s:I s:I s:I s:I}", "version", &version, "rank",
                    &p->rank, "ranks", &p->num_ranks, "first_step", &first, "steps", &steps,
                    "left_out", &left_out, "dropped", &dropped, "clock_error_ns", &error_ns) == 0 &&
        version == TRI_TRACE_VERSION && p->rank >= 0 && p->rank < p->num_ranks;
    p->first_step = first;
    p->num_steps = steps;
    p->left_out = left_out;
    p->dropped = dropped;
    p->clock_error_ns = error_ns;
    p->begin = good ? ftell(file) : 0;
    if (root)
        json_decref(root);
    if (file)
        fclose(file);
    return good;
}

static void free_parts(part_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        free(list->parts[i].path);
    free(list->parts);
    *list = (part_list){0};
}

static int by_rank(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static tr_status find_parts(const char *dir, part_list *list, tr_error *err)
{
    tri_file_list files = {0};
    TRI_TRY(tri_file_list_read(&files, dir, err));
    list->parts = calloc(files.num + 1, sizeof *list->parts);
    tr_status status = TR_OK;
    for (size_t i = 0; i < files.num && status == TR_OK; i++) {
        if (rank_of_name(files.name[i]) < 0)
            continue;
        part p = {.path = tri_path_join(dir, files.name[i])};
        if (!p.path || !list->parts) {
            free(p.path);
            status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for the trace", dir);
        } else if (read_part(&p)) {
            list->parts[list->num++] = p;
        } else {
            free(p.path);
        }
    }
    if (status == TR_OK)
        qsort(list->parts, list->num, sizeof *list->parts, by_rank);
    tri_file_list_free(&files);
    return status;
}

static void copy_part(text_out *out, const part *p)
{
    char block[1 << 14];
    size_t num = 0;
    FILE *file = fopen(p->path, "r");
    bool good = file && fseek(file, p->begin, SEEK_SET) == 0;
    while (good && out->status == TR_OK && (num = fread(block, 1, sizeof block, file)) > 0)
        put_bytes(out, block, num);
    if ((!good || ferror(file)) && out->status == TR_OK)
        out->status = tri_fail(out->err, TR_ERROR_RUNTIME, "%s: cannot be read again", p->path);
    if (file)
        fclose(file);
}

/* ---- the file ---- */

static void put_missing(text_out *out, const part_list *list, const part *own)
{
    int num_ranks = own ? own->num_ranks : list->parts[0].num_ranks;
    size_t next = 0;
    const char *comma = "";
    put(out, ",\"missing_ranks\":[");
    for (int rank = 0; rank < num_ranks; rank++) {
        while (next < list->num && list->parts[next].rank < rank)
            next++;
        if ((own && own->rank == rank) || (next < list->num && list->parts[next].rank == rank))
            continue;
        put(out, "%s%d", comma, rank);
        comma = ",";
    }
    put(out, "]");
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What is said of the whole is true of every rank. */
static void put_head(text_out *out, const part_list *list, const part *own)
{
    part all = own ? *own : list->parts[0];
    for (size_t i = own ? 0 : 1; i < list->num; i++) {
        const part *p = &list->parts[i];
        all.dropped += p->dropped;
        all.left_out = most(all.left_out, p->left_out);
        all.clock_error_ns = most(all.clock_error_ns, p->clock_error_ns);
        if (p->num_steps < all.num_steps)
            all.num_steps = p->num_steps;
    }
    put(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"version\":%d,\"ranks\":%d",
        TRI_TRACE_VERSION, all.num_ranks);
    put_missing(out, list, own);
    put(out, ",\"first_step\":%" PRId64 ",\"steps\":%" PRId64 ",\"steps_left_out\":%" PRId64,
        all.first_step, all.num_steps, all.left_out);
    put(out, ",\"dropped_events\":%" PRId64 ",\"clock_error_us\":", all.dropped);
    put_microseconds(out, all.clock_error_ns);
    put_arg(out, "peak_flops_per_s", all.peaks.flops);
    put_arg(out, "peak_flops_per_s_float8", all.peaks.flops8);
    put_arg(out, "peak_bytes_per_s", all.peaks.bytes);
    put(out, "},\n\"traceEvents\":[\n");
}

tr_status tri_trace_join(const tri_trace *own, const char *dir, tr_error *err)
{
    char path[4200];
    part_list list = {0};
    part first = own ? about_to_part(own) : (part){0};
    snprintf(path, sizeof path, "%s/trace.json", dir);
    tr_status status = find_parts(dir, &list, err);
    text_out *out = status == TR_OK && (own || list.num > 0) ? open_out(path, err) : NULL;
    if (out) {
        put_head(out, &list, own ? &first : NULL);
        if (own)
            put_rank(out, own);
        for (size_t i = 0; i < list.num && out->status == TR_OK; i++)
            if (!own || list.parts[i].rank != first.rank)
                copy_part(out, &list.parts[i]);
        /* Every line above ends in a comma, so the last one has to say something. */
        put(out,
            "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_labels\",\"args\":{\"labels\":"
            "\"trireme\"}}\n]}\n",
            own ? first.rank : list.parts[0].rank);
        status = close_out(out);
    } else if (status == TR_OK && (own || list.num > 0)) {
        status = TR_ERROR_RUNTIME;
    }
    free_parts(&list);
    if (status == TR_OK)
        tri_trace_remove_parts(dir);
    return status;
}

static bool look_for_parts(const char *dir, bool removes)
{
    tri_file_list files = {0};
    bool any = false;
    if (tri_file_list_read(&files, dir, NULL) != TR_OK)
        return false;
    for (size_t i = 0; i < files.num; i++) {
        if (rank_of_name(files.name[i]) < 0)
            continue;
        any = true;
        char *path = removes ? tri_path_join(dir, files.name[i]) : NULL;
        if (path)
            (void)unlink(path);
        free(path);
    }
    tri_file_list_free(&files);
    return any;
}

bool tri_trace_has_parts(const char *dir)
{
    return look_for_parts(dir, false);
}

void tri_trace_remove_parts(const char *dir)
{
    look_for_parts(dir, true);
}
