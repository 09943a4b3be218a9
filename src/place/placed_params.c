#include "place/placed_params.h"

tr_status tri_placed_params_init(tri_placed_params *placed, const tri_param_table *params,
                                 tr_error *err)
{
    *placed = (tri_placed_params){0};
    tri_arena_init(&placed->arena);
    size_t bytes = (params->count + 1) * sizeof *placed->local_shape;
    placed->local_shape = tri_arena_alloc(&placed->arena, bytes);
    if (!placed->local_shape) {
        tri_placed_params_fini(placed);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place %zu parameters", params->count);
    }
    for (size_t i = 0; i < params->count; i++)
        placed->local_shape[i] = params->items[i].shape;
    return TR_OK;
}

void tri_placed_params_fini(tri_placed_params *placed)
{
    tri_arena_fini(&placed->arena);
    *placed = (tri_placed_params){0};
}

static int kind_of(const tri_param *param)
{
    return param->role == TRI_ROLE_EXPERTS ? 1 : param->role == TRI_ROLE_STEERED ? 2 : 0;
}

bool tri_same_bucket(const tri_graph *graph, const tri_homes *homes, size_t a, size_t b)
{
    const tri_param *x = &graph->params->items[a], *y = &graph->params->items[b];
    return x->layer == y->layer && kind_of(x) == kind_of(y) &&
           (!homes->set || tri_home_set_equal(homes->set[a], homes->set[b])) &&
           tri_param_has_copy(x, graph->precision.compute) ==
               tri_param_has_copy(y, graph->precision.compute);
}
