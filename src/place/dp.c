#include "graph/op_table.h"
#include "place/place.h"

/* Completes the sum that the newest version of a state is a term of. */
static tri_id all_reduce(tri_graph *graph, tri_id state)
{
    tri_attr attr = {.axis = TRI_AXIS_DP};
    tri_id latest = graph->states[state].latest;
    tri_id node =
        tri_graph_emit(graph, TRI_OP_ALL_REDUCE, graph->states[state].name, &attr, &latest, 1, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

/* States are taken in the order in which the memory plan lays them out, so that the sums travel in
 * one message. */
tr_status tri_place_dp(tri_graph *graph, const tri_mesh *mesh, tr_error *err)
{
    if (tri_mesh_size(mesh, TRI_AXIS_DP) == 1 || graph->loss == TRI_NONE)
        return TR_OK;
    bool training = graph->phase == TRI_PHASE_BACKWARD;
    graph->phase = training ? TRI_PHASE_UPDATE : TRI_PHASE_FORWARD;
    graph->layer = graph->num_layers;
    size_t num_states = graph->num_states;
    for (tri_dtype dtype = 0; training && dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = 0; s < num_states; s++)
            if (graph->states[s].kind == TRI_STATE_GRAD && graph->states[s].dtype == dtype)
                all_reduce(graph, (tri_id)s);
    TRI_TRY(tri_graph_status(graph, err));
    graph->loss = all_reduce(graph, graph->values[graph->loss].state);
    graph->count = all_reduce(graph, graph->values[graph->count].state);
    if (graph->hits != TRI_NONE)
        graph->hits = all_reduce(graph, graph->values[graph->hits].state);
    return tri_graph_status(graph, err);
}
