/* Rotary positions. They are data ([B, T]), so packed rows and offsets need no other operator. */
#include "graph/op_table.h"

static tr_status check_scaling(const tri_rope_config *rope, tr_error *err)
{
    const float low = rope->low_freq_factor, high = rope->high_freq_factor;
    switch (rope->scaling) {
    case TRI_ROPE_LLAMA3:
        if (high > low && low > 0 && rope->original_max_position > 0)
            return TR_OK;
        return tri_fail(err, TR_ERROR_INPUT,
                        "scaled frequencies need 0 < low_freq_factor < high_freq_factor and an "
                        "original_max_position");
    case TRI_ROPE_RAMP:
        if (high > low)
            return TR_OK;
        return tri_fail(err, TR_ERROR_INPUT, "a ramp needs an end above its begin");
    case TRI_ROPE_LISTED:
        if (rope->stretch)
            return TR_OK;
        return tri_fail(err, TR_ERROR_INPUT, "a list of factors is missing");
    case TRI_ROPE_LINEAR:
        break;
    }
    return TR_OK;
}

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    char a[128], b[128];
    const tri_rope_config *rope = &node->attr.rope.config;
    if (in[0].rank != 4 || in[0].dim[3].size % 2 != 0)
        return tri_fail(err, TR_ERROR_INPUT, "needs [B, T, H, K] with an even K, not %s",
                        tri_shape_text(&in[0], a, sizeof a));
    if (in[1].rank != 2 || in[1].dim[0].size != in[0].dim[0].size ||
        in[1].dim[1].size != in[0].dim[1].size)
        return tri_fail(err, TR_ERROR_INPUT, "positions %s do not fit %s",
                        tri_shape_text(&in[1], a, sizeof a), tri_shape_text(&in[0], b, sizeof b));
    if (!(rope->theta > 0))
        return tri_fail(err, TR_ERROR_INPUT, "needs a theta above 0, not %g", rope->theta);
    if (rope->turned < 0 || rope->turned % 2 != 0 || rope->turned > in[0].dim[3].size)
        return tri_fail(err, TR_ERROR_INPUT, "cannot turn %d of the %lld elements of a head",
                        (int)rope->turned, (long long)in[0].dim[3].size);
    if (rope->factor > 0)
        TRI_TRY(check_scaling(rope, err));
    return tri_infer_same(node, in, out, out_dtype, err);
}

/* A rotation's transpose turns the other way. */
static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    tri_attr attr = node.attr;
    attr.rope.inverse = !attr.rope.inverse;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id back =
        tri_graph_emit(graph, TRI_OP_ROPE, name, &attr, (tri_id[]){dout[0], node.in[1]}, 2, 1);
    din[0] = back == TRI_NONE ? TRI_NONE : graph->nodes[back].out[0];
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 3.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_rope = {
    .name = "rope",
    .inputs = "x [B, T, H, K], positions i32 [B, T]",
    .outputs = "y [B, T, H, K]",
    .meaning = "Turns the pairs (x[i], x[i + K/2]) of each head by position * f_i, f_i = "
               "theta^(-2i/K), or the first `turned` elements alone; scaled as in Llama 3.1, "
               "linearly, by YaRN's ramp or by a list where a factor is set. Its own gradient, "
               "turning back.",
    .family = TRI_ATTR_ROPE,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .linear_in = 1 << 0,
    .infer = infer,
    .place = tri_place_same,
    .grad = grad,
    .flops = flops,
};
