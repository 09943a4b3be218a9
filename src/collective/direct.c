/* direct: all read from all, where ranks can read each other's memory.
 *
 * There are no messages. Rank r reads piece r of everybody and sums it up, in the order of the
 * ranks; then everybody reads the finished pieces where they lie. A transfer here is such a read,
 * done by `to`, and a round is what lies between two moments at which the ranks wait for each
 * other:
 *
 *     round 1    1>0:p0  2>0:p0  3>0:p0   0>1:p1  2>1:p1 ...    summed
 *     round 2    1>0:p1  2>0:p2  3>0:p3   0>1:p0  2>1:p2 ...    copied
 *
 * A transport does the reads in its own way; the rounds serve to count, draw and time them. */
#include "collective/rounds.h"

/* Piece r at rank r, from everybody. */
static void combine_own(tri_rounds_list *list, size_t round, int size)
{
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            if (from != to)
                tri_rounds_add(list, round, from, to, (uint32_t)to, 1, true);
}

/* Every rank's own piece, read by one rank, or by all when reader < 0. */
static void read_pieces(tri_rounds_list *list, size_t round, int size, int reader)
{
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            if (from != to && (reader < 0 || to == reader))
                tri_rounds_add(list, round, from, to, (uint32_t)from, 1, false);
}

static void broadcast(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = 1;
    for (int to = 0; to < size; to++)
        if (to != root)
            tri_rounds_add(list, 0, root, to, 0, 1, false);
}

static void reduce(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    combine_own(list, 0, size);
    read_pieces(list, 1, size, root);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    combine_own(list, 0, size);
    read_pieces(list, 1, size, -1);
}

static void gather(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    read_pieces(list, 0, size, root);
}

static void scatter(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    for (int to = 0; to < size; to++)
        if (to != root)
            tri_rounds_add(list, 0, root, to, (uint32_t)to, 1, false);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    read_pieces(list, 0, size, -1);
}

static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    combine_own(list, 0, size);
}

static void all_to_all(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size * (uint32_t)size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            if (from != to)
                tri_rounds_add(list, 0, from, to, (uint32_t)from * (uint32_t)size + (uint32_t)to, 1,
                               false);
}

static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)root;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            if (from != to)
                tri_rounds_add(list, 0, from, to, 0, 0, false);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,       [TRI_COLL_BROADCAST] = broadcast,
    [TRI_COLL_REDUCE] = reduce,         [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_GATHER] = gather,         [TRI_COLL_SCATTER] = scatter,
    [TRI_COLL_ALL_GATHER] = all_gather, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
    [TRI_COLL_ALL_TO_ALL] = all_to_all,
};

/* Only the reader works, and waiting for all costs one latency a round. */
static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    int size = shape->size;
    double one = size > 1, others = bytes * (size - 1) / size;
    switch (coll) {
    case TRI_COLL_BARRIER:
        return (tri_coll_cost){.alpha_count = one};
    case TRI_COLL_BROADCAST:
        return tri_cost_of(one, one * bytes, 0);
    case TRI_COLL_REDUCE:
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(2 * one, 2 * others, others);
    case TRI_COLL_SCATTER:
        return tri_cost_of(one, one * bytes / size, 0);
    case TRI_COLL_GATHER:
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(one, others, 0);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(one, others, others);
    case TRI_COLL_ALL_TO_ALL: /* of the size^2 pieces a rank reads size-1 */
        return tri_cost_of(one, others / size, 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_direct = {
    .name = "direct",
    .help = "ranks of one machine: every byte is read once, where it lies",
    .needs_shared_memory = true,
    .emit = emit,
    .cost = cost,
};
