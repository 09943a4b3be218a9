/* From one placement to another: which collectives, in which order. The one algebra of the pass
 * (place_move.c) and of `trireme place` (calc_move.c).
 *
 * Only the end of a list of entries is gathered, cut off or exchanged: what stays is always a run
 * of elements of the dim. So what a dim keeps is the longest common beginning of its two lists; the
 * rest is gathered, and what is new is cut off after that. Vectors travel when they are small:
 * slices, sums that leave pieces and exchanges come first, as many as there can be; then all other
 * sums, then a gather, and what had to wait for it. A sum does not wait for a gather, even where
 * that would spare it its second half: twice a vector is never more than once what it becomes. */
#ifndef TRI_PLACE_MOVES_H
#define TRI_PLACE_MOVES_H

#include "base/error.h"
#include "graph/placement.h"

typedef enum tri_move_kind {
    TRI_MOVE_SLICE, /* local */
    TRI_MOVE_REDUCE_SCATTER,
    TRI_MOVE_ALL_REDUCE,
    TRI_MOVE_ALL_TO_ALL,
    TRI_MOVE_ALL_GATHER
} tri_move_kind;

typedef struct tri_move {
    tri_move_kind kind;
    tri_factor_set over;
    int from_dim, to_dim; /* that lose or gain the entries; -1: none does */
    int num_entries;      /* of that dim: the last so many */
    tri_placement before, after;
} tri_move;

enum { TRI_MAX_MOVES = 4 * TRI_MAX_FACTORS };

typedef struct tri_moves {
    tri_move move[TRI_MAX_MOVES];
    int num;
} tri_moves;

/* `rank` is the number of dims. Fails when `to` is partial over a factor that `from` is not: only
 * an operator makes terms. */
tr_status tri_plan_moves(int rank, const tri_placement *from, const tri_placement *to,
                         tri_moves *moves, tr_error *err);

#endif
