/* hierarchical: within the machine, between machines, within again. One rank of each machine, the
 * leader, speaks for the others; only leaders use the links between machines.
 *
 *     all_reduce       reduce to the leader (tree)   leaders: rabenseifner      broadcast (tree)
 *     all_gather       gather to the leader (tree)   leaders: bruck             broadcast (tree)
 *     reduce_scatter   reduce to the leader (tree)   leaders: bruck             scatter (tree)
 *     with a root      the same with trees; leaders are the ranks with the root's place in their
 *                      machine, so that the root is one
 *
 * Few messages between machines, each of them large: for machines with many ranks whose links have
 * a long latency. Within a machine whole vectors move, so where bandwidth counts torus2d is better.
 *
 * The shape is ranks of a machine x machines; when it is not known, two factors as equal as
 * possible, or one machine. */
#include "collective/rounds.h"

typedef struct machines {
    int ranks, num; /* of each; how many */
} machines;

static machines split(const tri_coll_shape *shape)
{
    int dim[TRI_COLL_MAX_DIMS];
    tri_shape_dims(shape, 2, dim);
    if (dim[0] * dim[1] != shape->size)
        return (machines){shape->size, 1};
    return (machines){dim[0], dim[1]};
}

/* In every machine at once. Blocks: those of the machine's ranks; otherwise the whole vector, of
 * which the part has one piece. */
static void within(tri_rounds_list *list, machines m, tri_coll coll, int leader, bool blocks)
{
    size_t first_round = list->next_round;
    uint32_t scale = blocks ? 1 : list->num_pieces;
    for (int i = 0; i < m.num; i++) {
        tri_rounds_view view = {.first_round = first_round,
                                .first_rank = i * m.ranks,
                                .rank_step = 1,
                                .first_piece = blocks ? (uint32_t)(i * m.ranks) : 0,
                                .piece_step = scale,
                                .piece_scale = scale};
        tri_rounds_embed(list, &view, tri_algorithm_tree.emit[coll], m.ranks, leader);
    }
}

/* Among the leaders; a piece of theirs is `scale` of ours. */
static void between(tri_rounds_list *list, machines m, const tri_algorithm *by, tri_coll coll,
                    int leader, int root_machine, uint32_t scale)
{
    tri_rounds_view view = {.first_round = list->next_round,
                            .first_rank = leader,
                            .rank_step = m.ranks,
                            .piece_step = scale,
                            .piece_scale = scale};
    tri_rounds_embed(list, &view, by->emit[coll], m.num, root_machine);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    machines m = split(list->shape);
    list->num_pieces = 1u << tri_log2_floor(m.num); /* what rabenseifner cuts it into */
    within(list, m, TRI_COLL_REDUCE, 0, false);
    between(list, m, &tri_algorithm_rabenseifner, TRI_COLL_ALL_REDUCE, 0, 0, 1);
    within(list, m, TRI_COLL_BROADCAST, 0, false);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    machines m = split(list->shape);
    list->num_pieces = (uint32_t)size;
    within(list, m, TRI_COLL_GATHER, 0, true);
    between(list, m, &tri_algorithm_bruck, TRI_COLL_ALL_GATHER, 0, 0, (uint32_t)m.ranks);
    within(list, m, TRI_COLL_BROADCAST, 0, false);
}

static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    machines m = split(list->shape);
    list->num_pieces = (uint32_t)size;
    within(list, m, TRI_COLL_REDUCE, 0, false);
    between(list, m, &tri_algorithm_bruck, TRI_COLL_REDUCE_SCATTER, 0, 0, (uint32_t)m.ranks);
    within(list, m, TRI_COLL_SCATTER, 0, true);
}

static void to_root(tri_rounds_list *list, int root, tri_coll coll, bool blocks)
{
    machines m = split(list->shape);
    within(list, m, coll, root % m.ranks, blocks);
    between(list, m, &tri_algorithm_tree, coll, root % m.ranks, root / m.ranks,
            blocks ? (uint32_t)m.ranks : list->num_pieces);
}

static void from_root(tri_rounds_list *list, int root, tri_coll coll, bool blocks)
{
    machines m = split(list->shape);
    between(list, m, &tri_algorithm_tree, coll, root % m.ranks, root / m.ranks,
            blocks ? (uint32_t)m.ranks : list->num_pieces);
    within(list, m, coll, root % m.ranks, blocks);
}

static void broadcast(tri_rounds_list *list, int size, int root)
{
    (void)size;
    list->num_pieces = 1;
    from_root(list, root, TRI_COLL_BROADCAST, false);
}

static void reduce(tri_rounds_list *list, int size, int root)
{
    (void)size;
    list->num_pieces = 1;
    to_root(list, root, TRI_COLL_REDUCE, false);
}

static void gather(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    to_root(list, root, TRI_COLL_GATHER, true);
}

static void scatter(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    from_root(list, root, TRI_COLL_SCATTER, true);
}

/* A reduce and a broadcast of nothing around the leaders' own. */
static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    machines m = split(list->shape);
    within(list, m, TRI_COLL_REDUCE, 0, false);
    between(list, m, &tri_algorithm_bruck, TRI_COLL_BARRIER, 0, 0, 1);
    within(list, m, TRI_COLL_BROADCAST, 0, false);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,       [TRI_COLL_BROADCAST] = broadcast,
    [TRI_COLL_REDUCE] = reduce,         [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_GATHER] = gather,         [TRI_COLL_SCATTER] = scatter,
    [TRI_COLL_ALL_GATHER] = all_gather, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
};

static tri_coll_cost part(const tri_algorithm *by, tri_coll coll, int size, double bytes)
{
    tri_coll_shape shape = tri_shape_flat(size);
    return by->cost(coll, &shape, bytes);
}

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    const tri_algorithm *tree = &tri_algorithm_tree, *bruck = &tri_algorithm_bruck;
    machines m = split(shape);
    double own = bytes / m.num; /* the blocks of a machine */
    tri_coll_cost c[3] = {{0}};
    switch (coll) {
    case TRI_COLL_BARRIER:
        c[0] = part(tree, TRI_COLL_BARRIER, m.ranks, 0);
        c[1] = part(bruck, TRI_COLL_BARRIER, m.num, 0);
        break;
    case TRI_COLL_ALL_REDUCE:
        c[0] = part(tree, TRI_COLL_REDUCE, m.ranks, bytes);
        c[1] = part(&tri_algorithm_rabenseifner, coll, m.num, bytes);
        c[2] = part(tree, TRI_COLL_BROADCAST, m.ranks, bytes);
        break;
    case TRI_COLL_ALL_GATHER:
        c[0] = part(tree, TRI_COLL_GATHER, m.ranks, own);
        c[1] = part(bruck, coll, m.num, bytes);
        c[2] = part(tree, TRI_COLL_BROADCAST, m.ranks, bytes);
        break;
    case TRI_COLL_REDUCE_SCATTER:
        c[0] = part(tree, TRI_COLL_REDUCE, m.ranks, bytes);
        c[1] = part(bruck, coll, m.num, bytes);
        c[2] = part(tree, TRI_COLL_SCATTER, m.ranks, own);
        break;
    default: /* with a root */
        c[0] = part(tree, coll, m.ranks,
                    coll == TRI_COLL_GATHER || coll == TRI_COLL_SCATTER ? own : bytes);
        c[1] = part(tree, coll, m.num, bytes);
    }
    tri_coll_cost sum = {.outer_alpha_count = c[1].alpha_count,
                         .outer_beta_bytes = c[1].beta_bytes};
    for (int i = 0; i < 3; i++) {
        sum.alpha_count += c[i].alpha_count;
        sum.beta_bytes += c[i].beta_bytes;
        sum.gamma_bytes += c[i].gamma_bytes;
    }
    return sum;
}

const tri_algorithm tri_algorithm_hierarchical = {
    .name = "hierarchical",
    .help = "machines with many ranks and slow links between them: one rank of each speaks",
    .emit = emit,
    .cost = cost,
};
