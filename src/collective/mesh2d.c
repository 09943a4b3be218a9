/* mesh2d: an all_reduce along every row, then one along every column, each a ring.
 *
 *     rounds 1-2    0>1 1>0 2>3 3>2     the rows' sums
 *     rounds 3-4    0>2 2>0 1>3 3>1     the sum of those
 *
 * Simple, and what two all_reduces over the axes of a mesh of ranks amount to when nobody joins
 * them. The second pass moves the whole vector again, where torus2d moves a share: compare. */
#include "collective/rounds.h"

static void lines(tri_rounds_list *list, tri_coll coll)
{
    int dim[TRI_COLL_MAX_DIMS], size = list->shape->size;
    tri_shape_dims(list->shape, 2, dim);
    list->num_pieces = coll == TRI_COLL_BARRIER ? 0 : (uint32_t)size;
    for (int d = 0; d < 2; d++) {
        size_t first_round = list->next_round;
        uint32_t scale = (uint32_t)(size / dim[d]);
        for (int line = 0; line < size / dim[d]; line++) {
            tri_rounds_view view = {.first_round = first_round,
                                    .first_rank = d == 0 ? line * dim[0] : line,
                                    .rank_step = d == 0 ? 1 : dim[0],
                                    .piece_step = scale,
                                    .piece_scale = scale};
            tri_rounds_embed(list, &view, tri_algorithm_ring.emit[coll], dim[d], 0);
        }
    }
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    lines(list, TRI_COLL_ALL_REDUCE);
}

static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)size, (void)root;
    lines(list, TRI_COLL_BARRIER);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,
    [TRI_COLL_ALL_REDUCE] = all_reduce,
};

static bool fits(const tri_coll_shape *shape)
{
    int dim[TRI_COLL_MAX_DIMS];
    return tri_shape_dims(shape, 2, dim);
}

static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    int dim[TRI_COLL_MAX_DIMS];
    tri_coll_cost c = {0};
    tri_shape_dims(shape, 2, dim);
    for (int d = 0; d < 2; d++) {
        tri_coll_shape line = tri_shape_flat(dim[d]);
        tri_coll_cost ring = tri_algorithm_ring.cost(coll, &line, bytes);
        c.alpha_count += ring.alpha_count;
        c.beta_bytes += ring.beta_bytes;
        c.gamma_bytes += ring.gamma_bytes;
        c.outer_alpha_count = ring.alpha_count;
        c.outer_beta_bytes = ring.beta_bytes;
    }
    return c;
}

const tri_algorithm tri_algorithm_mesh2d = {
    .name = "mesh2d",
    .help = "rows, then columns, each a whole all_reduce; to compare with torus2d",
    .emit = emit,
    .fits = fits,
    .cost = cost,
};
