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

typedef struct tri_rounds_list {
    uint32_t num_pieces; /* set by the emitter */
    tri_rounds_item *items;
    size_t num_items, capacity;
    bool no_memory; /* remembered until the end, so that emitters need not look */
} tri_rounds_list;

/* Sets num_pieces and adds the transfers of an operation; for one rank it must add none. Operations
 * without a root get some rank as root and ignore it. */
typedef void (*tri_rounds_emit)(tri_rounds_list *list, int size, int root);

/* Rounds may have gaps; they are closed at the end. */
void tri_rounds_add(tri_rounds_list *list, size_t round, int from, int to, uint32_t first_piece,
                    uint32_t num_pieces, bool combine);

/* The whole of an algorithm's `rounds`: checks the call, emits, sorts. Operations without an
 * emitter are refused. */
tr_status tri_rounds_build(const char *algorithm, const tri_rounds_emit emit[TRI_NUM_COLLS],
                           tri_coll coll, int size, int root, tri_rounds *rounds, tr_error *err);

/* A rank number that may have left 0 .. size-1 on either side, brought back. */
static inline int tri_rank_mod(int rank, int size)
{
    int r = rank % size;
    return r < 0 ? r + size : r;
}

#endif
