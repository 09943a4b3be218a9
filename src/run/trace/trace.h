/* What ran when, on one rank.
 *
 * Events go into a buffer of fixed size, so that recording costs no allocation and no lock during
 * a step; when it is full, events are dropped and counted. Any number of threads may add; all else
 * is for one thread while no other adds. What is the same each time an instruction runs is a label,
 * which events point to. trace_file.h makes a file of it. */
#ifndef TRI_RUN_TRACE_H
#define TRI_RUN_TRACE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TRI_TRACE_MAX_LANES = 128, TRI_TRACE_LANE_NAME = 40 };
/* The row of what is computed; that of whole actions of a pipeline (category "action", name F, I,
 * W, B or U); and that of whole steps. Messages have the rows from 1 on, and where several of a row
 * are under way at once the last ones, too. */
enum { TRI_TRACE_COMPUTE = 0, TRI_TRACE_ACTIONS = 40, TRI_TRACE_STEPS = 41, TRI_TRACE_MORE = 64 };

/* Whether an event is an end of a message between two ranks, which an arrow joins to the other. */
typedef enum tri_trace_flow { TRI_FLOW_NONE, TRI_FLOW_SENDS, TRI_FLOW_RECEIVES } tri_trace_flow;

/* Strings must live until the trace is written. */
typedef struct tri_trace_label {
    const char *name, *category;
    int64_t instruction; /* number in the program, from 1; 0: none */
    int64_t chunk;       /* of a pipeline, from 1; 0: none */
    double flops, bytes; /* 0: none */
    const char *group;   /* of the ranks that a message is among: "dp"; NULL: it is no message */
    int peer;            /* of a message between two, the rank at the other end, from 1; 0: none */
    tri_trace_flow flow;
    bool float8; /* a product of 8-bit operands */
} tri_trace_label;

typedef struct tri_trace_event {
    const tri_trace_label *label;
    int64_t start_ns; /* of this machine's clock, tri_now_ns */
    int64_t duration_ns;
    uint64_t message; /* a number that all who take part in a message give it; 0: none */
    int64_t step;
    int32_t microbatch; /* from 1; 0: none */
    uint32_t awaited;   /* the instruction before which a message is waited for, from 1; 0: none */
    int16_t lane;       /* the row it is drawn in */
    bool waits;         /* it is no more than waiting for what the label says */
} tri_trace_event;

/* How this machine's clock goes beside rank 0's: what to add at two moments. In between and beyond
 * that is interpolated. Of ranks on rank 0's machine all is 0. */
typedef struct tri_trace_clock {
    int64_t at_ns[2], offset_ns[2];
    int64_t error_ns; /* at most, at either moment */
} tri_trace_clock;
int64_t tri_trace_aligned(const tri_trace_clock *clock, int64_t time_ns);

/* What a device can do, measured: rates of products, of those of 8-bit operands, and of copies
 * (read and written). 0: not known. */
typedef struct tri_trace_peaks {
    double flops, flops8, bytes;
} tri_trace_peaks;

/* What a file says of a rank beside its events. */
typedef struct tri_trace_about {
    int rank, num_ranks;
    int64_t first_step, num_steps; /* that were recorded, the first from 1 */
    int64_t left_out;              /* steps that ran and were not recorded */
    tri_trace_clock clock;
    tri_trace_peaks peaks; /* of the rank that joins the parts */
} tri_trace_about;

typedef struct tri_trace tri_trace;

tr_status tri_trace_create(int64_t max_events, tri_trace **trace, tr_error *err);
void tri_trace_destroy(tri_trace *trace);
/* Whoever has the trace fills it in. */
tri_trace_about *tri_trace_about_of(tri_trace *trace);
const tri_trace_about *tri_trace_about_read(const tri_trace *trace);

/* Lane must be in [0, TRI_TRACE_MAX_LANES); one without a name shows as "lane N". The name is
 * copied. */
void tri_trace_name_lane(tri_trace *trace, int lane, const char *name);
const char *tri_trace_lane_name(const tri_trace *trace, int lane); /* "": it has none */
int tri_trace_lane_order(const tri_trace *trace, int lane); /* where it stands among the rows */
void tri_trace_add(tri_trace *trace, const tri_trace_event *event);

const tri_trace_event *tri_trace_events(const tri_trace *trace); /* in the order of adding */
int64_t tri_trace_num_events(const tri_trace *trace);            /* kept */
int64_t tri_trace_num_dropped(const tri_trace *trace);           /* did not fit */

/* When all is there: what overlaps in a row of messages goes to rows of its own, since a row shows
 * one thing at a time. */
void tri_trace_part_rows(tri_trace *trace);

#endif
