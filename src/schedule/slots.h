/* The builder behind the zero-bubble and V families: time is cut into slots, F, I and W take one
 * each and B two, and slot after slot every rank takes the best action that is possible. What is
 * best is a plan. */
#ifndef TRI_SCHEDULE_SLOTS_H
#define TRI_SCHEDULE_SLOTS_H

#include "schedule/schedule.h"

/* The four streams of a rank; orders with one chunk have the first and the last. Where backwards
 * are not split, a B takes the place of the I and its W. */
typedef enum tri_slot_stream {
    TRI_STREAM_F0,
    TRI_STREAM_F1,
    TRI_STREAM_I1,
    TRI_STREAM_I0
} tri_slot_stream;
enum { TRI_NUM_STREAMS = 4 };

typedef struct tri_slots_plan {
    uint32_t limit; /* activations (of chunks) that may live on a rank */
    bool whole;     /* backwards are not split: B for I, and no W */
    /* One chunk: the forwards that may be ahead of the input gradients on rank r are
     * 1 + slope (p-1-r). */
    uint32_t slope;
    /* Without a pattern: the streams in the order of preference. W come when none of them can run
     * and, if free_first, whenever the memory is full. */
    tri_slot_stream prefer[TRI_NUM_STREAMS];
    bool free_first;
    /* With a pattern: every micro-batch repeats the first one 6 slots later. delta is the slots
     * that F0, F1, I1 and I0 take from one rank to the next, gap those at the three turns. Every
     * third hop of a gradient takes `pause` slots more; phase says how many hops the first of them
     * is nearer. The pattern becomes a timetable (timetable.h), whose order a rank follows, and W
     * fill what is left. */
    bool pattern;
    uint8_t delta[TRI_NUM_STREAMS], gap[3], pause, phase;
    bool slotless_w; /* W free memory, but leave their slots to others */
    bool loose;      /* after the last F0, whatever is ready may come before its turn */
} tri_slots_plan;

typedef struct tri_slots_result {
    uint32_t makespan, span, peak; /* span: the longest of a rank, from first to last action */
} tri_slots_result;

/* Tries every plan on a shorter run, and emits the best: the least makespan, then span, then peak.
 * The first plan must be one that cannot get stuck. */
tr_status tri_slots_emit_best(tri_schedule *schedule, const tri_slots_plan *plans, size_t num_plans,
                              tr_error *err);

#endif
