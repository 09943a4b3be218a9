/* The rounds of an algorithm as one member of a group sees them: its messages, round by round. Made
 * once for each kind of call and kept with the group. */
#ifndef TRI_COMM_ROUNDS_ROUNDS_PLAN_H
#define TRI_COMM_ROUNDS_ROUNDS_PLAN_H

#include "comm/comm_internal.h"

/* Consecutive pieces of the vector; in an all_to_all one piece. */
typedef struct tri_plan_run {
    uint32_t first_piece, num_pieces;
    int32_t relay; /* all_to_all: where a piece that is for others is kept, or -1 */
} tri_plan_run;

/* One message of one round. */
typedef struct tri_plan_step {
    int peer; /* member */
    bool is_send, combine;
    bool overlaps; /* a send of what this member receives into in the same round */
    uint32_t first_run, num_runs;
} tri_plan_step;

typedef struct tri_plan {
    const tri_algorithm *algorithm;
    tri_coll_shape shape;
    tr_operation operation;
    int root;
    uint32_t num_pieces;
    size_t num_rounds;
    size_t *first; /* [num_rounds + 1]: steps of each round, sends first, by peer */
    tri_plan_step *steps;
    tri_plan_run *runs;
    uint32_t num_relays;        /* pieces kept for others */
    bool relays;                /* some member keeps some */
    size_t most_steps;          /* in a round */
    tri_port_message *messages; /* [most_steps], used while it runs */
} tri_plan;

/* Of this call on this group; made at first use. Stays valid until the next call. */
tr_status tri_plan_find(tr_group *group, const tr_collective *call, const tri_algorithm *algorithm,
                        const tri_coll_shape *shape, const tri_plan **plan, tr_error *err);
/* At least num_bytes of reachable memory of the group's, contents undefined. */
tr_status tri_plan_scratch(tr_group *group, size_t num_bytes, char **memory, tr_error *err);

#endif
