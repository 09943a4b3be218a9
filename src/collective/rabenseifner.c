/* rabenseifner: recursive halving, then recursive doubling. Halving: a rank exchanges half of its
 * vector with the rank N/2 away, keeps the sum of its own half, and goes on with a half of that;
 * after log2 N rounds each has one piece of the sum. Doubling gives the pieces back.
 *
 *     round 1    0<>2 1<>3  half of the vector      summed
 *     round 2    0<>1 2<>3  a quarter               summed
 *     round 3    0<>1 2<>3  a quarter               copied
 *     round 4    0<>2 1<>3  half                    copied
 *
 * As few bytes as the ring in 2 log2 N rounds: the best of both where any rank reaches any other
 * equally well and N is a power of two. Other numbers are folded (fold.h), which costs the whole
 * vector twice more; bruck does not need that. */
#include "collective/fold.h"

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    tri_fold f = tri_fold_of(size);
    list->num_pieces = (uint32_t)f.num;
    tri_fold_in(list, &f, 0, list->num_pieces);
    tri_fold_scatter(list, &f, 1, false);
    tri_fold_gather(list, &f, (size_t)f.levels + 1, false);
    for (int i = 0; i < f.pairs; i++)
        tri_rounds_add(list, 2 * (size_t)f.levels + 1, 2 * i, 2 * i + 1, 0, list->num_pieces,
                       false);
}

static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    tri_fold f = tri_fold_of(size);
    list->num_pieces = (uint32_t)size;
    tri_fold_in(list, &f, 0, list->num_pieces);
    tri_fold_scatter(list, &f, 1, true);
    for (int i = 0; i < f.pairs; i++)
        tri_rounds_add(list, (size_t)f.levels + 1, 2 * i, 2 * i + 1, (uint32_t)(2 * i + 1), 1,
                       false);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    tri_algorithm_doubling.emit[TRI_COLL_ALL_GATHER](list, size, root);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_ALL_GATHER] = all_gather,
    [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
};

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    tri_fold f = tri_fold_of(shape->size);
    double folds = f.pairs > 0, rounds = f.levels + 2 * folds;
    double pass = bytes * (f.num - 1) / f.num, blocks = tri_fold_pass_bytes(&f, bytes);
    switch (coll) {
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(rounds + f.levels, 2 * pass + 2 * folds * bytes, pass + folds * bytes);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(rounds, blocks + folds * (bytes + bytes / f.size),
                           blocks + folds * bytes);
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(rounds, tri_fold_gather_bytes(&f, bytes), 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_rabenseifner = {
    .name = "rabenseifner",
    .help = "2^k ranks, all sizes: the ring's bytes in 2 log2(N) rounds",
    .emit = emit,
    .cost = cost,
};
