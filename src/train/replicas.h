/* Are copies still copies? What several ranks hold of one tensor (parameters and moments over dp,
 * or what tp, the stages of a pipeline or copies of key heads leave whole) must have the same bits
 * on all of them, by construction. A bit that flips in a memory or on a network breaks that without
 * a word, and everything afterwards. So sums of it are compared now and then, and before anything
 * is saved.
 *
 * What only one rank holds (slices of ZeRO) cannot be compared. */
#ifndef TRI_TRAIN_REPLICAS_H
#define TRI_TRAIN_REPLICAS_H

#include "train/pieces.h"
#include "train/ranks.h"

/* A piece that others hold too. */
typedef struct tri_replica {
    uint64_t key;  /* what it is: the same for all who hold it */
    uint64_t sum;  /* of its bytes, when they were last looked at */
    size_t piece;  /* its number in pieces */
    int64_t group; /* its number in groups */
} tri_replica;

typedef struct tri_replicas {
    tri_session *session;
    tri_ranks *ranks;
    tri_pieces pieces;
    tri_replica *replicas; /* those of this rank */
    size_t num;
    /* Pieces with the same holders are compared together: {who holds them, sum of their sums}. */
    uint64_t (*groups)[2];
    size_t num_groups, most_groups; /* of this rank; of any */
    uint64_t (*told)[2];            /* [size * most_groups] */
    void *room;                     /* to read through, where the device has its own memory */
    int64_t compared;               /* the step after which all were equal, -1: none yet */
    double seconds;                 /* that the last comparison took */
} tri_replicas;

/* After the session has started; collective, as is the next. Nothing is compared when this rank is
 * alone. */
tr_status tri_replicas_open(tri_replicas *r, tri_session *session, tri_ranks *ranks, tr_error *err);
/* Between two steps, once for each. A difference is TR_ERROR_RUNTIME, the same for all ranks, and
 * names the tensor, the step and the ranks: those in the minority, where there is one. */
tr_status tri_replicas_compare(tri_replicas *r, tr_error *err);
void tri_replicas_close(tri_replicas *r);

#endif
