/* Rows that go to other ranks by counts that are data, and come back: the program of a rank with an
 * update behind it, and steps of it with counts of every kind. */
#ifndef TESTS_ROOMS_CASE_H
#define TESTS_ROOMS_CASE_H

#include "message_run.h"

enum { MOST_ROOMS = 8, ROOM_WIDTH = 3, ROOM_WEIGHTS = 5 };

typedef struct rooms_case {
    int ranks;    /* that exchange rows */
    int replicas; /* of them, by data parallelism */
    int64_t room;
    bool
        joins_all; /* the flag is summed over all ranks, and not over those of the exchange alone */
} rooms_case;

/* What the counts of a step are like. */
typedef enum rooms_kind {
    NO_ROWS,
    SOME_ROWS,
    FULL_ROOMS,
    ONE_TOO_MANY, /* one pair of ranks has a row more than there is room for */
    MANY_TOO_MANY,
    NUM_ROOMS_KINDS
} rooms_kind;

/* x -> y by the counts, y -> z back; w is updated unless a row finds no room. What the checker says
 * of it. */
tr_status rooms_program(const rooms_case *c, int rank, bool overlap, tri_program *program,
                        tr_error *err);
/* Steps of all kinds: every element, the bytes that went, and whether w was updated. */
tr_status rooms_run(tr_comm *comm, const rooms_case *c, const tri_program *program, message_way way,
                    tr_error *err);
/* Steps that rooms_run makes. */
int rooms_num_steps(void);

#endif
