/* Events of the compute row follow each other, so that what lies under a message is found by one
 * walk over both: messages sorted by their start, and for each the instructions that meet it. */
#include "run/trace/trace_travel.h"

#include <stdlib.h>

typedef struct span {
    int64_t begin, end;
} span;

static bool is_message(const tri_trace_event *event)
{
    return event->label->group && !event->waits;
}

static bool computes(const tri_trace_event *event)
{
    return event->lane == TRI_TRACE_COMPUTE && !event->label->group;
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static double seconds_under(const span *message, const span *work, size_t num)
{
    int64_t under = 0;
    size_t low = 0, high = num; /* the first that ends after the message begins */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (work[middle].end <= message->begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < num && work[i].begin < message->end; i++) {
        int64_t begin = work[i].begin > message->begin ? work[i].begin : message->begin;
        int64_t end = work[i].end < message->end ? work[i].end : message->end;
        under += end > begin ? end - begin : 0;
    }
    return (double)under * 1e-9;
}

tri_trace_travel tri_trace_travel_of(const tri_trace *trace)
{
    tri_trace_travel travel = {0};
    size_t num = (size_t)tri_trace_num_events(trace), num_work = 0;
    const tri_trace_event *events = tri_trace_events(trace);
    span *work = malloc((num + 1) * sizeof *work);
    for (size_t i = 0; i < num && work; i++)
        if (computes(&events[i]))
            work[num_work++] =
                (span){events[i].start_ns, events[i].start_ns + events[i].duration_ns};
    if (work)
        qsort(work, num_work, sizeof *work, by_begin);
    for (size_t i = 0; i < num && work; i++) {
        if (!is_message(&events[i]))
            continue;
        span message = {events[i].start_ns, events[i].start_ns + events[i].duration_ns};
        travel.num_messages++;
        travel.total_s += (double)events[i].duration_ns * 1e-9;
        travel.beside_s += seconds_under(&message, work, num_work);
    }
    free(work);
    return travel;
}
