/* doubling: recursive doubling, the butterfly. In round k every rank exchanges all it has with the
 * one whose number differs in bit k; after log2 N rounds all have everything.
 *
 *     round 1    0-1  2-3        all_reduce: the whole vector each time
 *     round 2    0-2  1-3        all_gather: 1, 2, 4 ... blocks
 *
 * It sends more than the ring and has the fewest rounds there can be: for small vectors.
 *
 * When N is no power of two, with Q the largest that is in it and R = N - Q, the first 2R ranks
 * form pairs. The odd one gives its part to the even one before and gets the result after; the Q
 * ranks that remain (evens of pairs, then the rest) are the butterfly. Their blocks still follow
 * each other in memory, so a set of neighbours is one run.
 *
 * Both ends of an exchange combine the same two terms, each its own first: sum and product are
 * commutative to the bit, minimum and maximum but for the sign of a zero. */
#include "collective/fold.h"

/* Ranks lo .. hi of the butterfly exchange what they have. */
static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    tri_fold f = tri_fold_of(size);
    list->num_pieces = 1;
    tri_fold_in(list, &f, 0, 1);
    for (int k = 0; k < f.levels; k++)
        for (int i = 0; i < f.num; i++)
            tri_rounds_add(list, (size_t)k + 1, tri_fold_rank(&f, i),
                           tri_fold_rank(&f, i ^ (1 << k)), 0, 1, true);
    for (int i = 0; i < f.pairs; i++)
        tri_rounds_add(list, (size_t)f.levels + 1, 2 * i, 2 * i + 1, 0, 1, false);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    tri_fold f = tri_fold_of(size);
    list->num_pieces = (uint32_t)size;
    for (int i = 0; i < f.pairs; i++)
        tri_rounds_add(list, 0, 2 * i + 1, 2 * i, (uint32_t)(2 * i + 1), 1, false);
    tri_fold_gather(list, &f, 1, true);
    for (int i = 0; i < f.pairs; i++) { /* all but what the odd one brought */
        size_t round = (size_t)f.levels + 1;
        uint32_t odd = (uint32_t)(2 * i + 1);
        tri_rounds_add(list, round, 2 * i, 2 * i + 1, 0, odd, false);
        if (odd + 1 < (uint32_t)size)
            tri_rounds_add(list, round, 2 * i, 2 * i + 1, odd + 1, (uint32_t)size - odd - 1, false);
    }
}

static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)root;
    tri_fold f = tri_fold_of(size);
    for (int i = 0; i < f.pairs; i++) {
        tri_rounds_add(list, 0, 2 * i + 1, 2 * i, 0, 0, false);
        tri_rounds_add(list, (size_t)f.levels + 1, 2 * i, 2 * i + 1, 0, 0, false);
    }
    for (int k = 0; k < f.levels; k++)
        for (int i = 0; i < f.num; i++)
            tri_rounds_add(list, (size_t)k + 1, tri_fold_rank(&f, i),
                           tri_fold_rank(&f, i ^ (1 << k)), 0, 0, false);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,
    [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_ALL_GATHER] = all_gather,
};

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    tri_fold f = tri_fold_of(shape->size);
    double folds = f.pairs > 0, rounds = f.levels + 2 * folds;
    switch (coll) {
    case TRI_COLL_BARRIER:
        return (tri_coll_cost){.alpha_count = rounds};
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(rounds, rounds * bytes, (f.levels + folds) * bytes);
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(rounds, tri_fold_gather_bytes(&f, bytes), 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_doubling = {
    .name = "doubling",
    .help = "small vectors: log2(N) rounds, the fewest there can be",
    .emit = emit,
    .cost = cost,
};
