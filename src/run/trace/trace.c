#include "run/trace/trace.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tri_trace {
    tri_trace_about about;
    char lane_name[TRI_TRACE_MAX_LANES][TRI_TRACE_LANE_NAME]; /* "": none */
    int order[TRI_TRACE_MAX_LANES]; /* of lanes from TRI_TRACE_MORE on: that of the row they part */
    int64_t max_events;
    atomic_int_least64_t num_added; /* also those that did not fit */
    tri_trace_event event[];
};

tr_status tri_trace_create(int64_t max_events, tri_trace **out, tr_error *err)
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
    trace->about.num_ranks = 1;
    trace->max_events = max_events;
    atomic_init(&trace->num_added, 0);
    *out = trace;
    return TR_OK;
}

void tri_trace_destroy(tri_trace *trace)
{
    free(trace);
}

tri_trace_about *tri_trace_about_of(tri_trace *trace)
{
    return &trace->about;
}

const tri_trace_about *tri_trace_about_read(const tri_trace *trace)
{
    return &trace->about;
}

void tri_trace_name_lane(tri_trace *trace, int lane, const char *name)
{
    assert(lane >= 0 && lane < TRI_TRACE_MAX_LANES);
    snprintf(trace->lane_name[lane], sizeof trace->lane_name[lane], "%s", name);
}

const char *tri_trace_lane_name(const tri_trace *trace, int lane)
{
    return trace->lane_name[lane];
}

void tri_trace_add(tri_trace *trace, const tri_trace_event *event)
{
    assert(event->lane >= 0 && event->lane < TRI_TRACE_MAX_LANES);
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

int64_t tri_trace_aligned(const tri_trace_clock *clock, int64_t time_ns)
{
    int64_t apart = clock->at_ns[1] - clock->at_ns[0];
    double drift = apart > 0 ? (double)(clock->offset_ns[1] - clock->offset_ns[0]) / (double)apart
                             : 0; /* measured once */
    return time_ns + clock->offset_ns[0] + (int64_t)(drift * (double)(time_ns - clock->at_ns[0]));
}

/* ---- rows ---- */

enum { STEP_OF_ORDER = TRI_TRACE_MAX_LANES };

int tri_trace_lane_order(const tri_trace *trace, int lane)
{
    return lane < TRI_TRACE_MORE ? lane * STEP_OF_ORDER : trace->order[lane];
}

static int by_start(const void *a, const void *b)
{
    const tri_trace_event *x = *(tri_trace_event *const *)a, *y = *(tri_trace_event *const *)b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static void add_row(tri_trace *trace, int lane, int more, int nth)
{
    char name[32], text[TRI_TRACE_LANE_NAME + 16];
    snprintf(name, sizeof name, "%.31s", trace->lane_name[lane]);
    snprintf(text, sizeof text, "%s, %d", name, nth + 1);
    tri_trace_name_lane(trace, more, text);
    trace->order[more] = lane * STEP_OF_ORDER + nth;
}

/* Each event goes to the first row that is free by then. Returns the next lane that is. */
static int part_row(tri_trace *trace, int lane, tri_trace_event **list, size_t num, int free_lane)
{
    int rows[TRI_TRACE_MAX_LANES] = {lane}, num_rows = 1;
    int64_t until[TRI_TRACE_MAX_LANES] = {INT64_MIN};
    qsort(list, num, sizeof(*list), by_start);
    for (size_t i = 0; i < num; i++) {
        int r = 0;
        while (r < num_rows && until[r] > list[i]->start_ns)
            r++;
        if (r == num_rows && free_lane < TRI_TRACE_MAX_LANES) {
            add_row(trace, lane, free_lane, num_rows);
            rows[num_rows] = free_lane++;
            until[num_rows++] = INT64_MIN;
        }
        r = r < num_rows ? r : num_rows - 1; /* there are no more rows */
        list[i]->lane = (int16_t)rows[r];
        until[r] = list[i]->start_ns + list[i]->duration_ns;
    }
    return free_lane;
}

void tri_trace_part_rows(tri_trace *trace)
{
    int64_t num = tri_trace_num_events(trace);
    int free_lane = TRI_TRACE_MORE;
    tri_trace_event **list = malloc((size_t)(num + 1) * sizeof(*list));
    for (int lane = 1; list && lane < TRI_TRACE_ACTIONS; lane++) {
        size_t count = 0;
        for (int64_t i = 0; i < num; i++)
            if (trace->event[i].lane == lane)
                list[count++] = &trace->event[i];
        free_lane = part_row(trace, lane, list, count, free_lane);
    }
    free(list); /* without memory rows stay as they are */
}
