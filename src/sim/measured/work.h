/* A piece of work as measurements know it: an instruction without its addresses and its place.
 *
 * Work of one kind differs in its sizes alone. What another kernel, or another way through a
 * kernel, may do is part of the kind: types, how operands lie, what is done to a finished tile,
 * which operands are given, whether a sum is added to or begun. */
#ifndef TRI_SIM_WORK_H
#define TRI_SIM_WORK_H

#include "program/program.h"

enum { TRI_WORK_SIZES = 4, TRI_WORK_KIND = 64 };

typedef struct tri_work {
    tri_op op;
    char kind[TRI_WORK_KIND];    /* "f32,f32>f32 nt +bias" */
    double size[TRI_WORK_SIZES]; /* products: m, n, k; 0 behind the last */
    double flops, bytes;
} tri_work;

/* first: in the first call of its segment, where sums are begun. */
tri_work tri_work_of(const tri_program *program, uint32_t instr, bool first);
/* How many instructions from here on are one launch, where an operator that takes several at once
 * is marked in together[TRI_NUM_OPS]. */
uint32_t tri_work_launch(const tri_program *program, uint32_t instr, const bool *together);
/* How often an instruction runs in a step: in first calls, and in others. */
typedef struct tri_work_runs {
    double first, rest;
} tri_work_runs;
tri_work_runs *tri_work_count(const tri_program *program); /* [num_instrs]; NULL: no memory */

#endif
