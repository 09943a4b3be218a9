/* What the files of extend.c share. */
#ifndef TRI_PROGRAM_EXTEND_PARTS_H
#define TRI_PROGRAM_EXTEND_PARTS_H

#include "program/extend/extend.h"
#include "program/memory_parts.h"

/* A run of instructions of the longer program that repeats what is right before it. */
typedef struct extend_run {
    uint32_t first, count;
} extend_run;

/* An instruction of the longer program, put in for the time-th time; like: the one before it that
 * it repeats, or itself; less: that of the shorter. */
typedef struct extend_copy {
    uint32_t own, like, less, time;
    const extend_run *run; /* NULL: it is put in once */
} extend_copy;

typedef struct extender {
    const tri_program *less, *more;
    uint32_t steps;
    uint32_t *match;  /* of each instruction of the longer: the one of the shorter; or TRI_NONE */
    extend_run *runs; /* of all segments, in order */
    size_t num_runs, capacity;
    uint32_t *at; /* of each instruction of the longer: where the first of it is in the extended */
    tri_program *to;
    bool no_memory, unlike;
    /* extend_pieces.c: */
    uint32_t *position; /* of each instruction of the longer: when it runs */
    uint32_t *last_use; /* of each of its pieces: the position */
    tri_buffer *pieces; /* of the extended program: those that lie in `work`, as they are made */
    size_t num_pieces, pieces_capacity;
    uint32_t *first_piece; /* of each of its instructions: how many are made before it */
    tri_id *piece_of;      /* of each operand, inputs and then outputs, that lies in one */
    size_t *first_operand;
    uint32_t *segment; /* of each instruction of it */
} extender;

/* Whether an output of an instruction is the first that lies in a piece of `work`. */
bool tri_extend_makes(const tri_program *program, uint32_t instr, const tri_operand *out);
/* Room for so many instructions, and what is known of the longer program's pieces. */
bool tri_extend_pieces_init(extender *e, size_t num_instrs);
void tri_extend_pieces_fini(extender *e);
/* The pieces that an instruction makes, and those that its operands lie in. */
void tri_extend_put_pieces(extender *e, const extend_copy *c, uint32_t instr);
/* Lifetimes, and addresses. */
tr_status tri_extend_place(extender *e, tr_error *err);

#endif
