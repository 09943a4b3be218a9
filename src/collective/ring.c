/* ring: every rank talks to its two neighbours only, and all links carry something in every round.
 *
 * The vector is cut into N pieces. In the first half of an all-reduce piece i sets out at rank i
 * and is summed on its way around; after N-1 rounds it is complete one rank before where it began.
 * In the second half the complete pieces go around once more. On four ranks:
 *
 *     round 1    0>1:p0  1>2:p1  2>3:p2  3>0:p3     summed
 *     round 2    0>1:p3  1>2:p0  2>3:p1  3>0:p2     summed
 *     round 3    0>1:p2  1>2:p3  2>3:p0  3>0:p1     summed: pieces 0 1 2 3 are at ranks 3 0 1 2
 *     round 4    0>1:p1  1>2:p2  2>3:p3  3>0:p0     copied
 *     ...
 *
 * Each rank moves 2S(N-1)/N bytes, which no algorithm can undercut, in 2(N-1) rounds, which most
 * can: the ring is for large vectors.
 *
 * Operations with a root are a chain along the ring, through which pieces follow each other. The
 * one operation that leaves the ring is all_to_all: what rank r has for rank r+k goes there at once
 * in round k, since a forwarded piece would have no place in the vectors of the ranks between. */
#include "collective/rounds.h"

/* Once around the ring: in round s rank r passes on piece r + start - s. */
static void go_around(tri_rounds_list *list, size_t first_round, int size, int start, bool combine)
{
    for (int s = 0; s < size - 1; s++)
        for (int r = 0; r < size; r++)
            tri_rounds_add(list, first_round + (size_t)s, r, tri_rank_mod(r + 1, size),
                           (uint32_t)tri_rank_mod(r + start - s, size), 1, combine);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    go_around(list, 0, size, 0, true);
    go_around(list, (size_t)size - 1, size, 1, false); /* rank r has piece r+1 complete */
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    go_around(list, 0, size, 0, false);
}

/* Block r must end at rank r, so it begins one rank later than in all_reduce. */
static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    go_around(list, 0, size, -1, true);
}

/* Pieces of a chain of size-1 hops. More of them fill it better: the time is 1 + (size-2)/pieces
 * times that of one hop, so four for each hop after the first cost a quarter more than the least
 * possible. With one hop there is nothing to fill. */
static int chain_pieces(int size)
{
    return size > 2 ? 4 * (size - 2) : 1;
}

/* Piece k takes hop h in round k + h. */
static void chain(tri_rounds_list *list, int size, int begin, bool combine)
{
    int num_pieces = chain_pieces(size);
    list->num_pieces = (uint32_t)num_pieces;
    for (int k = 0; k < num_pieces; k++)
        for (int hop = 0; hop < size - 1; hop++)
            tri_rounds_add(list, (size_t)(k + hop), tri_rank_mod(begin + hop, size),
                           tri_rank_mod(begin + hop + 1, size), (uint32_t)k, 1, combine);
}

static void broadcast(tri_rounds_list *list, int size, int root)
{
    chain(list, size, root, false);
}

/* The chain that ends at the root begins with the rank after it. */
static void reduce(tri_rounds_list *list, int size, int root)
{
    chain(list, size, root + 1, true);
}

/* Blocks walk to the root; in round s the rank at distance d from it passes on the block of the
 * rank s places behind. */
static void gather(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    for (int s = 0; s < size - 1; s++)
        for (int d = 1; d + s < size; d++)
            tri_rounds_add(list, (size_t)s, tri_rank_mod(root - d, size),
                           tri_rank_mod(root - d + 1, size),
                           (uint32_t)tri_rank_mod(root - d - s, size), 1, false);
}

/* The block with the longest way leaves first, so that all arrive in the last round. */
static void scatter(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    for (int d = size - 1; d >= 1; d--)
        for (int hop = 0; hop < d; hop++)
            tri_rounds_add(list, (size_t)(size - 1 - d + hop), tri_rank_mod(root + hop, size),
                           tri_rank_mod(root + hop + 1, size),
                           (uint32_t)tri_rank_mod(root + d, size), 1, false);
}

static void all_to_all(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size * (uint32_t)size;
    for (int k = 1; k < size; k++)
        for (int r = 0; r < size; r++) {
            int to = tri_rank_mod(r + k, size);
            tri_rounds_add(list, (size_t)k, r, to, (uint32_t)r * (uint32_t)size + (uint32_t)to, 1,
                           false);
        }
}

/* An all-gather of nothing: after round s a rank has heard of the s+1 ranks before it. */
static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)root;
    for (int s = 0; s < size - 1; s++)
        for (int r = 0; r < size; r++)
            tri_rounds_add(list, (size_t)s, r, tri_rank_mod(r + 1, size), 0, 0, false);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,       [TRI_COLL_BROADCAST] = broadcast,
    [TRI_COLL_REDUCE] = reduce,         [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_GATHER] = gather,         [TRI_COLL_SCATTER] = scatter,
    [TRI_COLL_ALL_GATHER] = all_gather, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
    [TRI_COLL_ALL_TO_ALL] = all_to_all,
};

/* N-1 rounds of one block each are (N-1)(alpha + S/N beta). */
static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    int size = shape->size;
    double hops = size - 1, around = bytes * hops / size;
    double chain_rounds = chain_pieces(size) + size - 2;
    double through = bytes * chain_rounds / chain_pieces(size);
    switch (coll) {
    case TRI_COLL_BARRIER:
        return (tri_coll_cost){.alpha_count = hops};
    case TRI_COLL_BROADCAST:
        return tri_cost_of(chain_rounds, through, 0);
    case TRI_COLL_REDUCE:
        return tri_cost_of(chain_rounds, through, through);
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(2 * hops, 2 * around, around);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(hops, around, around);
    case TRI_COLL_GATHER:
    case TRI_COLL_SCATTER:
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(hops, around, 0);
    case TRI_COLL_ALL_TO_ALL: /* one of the size^2 pieces in a round */
        return tri_cost_of(hops, around / size, 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_ring = {
    .name = "ring",
    .help = "large vectors: each link carries the least bytes possible, in many rounds",
    .emit = emit,
    .cost = cost,
};
