/* torus2d, torus3d: rings along the axes of a grid, one axis after the other.
 *
 * An all_reduce is a reduce_scatter along the first axis, after which every rank has its share of
 * the sum over its row; then the same with that share along the next axis, and so on; and all
 * backwards as all_gathers. On 2 x 2 ranks, where 0 1 is the first row:
 *
 *     round 1    0>1 1>0 2>3 3>2    half of the vector      summed
 *     round 2    0>2 2>0 1>3 3>1    a quarter               summed
 *     round 3    0>2 2>0 1>3 3>1    a quarter               copied
 *     round 4    0>1 1>0 2>3 3>2    half                    copied
 *
 * As few bytes as the ring, in 2 (X-1 + Y-1) rounds instead of 2 (X Y - 1); and the later an axis,
 * the less its links carry: the last one 1/X of what the ring would send over it. With machines as
 * the last axis this is what a cluster wants.
 *
 * In an all_to_all a block goes along one axis after the other, through ranks it is not for. */
#include "collective/rounds.h"

typedef struct grid {
    int num_dims, dim[TRI_COLL_MAX_DIMS];
    int stride[TRI_COLL_MAX_DIMS];            /* between neighbours of an axis, in ranks */
    uint32_t piece_stride[TRI_COLL_MAX_DIMS]; /* and in pieces, by the place they end at */
} grid;

/* Pieces in memory order of the shares, so that what an axis moves is one run; or blocks, which lie
 * by rank. */
static grid make_grid(const tri_coll_shape *shape, int num_dims, bool blocks)
{
    grid g = {.num_dims = num_dims};
    int stride = 1;
    uint32_t pieces = (uint32_t)shape->size;
    tri_shape_dims(shape, num_dims, g.dim);
    for (int d = 0; d < num_dims; d++) {
        g.stride[d] = stride;
        stride *= g.dim[d];
        pieces /= (uint32_t)g.dim[d];
        g.piece_stride[d] = blocks ? (uint32_t)g.stride[d] : pieces;
    }
    return g;
}

static int coordinate(const grid *g, int rank, int d)
{
    return rank / g->stride[d] % g->dim[d];
}

/* One axis: rings of all lines at once. What lies along axes before is the rank's own share; what
 * lies along axes after it is moved together, a view for each. */
static void along(tri_rounds_list *list, const grid *g, int d, tri_rounds_emit emit)
{
    size_t first_round = list->next_round;
    int size = list->shape->size, behind = 1;
    for (int e = d + 1; e < g->num_dims; e++)
        behind *= g->dim[e];
    if (list->num_pieces == 0) /* a barrier moves nothing */
        behind = 1;
    for (int rank = 0; rank < size; rank++) {
        if (coordinate(g, rank, d) != 0)
            continue; /* a line is begun by its first */
        uint32_t own = 0;
        for (int e = 0; e < d; e++)
            own += (uint32_t)coordinate(g, rank, e) * g->piece_stride[e];
        for (int b = 0; b < behind; b++) {
            uint32_t at = own;
            for (int e = d + 1, rest = b; e < g->num_dims; rest /= g->dim[e], e++)
                at += (uint32_t)(rest % g->dim[e]) * g->piece_stride[e];
            tri_rounds_view view = {.first_round = first_round,
                                    .first_rank = rank,
                                    .rank_step = g->stride[d],
                                    .first_piece = at,
                                    .piece_step = g->piece_stride[d],
                                    .piece_scale = 1};
            tri_rounds_embed(list, &view, emit, g->dim[d], 0);
        }
    }
}

static void run(tri_rounds_list *list, int num_dims, tri_coll coll)
{
    grid g = make_grid(list->shape, num_dims, coll != TRI_COLL_ALL_REDUCE);
    const tri_rounds_emit *ring = tri_algorithm_ring.emit;
    list->num_pieces = coll == TRI_COLL_BARRIER ? 0 : (uint32_t)list->shape->size;
    for (int d = 0; d < num_dims && coll != TRI_COLL_ALL_GATHER; d++)
        along(list, &g, d, ring[coll == TRI_COLL_BARRIER ? coll : TRI_COLL_REDUCE_SCATTER]);
    for (int d = num_dims; d-- > 0 && (coll == TRI_COLL_ALL_GATHER || coll == TRI_COLL_ALL_REDUCE);)
        along(list, &g, d, ring[TRI_COLL_ALL_GATHER]);
}

/* Where a block from one rank to another is when the first `done` axes are behind it. */
static int on_the_way(const grid *g, int from, int to, int done)
{
    int rank = 0;
    for (int d = 0; d < g->num_dims; d++)
        rank += coordinate(g, d < done ? to : from, d) * g->stride[d];
    return rank;
}

static void exchange(tri_rounds_list *list, int num_dims)
{
    grid g = make_grid(list->shape, num_dims, true);
    int size = list->shape->size;
    list->num_pieces = (uint32_t)size * (uint32_t)size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int d = 0, round = 0; d < num_dims; round += g.dim[d++] - 1) {
                int k = tri_rank_mod(coordinate(&g, to, d) - coordinate(&g, from, d), g.dim[d]);
                if (k > 0)
                    tri_rounds_add(list, (size_t)(round + k - 1), on_the_way(&g, from, to, d),
                                   on_the_way(&g, from, to, d + 1),
                                   (uint32_t)from * (uint32_t)size + (uint32_t)to, 1, false);
            }
}

static tri_coll_cost cost_of(tri_coll coll, const tri_coll_shape *shape, int num_dims, double bytes)
{
    tri_coll_cost c = {0};
    int dim[TRI_COLL_MAX_DIMS];
    double share = bytes, passes = coll == TRI_COLL_ALL_REDUCE ? 2 : 1;
    tri_shape_dims(shape, num_dims, dim);
    for (int d = 0; d < num_dims; d++) {
        double hops = dim[d] - 1;
        double moved = share * hops / dim[d]; /* of a pass */
        if (coll == TRI_COLL_ALL_TO_ALL)
            moved = bytes / shape->size * hops / dim[d];
        else
            share /= dim[d];
        c.outer_alpha_count = passes * hops;
        c.outer_beta_bytes = coll == TRI_COLL_BARRIER ? 0 : passes * moved;
        c.alpha_count += c.outer_alpha_count;
        c.beta_bytes += c.outer_beta_bytes;
        if (coll == TRI_COLL_ALL_REDUCE || coll == TRI_COLL_REDUCE_SCATTER)
            c.gamma_bytes += moved;
    }
    return c;
}

static void all_reduce2(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 2, TRI_COLL_ALL_REDUCE);
}

static void all_gather2(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 2, TRI_COLL_ALL_GATHER);
}

static void reduce_scatter2(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 2, TRI_COLL_REDUCE_SCATTER);
}

static void barrier2(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 2, TRI_COLL_BARRIER);
}

static void all_to_all2(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    exchange(list, 2);
}

static void all_reduce3(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 3, TRI_COLL_ALL_REDUCE);
}

static void all_gather3(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 3, TRI_COLL_ALL_GATHER);
}

static void reduce_scatter3(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 3, TRI_COLL_REDUCE_SCATTER);
}

static void barrier3(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    run(list, 3, TRI_COLL_BARRIER);
}

static void all_to_all3(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    exchange(list, 3);
}

static const tri_rounds_emit emit2[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier2,       [TRI_COLL_ALL_REDUCE] = all_reduce2,
    [TRI_COLL_ALL_GATHER] = all_gather2, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter2,
    [TRI_COLL_ALL_TO_ALL] = all_to_all2,
};

static const tri_rounds_emit emit3[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier3,       [TRI_COLL_ALL_REDUCE] = all_reduce3,
    [TRI_COLL_ALL_GATHER] = all_gather3, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter3,
    [TRI_COLL_ALL_TO_ALL] = all_to_all3,
};

static bool fits2(const tri_coll_shape *shape)
{
    int dim[TRI_COLL_MAX_DIMS];
    return tri_shape_dims(shape, 2, dim);
}

static bool fits3(const tri_coll_shape *shape)
{
    int dim[TRI_COLL_MAX_DIMS];
    return tri_shape_dims(shape, 3, dim);
}

static tri_coll_cost cost2(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    return cost_of(coll, shape, 2, bytes);
}

static tri_coll_cost cost3(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    return cost_of(coll, shape, 3, bytes);
}

const tri_algorithm tri_algorithm_torus2d = {
    .name = "torus2d",
    .help = "large vectors on many ranks, or on machines with several: rings along both axes",
    .relays = true,
    .emit = emit2,
    .fits = fits2,
    .cost = cost2,
};

const tri_algorithm tri_algorithm_torus3d = {
    .name = "torus3d",
    .help = "the same along three axes: fewer rounds still",
    .relays = true,
    .emit = emit3,
    .fits = fits3,
    .cost = cost3,
};
