/* Layer norm, alone and with the residual sum before it. */
#include "graph/op_table.h"

static tr_status check_gain(const tri_shape *x, const tri_shape *gain, tr_error *err)
{
    char a[128], b[128];
    if (gain->rank == 1 && x->dim[x->rank - 1].size == gain->dim[0].size)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s cannot be normalised with a gain of %s",
                    tri_shape_text(x, a, sizeof a), tri_shape_text(gain, b, sizeof b));
}

static tri_shape stats_shape(const tri_shape *x)
{
    tri_shape stats = *x;
    stats.dim[stats.rank - 1] = (tri_dim){TRI_DIM_STAT, 2};
    return stats;
}

static tr_status infer_layernorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                                 tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    TRI_TRY(check_gain(&in[0], &in[1], err));
    out[0] = in[0];
    out[1] = stats_shape(&in[0]);
    return TR_OK;
}

static tr_status infer_add_layernorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                                     tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    TRI_TRY(check_gain(&in[0], &in[2], err));
    char a[128], b[128];
    if (!tri_shape_equal(&in[0], &in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "the sum needs equal shapes, not %s and %s",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    out[0] = out[1] = in[0];
    out[2] = stats_shape(&in[0]);
    return TR_OK;
}

/* The backward shared by both: x is what was normalised, ds reaches it by another way. */
static tri_id emit_grad(tri_graph *graph, tri_id dy, tri_id x, tri_id gain, tri_id stats, tri_id ds)
{
    tri_id in[] = {dy, x, gain, stats, ds};
    tri_id node = tri_graph_emit(graph, TRI_OP_LAYERNORM_GRAD,
                                 tri_arena_printf(&graph->arena, "d.%s", graph->values[x].name),
                                 NULL, in, ds == TRI_NONE ? 4 : 5, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static void emit_param_grad(tri_graph *graph, const char *name, tri_id dy, tri_id x, tri_id stats,
                            tri_id *dgain, tri_id *dshift)
{
    tri_id node = tri_graph_emit(graph, TRI_OP_LAYERNORM_PARAM_GRAD,
                                 tri_arena_printf(&graph->arena, "d.%s", name), NULL,
                                 (tri_id[]){dy, x, stats}, 3, 2);
    if (node == TRI_NONE)
        return;
    *dgain = graph->nodes[node].out[0];
    *dshift = graph->nodes[node].out[1];
}

static void grad_layernorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                           tri_id *din)
{
    const tri_node node = graph->nodes[id];
    const char *name = graph->values[node.out[0]].name;
    if (wanted[0])
        din[0] = emit_grad(graph, dout[0], node.in[0], node.in[1], node.out[1], TRI_NONE);
    if (wanted[1] || wanted[2])
        emit_param_grad(graph, name, dout[0], node.in[0], node.out[1], &din[1], &din[2]);
}

static void grad_add_layernorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                               tri_id *din)
{
    const tri_node node = graph->nodes[id];
    const char *name = graph->values[node.out[1]].name;
    tri_id ds = dout[0], dy = dout[1], sum = node.out[0], stats = node.out[2];
    if (dy == TRI_NONE) {
        din[0] = din[1] = ds;
        return;
    }
    if (wanted[0] || wanted[1])
        din[0] = din[1] = emit_grad(graph, dy, sum, node.in[2], stats, ds);
    if (wanted[2] || wanted[3])
        emit_param_grad(graph, name, dy, sum, stats, &din[2], &din[3]);
}

static double flops_norm(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    double per_element = node->op == TRI_OP_LAYERNORM        ? 8
                         : node->op == TRI_OP_ADD_LAYERNORM  ? 9
                         : node->op == TRI_OP_LAYERNORM_GRAD ? 12
                                                             : 5;
    return per_element * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_layernorm = {
    .name = "layernorm",
    .inputs = "x [..., D], gain [D], shift [D]",
    .outputs = "y [..., D], stats [..., 2]",
    .suffix = {NULL, "stats"},
    .meaning = "y = (x - mean) * rstd * gain + shift over the last dim; stats = (mean, rstd).",
    .family = TRI_ATTR_NORM,
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .wide_in = 1 << 1 | 1 << 2,
    .wide_out = 1 << 1,
    .infer = infer_layernorm,
    .place = tri_place_rows,
    .grad = grad_layernorm,
    .flops = flops_norm,
};

const tri_op_def tri_def_add_layernorm = {
    .name = "add_layernorm",
    .inputs = "x [..., D], r [..., D], gain [D], shift [D]",
    .outputs = "sum [..., D], y [..., D], stats [..., 2]",
    .suffix = {"sum", NULL, "stats"},
    .meaning = "sum = x + r (the residual stream goes on as sum); y = layernorm(sum).",
    .family = TRI_ATTR_NORM,
    .min_in = 4,
    .max_in = 4,
    .min_out = 3,
    .max_out = 3,
    .may_alias = {3},
    .wide_in = 1 << 2 | 1 << 3,
    .wide_out = 1 << 2,
    .infer = infer_add_layernorm,
    .place = tri_place_rows,
    .grad = grad_add_layernorm,
    .flops = flops_norm,
};

const tri_op_def tri_def_layernorm_grad = {
    .name = "layernorm_grad",
    .inputs = "dy, x, gain [D], stats, [dsum]",
    .outputs = "dx",
    .meaning = "dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * gain; plus dsum, the "
               "gradient that reaches x past the norm.",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1 | 16},
    .wide_in = 1 << 2 | 1 << 3,
    .linear_in = 1 << 0,
    .infer = tri_infer_same,
    .place = tri_place_rows,
    .flops = flops_norm,
};

static tr_status infer_param_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    (void)err;
    tri_dim last = in[0].dim[in[0].rank - 1];
    out[0] = out[1] = tri_shape_of(1, last.name, last.size);
    return TR_OK;
}

const tri_op_def tri_def_layernorm_param_grad = {
    .name = "layernorm_param_grad",
    .inputs = "dy, x, stats",
    .outputs = "dgain [D], dshift [D]",
    .suffix = {"weight", "bias"},
    .meaning = "dgain = sum of dy * xhat, dshift = sum of dy, over all rows.",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .can_accumulate = 3,
    .wide_in = 1 << 2,
    .wide_out = 1 | 1 << 1,
    .linear_in = 1 << 0,
    .infer = infer_param_grad,
    .place = tri_place_columns,
    .flops = flops_norm,
};
