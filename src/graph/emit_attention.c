/* Attention and what belongs to it. */
#include <math.h>

#include "base/rng.h"
#include "graph/emit.h"

tri_id tri_rope(tri_graph *graph, const char *name, tri_id x, tri_id positions,
                const tri_rope_config *rope)
{
    tri_attr attr = {.rope = {.config = *rope}};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ROPE, tri_graph_name(graph, name), &attr,
                                       (tri_id[]){x, positions}, 2, 1),
                        0);
}

/* Keys and values go to the cache of this layer, and queries look at what it then holds. The
 * positions of a text are its places: those that are negative are not there. */
static tri_id attend_to_cache(tri_graph *graph, const char *full, tri_attention_inputs of,
                              tri_attention_config how, const tri_batch_inputs *in,
                              const tri_attr *attr)
{
    if (!how.causal || of.docs != TRI_NONE) {
        tri_graph_fail(graph,
                       "%s: only attention that looks back, and at all documents, can be "
                       "cached; this model cannot generate text",
                       full);
        return TRI_NONE;
    }
    const tri_value *like = tri_value_at(graph, of.k == TRI_NONE ? of.q : of.k);
    int64_t len = graph->cache.len, needed = how.window + graph->cache.block - 1;
    if (how.window > 0 && needed < len)
        len = needed;
    tri_shape shape = {.rank = 4,
                       .dim = {{TRI_DIM_B, graph->cache.rows},
                               like->shape.dim[like->shape.rank - 2],
                               {TRI_DIM_P, len},
                               like->shape.dim[like->shape.rank - 1]}};
    tri_dtype dtype = like->dtype;
    tri_id operands[6] = {TRI_NONE, TRI_NONE,      of.k == TRI_NONE ? of.q : of.k,
                          of.v,     in->positions, in->rows};
    static const char *const names[] = {"k", "v"};
    for (int i = 0; i < 2; i++) {
        const char *name = tri_arena_printf(&graph->arena, "%s.cache.%s", full, names[i]);
        tri_id state = tri_graph_state(graph, TRI_STATE_CACHE, name, dtype, shape, TRI_NONE);
        if (graph->arena.failed)
            return TRI_NONE;
        operands[i] = graph->states[state].latest;
    }
    tri_id node = tri_graph_emit(graph, TRI_OP_CACHE_WRITE, full, NULL, operands, 6, 2);
    tri_attr cached = *attr;
    cached.attention.cached = true;
    tri_id look[] = {of.q,
                     tri_node_out(graph, node, 0),
                     tri_node_out(graph, node, 1),
                     in->rows,
                     in->step,
                     TRI_NONE,
                     TRI_NONE,
                     in->positions};
    return tri_node_out(
        graph,
        tri_graph_emit(graph, TRI_OP_ATTENTION, full, &cached, look, sizeof look / sizeof *look, 2),
        0);
}

/* Tokens of a row lie in any order. Queries may be on other ranks than keys, so they are apart. */
static tri_id attend_by_place(tri_graph *graph, const char *full, tri_attention_inputs of,
                              const tri_batch_inputs *in, const tri_attr *attr)
{
    tri_attr by_place = *attr;
    tri_attention_attr *how = &by_place.attention;
    how->share =
        (float)tri_attention_share(how->causal, how->window, graph->values[of.q].shape.dim[1].size);
    if (of.k == TRI_NONE) {
        tri_id parts = tri_graph_emit(graph, TRI_OP_SPLIT_QKV, full, NULL, &of.q, 1, 3);
        of.q = tri_node_out(graph, parts, 0);
        of.k = tri_node_out(graph, parts, 1);
        of.v = tri_node_out(graph, parts, 2);
    }
    tri_id operands[] = {of.q,     of.k,     of.v,       in->rows,  in->step,
                         TRI_NONE, in->span, in->places, in->places};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ATTENTION, full, &by_place, operands,
                                       sizeof operands / sizeof *operands, 2),
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
    tri_attr attr = {.attention = {.causal = how.causal,
                                   .window = how.window,
                                   .dropout = how.dropout,
                                   .stream = tri_stream("drop", probs),
                                   .alpha = 1 / sqrtf((float)q->dim[q->rank - 1].size)}};
    if (graph->cache.rows > 0)
        return attend_to_cache(graph, full, of, how, in, &attr);
    if (in->by_place)
        return attend_by_place(graph, full, of, in, &attr);
    tri_id operands[] = {of.q, of.k, of.v, in->rows, in->step, of.docs};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ATTENTION, full, &attr, operands,
                                       sizeof operands / sizeof *operands, 2),
                        0);
}
