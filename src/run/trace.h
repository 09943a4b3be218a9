/* What ran when, on one rank, as a file that opens in Perfetto (Chrome's trace-event JSON).
 *
 * Events go into a buffer of fixed size, so that recording costs no allocation and no lock during
 * a step; when it is full, events are dropped and counted. Any number of threads may add; writing
 * and naming lanes is for one thread while no other adds. */
#ifndef TRI_RUN_TRACE_H
#define TRI_RUN_TRACE_H

#include "base/error.h"

#include <stdint.h>

enum { TRI_TRACE_MAX_ARGS = 4, TRI_TRACE_MAX_LANES = 64 };
/* The row of whole actions of a pipeline; category "action", name F, I, W, B or U. */
enum { TRI_TRACE_ACTIONS = 40 };

/* Strings are not copied: they must live until the trace is written. */
typedef struct tri_trace_event {
    const char *name;
    const char *category;
    int lane;         /* the row it is drawn in */
    int64_t start_ns; /* of any clock that all ranks share */
    int64_t duration_ns;
    int num_args;
    struct {
        const char *key;
        double value; /* whole numbers up to 2^53 are written as such */
    } arg[TRI_TRACE_MAX_ARGS];
} tri_trace_event;

typedef struct tri_trace tri_trace;

tr_status tri_trace_create(int rank, int64_t max_events, tri_trace **trace, tr_error *err);
void tri_trace_destroy(tri_trace *trace);

/* Lane must be in [0, TRI_TRACE_MAX_LANES); one without a name shows as "lane N". The name is
 * copied. */
void tri_trace_name_lane(tri_trace *trace, int lane, const char *name);
void tri_trace_add(tri_trace *trace, const tri_trace_event *event);

const tri_trace_event *tri_trace_events(const tri_trace *trace); /* in the order of adding */
int64_t tri_trace_num_events(const tri_trace *trace);            /* kept */
int64_t tri_trace_num_dropped(const tri_trace *trace);           /* did not fit */

/* Replaces the file whole. Process id = rank, thread id = lane, so the files of several ranks can
 * be put together. */
tr_status tri_trace_write(const tri_trace *trace, const char *path, tr_error *err);

#endif
