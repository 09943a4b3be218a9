/* What the files of the plan of overlap share; see overlap.c. */
#ifndef TRI_PROGRAM_OVERLAP_PARTS_H
#define TRI_PROGRAM_OVERLAP_PARTS_H

#include "program/overlap.h"

/* One flight while the timeline is walked. The memory of a message is the hull of its operands. */
typedef struct overlap_airborne {
    uint32_t flight;
    const tri_message *message;
    tri_range read, write;
    uint64_t spaces; /* of these two, as bits */
    double work;     /* done before it was started */
    uint32_t wait_call;
} overlap_airborne;

typedef struct overlap_planner {
    tri_program *program;
    const tri_overlap *how;
    overlap_airborne *air;
    size_t num_air, air_capacity;
    overlap_airborne *landed; /* that ended in one of the last calls */
    size_t num_landed, landed_capacity;
    double *call_work;   /* of each call: done before it */
    tri_extent *extents; /* of the operands of all instructions, and where those of each begin */
    size_t *first_extent;
    uint64_t *spaces;        /* that each segment touches, as bits: others need not be looked at */
    uint64_t *instr_spaces;  /* the same of each instruction */
    uint32_t last_recv_call; /* no receive is started before it: they keep their order */
    bool *made;              /* of each flight: it is worth while */
    size_t flights_capacity, made_capacity;
    bool no_memory;
    double work; /* done so far: floating-point operations, and bytes as so many of them */
    struct overlap_repeats *repeats; /* NULL: every call is walked */
    tr_error *err;
} overlap_planner;

/* A byte that moves takes about as long as this many operations. */
enum { TRI_FLOPS_OF_BYTE = 4 };
static inline double tri_overlap_work(const tri_instr *instr)
{
    return instr->cost.flops + TRI_FLOPS_OF_BYTE * instr->cost.bytes;
}

/* The message of an instruction of a call is under way from there on; and one of those that are, by
 * its place in the list, is waited for before an instruction. */
tr_status tri_overlap_take_off(overlap_planner *p, uint32_t call, uint32_t instr);
void tri_overlap_land(overlap_planner *p, size_t n, uint32_t call, uint32_t instr);
/* Whether a call has the instance of a space that a range lies in. */
bool tri_overlap_same_instance(const tri_program *program, const tri_call *call,
                               const tri_range *range);
/* Whether a call's segment has anything where a message is under way. */
bool tri_overlap_may_touch(const overlap_planner *p, const tri_call *call,
                           const overlap_airborne *a);

/* overlap_repeats.c: init is false without memory. */
bool tri_overlap_repeats_init(overlap_planner *p);
void tri_overlap_repeats_fini(overlap_planner *p);
/* A call begins: its flights are made like those of one before it; false where it has to be walked.
 */
bool tri_overlap_repeat(overlap_planner *p, uint32_t call, tr_status *status);
/* It was walked: keeps its flights, from the first on. */
tr_status tri_overlap_note(overlap_planner *p, uint32_t call, size_t first);

#endif
