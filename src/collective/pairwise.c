/* pairwise: an all_to_all in which two ranks at a time give each other their blocks. Every block
 * goes straight to where it belongs, so each is sent once: for large blocks.
 *
 * The pairs of a round are those of a tournament. For a power of two, rank r meets r xor k in round
 * k. For another even number rank N-1 stands still and the others turn around it: r meets
 * (k - r) mod (N-1), and whoever would meet itself meets N-1. An odd number has no such rounds
 * without a rank that sits out; there every rank gives to r+k and gets from r-k. */
#include "collective/rounds.h"

/* Whom rank r gives to in round k = 1 .. N-1. */
static int partner(int size, int r, int k)
{
    if ((size & (size - 1)) == 0)
        return r ^ k;
    if (size % 2 == 1)
        return tri_rank_mod(r + k, size);
    int turning = size - 1;
    if (r == turning) /* the one that would meet itself: 2 r = k mod (N-1), which is odd */
        return (int)((int64_t)k * (size / 2) % turning);
    int other = tri_rank_mod(k - r, turning);
    return other == r ? turning : other;
}

static void all_to_all(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size * (uint32_t)size;
    for (int k = 1; k < size; k++)
        for (int r = 0; r < size; r++) {
            int to = partner(size, r, k);
            tri_rounds_add(list, (size_t)k, r, to, (uint32_t)r * (uint32_t)size + (uint32_t)to, 1,
                           false);
        }
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_ALL_TO_ALL] = all_to_all,
};

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    double hops = shape->size - 1;
    if (coll != TRI_COLL_ALL_TO_ALL)
        return (tri_coll_cost){0};
    return tri_cost_of(hops, hops * bytes / shape->size / shape->size, 0);
}

const tri_algorithm tri_algorithm_pairwise = {
    .name = "pairwise",
    .help = "all_to_all of large blocks: each is sent once, between two ranks at a time",
    .emit = emit,
    .cost = cost,
};
