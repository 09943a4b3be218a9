/* Tokens that are cut over ranks and go around them: the program of a rank, and one run of it. */
#ifndef TESTS_RING_CASE_H
#define TESTS_RING_CASE_H

#include "message_run.h"

enum { MOST_RING = 8, RING_WIDTH = 3 };

typedef struct ring_case {
    int ranks;
    int64_t tokens; /* [tokens, RING_WIDTH], cut over the ranks as evenly as may be */
    int distance, steps;
} ring_case;

/* x, y1, y2 ... each the shift of the one before; beside it z0, z1 ..., relu of these. */
void ring_program(const ring_case *c, int rank, bool overlap, tri_program *program);
/* Three steps with different numbers; every element, and the bytes that the rank has sent. */
tr_status ring_run(tr_comm *comm, const ring_case *c, const tri_program *program, message_way way,
                   tr_error *err);

#endif
