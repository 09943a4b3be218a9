/* Messages beside the computation (overlap.c), and the proof that nothing touches their memory
 * meanwhile (check_overlap.c). */
#ifndef TRI_PROGRAM_OVERLAP_H
#define TRI_PROGRAM_OVERLAP_H

#include "program/program.h"

/* What is worth starting: messages of so many bytes, with so many floating-point operations for
 * each of these bytes to hide behind. 0: whatever has anything at all to hide behind. */
typedef struct tri_overlap {
    uint64_t min_bytes;
    bool files_only; /* the device keeps all others apart by itself */
    bool in_place;   /* no receive is started before its place */
} tri_overlap;

enum { TRI_OVERLAP_FLOPS_OF_BYTE = 64 };

/* Fills in program->flights. A program without is one whose messages are waited for where they
 * stand. */
tr_status tri_plan_overlap(tri_program *program, const tri_overlap *how, tr_error *err);
/* Puts the landings in the order of the timeline. */
void tri_sort_landings(tri_program *program);

/* Proves that every flight is waited for, and that no instruction before that touches its memory;
 * part of tri_program_check. */
tr_status tri_check_overlap(const tri_program *program, tr_error *err);

/* Bytes of an instance of a space; TRI_NONE: nothing. */
typedef struct tri_range {
    uint32_t space, instance;
    uint64_t begin, end;
} tri_range;
/* The scratch of its kernel that lies in `work`; space TRI_NONE: there is none. */
tri_range tri_scratch_range(const tri_instr *instr);
tri_range tri_operand_range(const tri_program *program, const tri_call *call,
                            const tri_operand *operand);
tri_range tri_extent_range(const tri_program *program, const tri_call *call,
                           const tri_extent *extent);
/* Whether it lies among parameters, which a call may begin with copying (copy_from). */
bool tri_range_of_params(const tri_program *program, const tri_range *range);
/* A set of spaces: ranges whose bits differ cannot meet. */
static inline uint64_t tri_space_bit(uint32_t space)
{
    return space == TRI_NONE ? 0 : 1ull << (space % 64);
}
static inline bool tri_ranges_meet(const tri_range *a, const tri_range *b)
{
    return a->space != TRI_NONE && a->space == b->space && a->instance == b->instance &&
           a->begin < b->end && b->begin < a->end;
}

#endif
