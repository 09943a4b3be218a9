/* sharded_ps: the parameter server, sharded over the ranks. Rank r serves piece r of the vector.
 * Everybody pushes to every server its term of the server's piece; the server aggregates them in
 * the order of the ranks; everybody pulls the results.
 *
 *     round 1    1>0:p0  2>0:p0  3>0:p0   0>1:p1  2>1:p1 ...    push, summed
 *     round 2    0>1:p0  0>2:p0  0>3:p0   1>0:p1  1>2:p1 ...    pull
 *
 * As many bytes and messages as the ring, but in two rounds: a rank waits twice, not 2(N-1) times.
 * Its N-1 messages of a round leave together, and it pays for each: for few ranks on a network that
 * takes it. reduce_scatter is the push, all_gather the pull. */
#include "collective/rounds.h"

static void push(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    for (int from = 0; from < size; from++)
        for (int server = 0; server < size; server++)
            if (from != server)
                tri_rounds_add(list, 0, from, server, (uint32_t)server, 1, true);
}

static void add_pull(tri_rounds_list *list, size_t round, int size)
{
    list->num_pieces = (uint32_t)size;
    for (int server = 0; server < size; server++)
        for (int to = 0; to < size; to++)
            if (server != to)
                tri_rounds_add(list, round, server, to, (uint32_t)server, 1, false);
}

static void pull(tri_rounds_list *list, int size, int root)
{
    (void)root;
    add_pull(list, 0, size);
}

static void push_and_pull(tri_rounds_list *list, int size, int root)
{
    push(list, size, root);
    add_pull(list, 1, size);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_ALL_REDUCE] = push_and_pull,
    [TRI_COLL_ALL_GATHER] = pull,
    [TRI_COLL_REDUCE_SCATTER] = push,
};

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    double hops = shape->size - 1, others = bytes * hops / shape->size;
    switch (coll) {
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(2 * hops, 2 * others, others);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(hops, others, others);
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(hops, others, 0);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_sharded_ps = {
    .name = "sharded_ps",
    .help = "few ranks: push to the servers of all pieces, pull the results, two rounds in all",
    .emit = emit,
    .cost = cost,
};
