/* Patterns of the V family: every micro-batch repeats the way of the first one 6 slots later, and
 * what the beginning leaves empty is filled. */
#ifndef TRI_SCHEDULE_TIMETABLE_H
#define TRI_SCHEDULE_TIMETABLE_H

#include "schedule/slots.h"

/* In rows: a tri_slot_stream, or one of these. */
enum { TRI_SLOT_W1 = TRI_NUM_STREAMS, TRI_SLOT_W0, TRI_NUM_SLOT_KINDS };
enum { TRI_SLOT_FREE = -1, TRI_SLOT_TAKEN = -2 }; /* taken: by the second half of a B */

typedef struct tri_timetable {
    uint32_t num_ranks, num_slots;
    int8_t *rows;                          /* [rank][slot] */
    uint32_t (*ideal)[TRI_NUM_SLOT_KINDS]; /* [rank]: slots of micro-batch 0 in the pattern */
} tri_timetable;

/* *fits is false when two actions of the pattern fall into one slot. */
tr_status tri_timetable_make(const tri_slots_plan *plan, uint32_t num_ranks, uint32_t m,
                             tri_timetable *table, bool *fits, tr_error *err);
void tri_timetable_fini(tri_timetable *table);

#endif
