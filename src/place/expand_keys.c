#include "place/expand_keys.h"

#include "mesh/mesh.h"

int64_t tri_keys_parts(const tri_graph *graph, const tri_node *node, tri_attention_keys how)
{
    tri_factor_set set = graph->grid.axis[TRI_AXIS_CP_RING].factors;
    return node->attr.attention.keys == how ? tri_grid_size(&graph->grid, set) : 1;
}

tri_keys_node tri_keys_begin(tri_graph *graph, const tri_node *node, int64_t parts)
{
    bool gradient = node->op == TRI_OP_ATTENTION_GRAD;
    int more = gradient ? TRI_NUM_ATTENTION_GRAD_IN - TRI_NUM_ATTENTION_IN : 0;
    tri_keys_node n = {.graph = graph,
                       .node = node,
                       .parts = (int32_t)parts,
                       .first = gradient ? TRI_ATTENTION_GRAD_Q : TRI_ATTENTION_Q,
                       .k_places = TRI_ATTENTION_K_PLACES + more};
    const tri_value *k = &graph->values[node->in[n.first + 1]];
    int axis = tri_grid_axis_of(&graph->grid, graph->grid.axis[TRI_AXIS_CP_RING].factors);
    if (axis < 0)
        tri_graph_fail(graph, "the ranks form more groups than a program has");
    n.axis = (uint8_t)axis;
    n.cut = tri_placement_last(&graph->grid, &k->at.dim[1], k->whole.dim[1], 1, k->at.dim[1].num);
    graph->phase = node->phase;
    graph->layer = node->layer;
    graph->ends_chain = node->ends_chain;
    return n;
}
