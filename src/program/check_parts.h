/* What the files of the checker share (check.c says what it proves). */
#ifndef TRI_PROGRAM_CHECK_PARTS_H
#define TRI_PROGRAM_CHECK_PARTS_H

#include "program/program.h"

/* What lies in a range of bytes. */
typedef struct tri_check_piece {
    uint64_t begin, end;
    tri_id value;
    uint32_t microbatch;    /* TRI_NONE: made once, for all of them */
    uint32_t contributions; /* accumulators: how many were added so far */
} tri_check_piece;

/* One instance of a space: its pieces, sorted, not overlapping. */
typedef struct tri_check_region {
    tri_check_piece *pieces;
    size_t count, capacity;
    uint32_t holder; /* frames: the micro-batch that has it, or TRI_NONE */
} tri_check_region;

typedef struct tri_checker {
    const tri_program *program;
    tri_check_region **regions; /* [num_spaces] */
    uint32_t *contributions;    /* expected of each state, see find_contributions */
    bool *sums;                 /* of each value: a version that contributions make */
    uint64_t *bytes;            /* of each value */
    bool *fits;           /* of each instruction: its shapes were looked at, no call changes them */
    uint32_t *last_use;   /* [space][micro-batch]: the last call that uses the frame */
    uint32_t *runs;       /* [segment][micro-batch]: calls */
    bool updated;         /* an update has read the gradients: they may begin anew */
    const tri_call *call; /* where we are */
    const tri_instr *instr; /* NULL between instructions */
    tr_error *err;
} tri_checker;

/* An error that says where the checker is. */
tr_status tri_checker_complain(const tri_checker *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* First piece that ends after the address. */
size_t tri_checker_find(const tri_check_region *r, uint64_t address);
/* Replaces whatever lay in the range. Pieces that are cut lose their meaning and go. */
tr_status tri_checker_put(const tri_checker *c, tri_check_region *r, tri_check_piece piece);

/* check_instr.c: c->instr of c->call, its operands and what it leaves in memory. */
tr_status tri_checker_instr(tri_checker *c);

#endif
