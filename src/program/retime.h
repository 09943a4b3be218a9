/* One stage's program with the timeline of another.
 *
 * Stages of a pipeline that have as many equal layers run the same segments. What differs is the
 * order of their calls, how many micro-batches are under way, and who their neighbours are. So
 * one of them is compiled, and for the others only this is worked out again. */
#ifndef TRI_PROGRAM_RETIME_H
#define TRI_PROGRAM_RETIME_H

#include "program/overlap.h"
#include "schedule/schedule.h"

typedef struct tri_retime {
    const tri_schedule *schedule; /* of all stages, with messages; NULL: there is one stage */
    uint32_t from, to;            /* stages: the program's own, and the other */
    uint32_t stride;              /* ranks from one stage to the next */
    const tri_action *actions;    /* of the other stage */
    size_t num_actions;
    const tri_overlap *overlap; /* NULL: messages are waited for where they stand */
} tri_retime;

/* A program for timing and for adding up memory. It borrows what it shares with `from`, which must
 * outlive it; names in it are those of `from`. */
tr_status tri_program_retime(const tri_program *from, const tri_retime *how, tri_program *to,
                             tr_error *err);
void tri_program_retime_fini(tri_program *program);

/* The n-th chunk that a stage holds, ascending; TRI_NONE past the last. */
uint32_t tri_stage_chunk(const tri_schedule *schedule, uint32_t stage, uint32_t n);

#endif
