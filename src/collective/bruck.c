/* bruck: in round k every rank talks to the two that are 2^k away, one on each side, and what it
 * has doubles. ceil(log2 N) rounds for any N, without the folding that a butterfly needs.
 *
 *     all_gather, round k    r > r - 2^k    the blocks r .. r + 2^k - 1, as far as they are missing
 *     reduce_scatter         the same backwards, summed
 *     all_to_all, round k    r > r + 2^k    every block with bit k in the distance it has to go
 *
 * Blocks lie at their places all the time, so a message may have two runs (around the end), or many
 * in an all_to_all, where blocks pass through ranks that they are not for and are sent log2(N)/2
 * times on average: few messages, more bytes. */
#include "collective/rounds.h"

/* Blocks first .. first + num - 1, around the end. */
static void add_blocks(tri_rounds_list *list, size_t round, int from, int to, int first, int num,
                       bool combine)
{
    int size = (int)list->num_pieces;
    int before_end = first + num > size ? size - first : num;
    tri_rounds_add(list, round, from, to, (uint32_t)first, (uint32_t)before_end, combine);
    if (num > before_end)
        tri_rounds_add(list, round, from, to, 0, (uint32_t)(num - before_end), combine);
}

/* What is new in round k: no more than is missing. */
static int num_new(int size, int k)
{
    return size - (1 << k) < 1 << k ? size - (1 << k) : 1 << k;
}

static void gather_pass(tri_rounds_list *list, size_t first_round, int size)
{
    for (int k = 0; 1 << k < size; k++)
        for (int r = 0; r < size; r++)
            add_blocks(list, first_round + (size_t)k, r, tri_rank_mod(r - (1 << k), size), r,
                       num_new(size, k), false);
}

static void scatter_pass(tri_rounds_list *list, int size)
{
    int levels = tri_log2_ceil(size);
    for (int k = 0; k < levels; k++)
        for (int r = 0; r < size; r++)
            add_blocks(list, (size_t)(levels - 1 - k), tri_rank_mod(r - (1 << k), size), r, r,
                       num_new(size, k), true);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    gather_pass(list, 0, size);
}

static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    scatter_pass(list, size);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    scatter_pass(list, size);
    gather_pass(list, (size_t)tri_log2_ceil(size), size);
}

static void all_to_all(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size * (uint32_t)size;
    for (int from = 0; from < size; from++)
        for (int away = 1; away < size; away++) {
            uint32_t piece = (uint32_t)(from * size + tri_rank_mod(from + away, size));
            for (int k = 0; 1 << k <= away; k++) {
                int at = tri_rank_mod(from + (away & ((1 << k) - 1)), size);
                if (away >> k & 1)
                    tri_rounds_add(list, (size_t)k, at, tri_rank_mod(at + (1 << k), size), piece, 1,
                                   false);
            }
        }
}

/* After round k a rank has heard of 2^(k+1) - 1 others. */
static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)root;
    for (int k = 0; 1 << k < size; k++)
        for (int r = 0; r < size; r++)
            tri_rounds_add(list, (size_t)k, r, tri_rank_mod(r + (1 << k), size), 0, 0, false);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,       [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_ALL_GATHER] = all_gather, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
    [TRI_COLL_ALL_TO_ALL] = all_to_all,
};

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    int size = shape->size;
    double levels = tri_log2_ceil(size), around = bytes * (size - 1) / size, hops = 0;
    switch (coll) {
    case TRI_COLL_BARRIER:
        return (tri_coll_cost){.alpha_count = levels};
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(2 * levels, 2 * around, around);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(levels, around, around);
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(levels, around, 0);
    case TRI_COLL_ALL_TO_ALL:
        for (int away = 1; away < size; away++)
            hops += __builtin_popcount((unsigned)away);
        return tri_cost_of(levels, hops * bytes / size / size, 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_bruck = {
    .name = "bruck",
    .help = "any number of ranks: the ring's bytes in ceil(log2 N) rounds; all_to_all of small "
            "blocks",
    .relays = true,
    .emit = emit,
    .cost = cost,
};
