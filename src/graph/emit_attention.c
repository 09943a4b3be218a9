/* Attention and what belongs to it. */
#include <math.h>

#include "base/rng.h"
#include "graph/emit.h"

tri_id tri_rope(tri_graph *graph, const char *name, tri_id x, tri_id positions,
                const tri_rope_config *rope)
{
    tri_attr attr = {.rope = *rope};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ROPE, tri_graph_name(graph, name), &attr,
                                       (tri_id[]){x, positions}, 2, 1),
                        0);
}

tri_id tri_attention(tri_graph *graph, const char *name, tri_attention_inputs of,
                     tri_attention_config how, const tri_batch_inputs *in)
{
    if (of.q == TRI_NONE)
        return TRI_NONE;
    const char *full = tri_graph_name(graph, name);
    const char *probs = tri_arena_printf(&graph->arena, "%s.probs", full);
    const tri_shape *q = &graph->values[of.q].shape;
    tri_attr attr = {.causal = how.causal,
                     .window = how.window,
                     .dropout = how.dropout,
                     .stream = tri_stream("drop", probs),
                     .alpha = 1 / sqrtf((float)q->dim[q->rank - 1].size)};
    tri_id operands[] = {of.q, of.k, of.v, in->rows, in->step, of.docs};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ATTENTION, full, &attr, operands,
                                       sizeof operands / sizeof *operands, 2),
                        0);
}
