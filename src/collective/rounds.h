/* What the files of the algorithms share: a list of transfers that is filled in any order and then
 * becomes the sorted rounds of collective.h. An algorithm is a table of functions, one for each
 * operation it has, that put transfers into the list. */
#ifndef TRI_COLLECTIVE_ROUNDS_H
#define TRI_COLLECTIVE_ROUNDS_H

#include "collective/collective.h"

typedef struct tri_rounds_item {
    size_t round;
    tri_transfer transfer;
} tri_rounds_item;

/* How the ranks and pieces of a part lie in the whole, when an algorithm is made of others. Rank i
 * is first_rank + i * rank_step; piece i is the piece_scale pieces from first_piece +
 * i * piece_step. */
typedef struct tri_rounds_view {
    size_t first_round;
    int first_rank, rank_step;
    uint32_t first_piece, piece_step, piece_scale;
} tri_rounds_view;

typedef struct tri_rounds_list {
    uint32_t num_pieces; /* set by the emitter */
    const tri_coll_shape *shape;
    tri_rounds_view view;
    size_t next_round; /* after the last that has a transfer */
    tri_rounds_item *items;
    size_t num_items, capacity;
    bool no_memory; /* remembered until the end, so that emitters need not look */
} tri_rounds_list;

/* An emitter sets num_pieces and adds the transfers of an operation; for one rank it must add none.
 * Operations without a root get some rank as root and ignore it. */

/* Rounds may have gaps; they are closed at the end. */
void tri_rounds_add(tri_rounds_list *list, size_t round, int from, int to, uint32_t first_piece,
                    uint32_t num_pieces, bool combine);

/* Another algorithm's operation on some of the ranks and pieces, beginning in view->first_round.
 * The list's num_pieces stays as it is. */
void tri_rounds_embed(tri_rounds_list *list, const tri_rounds_view *view, tri_rounds_emit emit,
                      int size, int root);

static inline tri_coll_cost tri_cost_of(double alpha_count, double beta_bytes, double gamma_bytes)
{
    return (tri_coll_cost){
        .alpha_count = alpha_count, .beta_bytes = beta_bytes, .gamma_bytes = gamma_bytes};
}

/* floor and ceiling of log2, for n >= 1. */
static inline int tri_log2_floor(int n)
{
    int log = 0;
    while (n >> (log + 1))
        log++;
    return log;
}

static inline int tri_log2_ceil(int n)
{
    int log = tri_log2_floor(n);
    return (1 << log) < n ? log + 1 : log;
}

/* The dims of a shape as an algorithm with so many of them sees it: those given when their number
 * is right, otherwise factors as equal as possible, the largest first. False when there are none
 * above 1 (a single rank has dims of 1). */
bool tri_shape_dims(const tri_coll_shape *shape, int num_dims, int dim[TRI_COLL_MAX_DIMS]);

/* A rank number that may have left 0 .. size-1 on either side, brought back. */
static inline int tri_rank_mod(int rank, int size)
{
    int r = rank % size;
    return r < 0 ? r + size : r;
}

#endif
