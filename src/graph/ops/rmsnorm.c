/* RMS norm, alone and with the residual sum before it. Over the last dim, whatever comes before:
 * a gain [K] normalises the heads of a query or key one by one. */
#include "graph/op_table.h"

static tr_status check_gain(const tri_shape *x, const tri_shape *gain, tr_error *err)
{
    char a[128], b[128];
    tri_dim last = x->dim[x->rank - 1];
    if (gain->rank == 1 && last.name == gain->dim[0].name && last.size == gain->dim[0].size)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s cannot be normalised with a gain of %s",
                    tri_shape_text(x, a, sizeof a), tri_shape_text(gain, b, sizeof b));
}

static tri_shape rstd_shape(const tri_shape *x)
{
    tri_shape rstd = *x;
    rstd.dim[rstd.rank - 1] = (tri_dim){TRI_DIM_STAT, 1};
    return rstd;
}

static tr_status infer_rmsnorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    TRI_TRY(check_gain(&in[0], &in[1], err));
    out[0] = in[0];
    out[1] = rstd_shape(&in[0]);
    return TR_OK;
}

static tr_status infer_add_rmsnorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                                   tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char a[128], b[128];
    TRI_TRY(check_gain(&in[0], &in[2], err));
    if (!tri_shape_equal(&in[0], &in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "the sum needs equal shapes, not %s and %s",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    out[0] = out[1] = in[0];
    out[2] = rstd_shape(&in[0]);
    return TR_OK;
}

/* The backward shared by both: x is what was normalised, ds reaches it by another way. */
static tri_id emit_grad(tri_graph *graph, tri_id dy, tri_id x, tri_id gain, tri_id rstd, tri_id ds)
{
    tri_id in[] = {dy, x, gain, rstd, ds};
    tri_id node = tri_graph_emit(graph, TRI_OP_RMSNORM_GRAD,
                                 tri_arena_printf(&graph->arena, "d.%s", graph->values[x].name),
                                 NULL, in, ds == TRI_NONE ? 4 : 5, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static tri_id emit_param_grad(tri_graph *graph, tri_id y, tri_id dy, tri_id x, tri_id rstd)
{
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[y].name);
    tri_id node =
        tri_graph_emit(graph, TRI_OP_RMSNORM_PARAM_GRAD, name, NULL, (tri_id[]){dy, x, rstd}, 3, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static void grad_rmsnorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    const tri_node node = graph->nodes[id];
    if (wanted[0])
        din[0] = emit_grad(graph, dout[0], node.in[0], node.in[1], node.out[1], TRI_NONE);
    if (wanted[1])
        din[1] = emit_param_grad(graph, node.out[0], dout[0], node.in[0], node.out[1]);
}

static void grad_add_rmsnorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                             tri_id *din)
{
    const tri_node node = graph->nodes[id];
    tri_id ds = dout[0], dy = dout[1], sum = node.out[0], rstd = node.out[2];
    if (dy == TRI_NONE) {
        din[0] = din[1] = ds;
        return;
    }
    if (wanted[0] || wanted[1])
        din[0] = din[1] = emit_grad(graph, dy, sum, node.in[2], rstd, ds);
    if (wanted[2])
        din[2] = emit_param_grad(graph, node.out[1], dy, sum, rstd);
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    double per_element = node->op == TRI_OP_RMSNORM        ? 4
                         : node->op == TRI_OP_ADD_RMSNORM  ? 5
                         : node->op == TRI_OP_RMSNORM_GRAD ? 8
                                                           : 3;
    return per_element * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_rmsnorm = {
    .name = "rmsnorm",
    .inputs = "x [..., D], gain [D]",
    .outputs = "y [..., D], rstd [..., 1]",
    .suffix = {NULL, "rstd"},
    .meaning = "y = x * rstd * gain over the last dim; rstd = 1 / sqrt(mean(x^2) + eps).",
    .family = TRI_ATTR_NORM,
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .wide_in = 1 << 1,
    .wide_out = 1 << 1,
    .infer = infer_rmsnorm,
    .place = tri_place_rows,
    .grad = grad_rmsnorm,
    .flops = flops,
};

const tri_op_def tri_def_add_rmsnorm = {
    .name = "add_rmsnorm",
    .inputs = "x [..., D], r [..., D], gain [D]",
    .outputs = "sum [..., D], y [..., D], rstd [..., 1]",
    .suffix = {"sum", NULL, "rstd"},
    .meaning = "sum = x + r (the residual stream goes on as sum); y = rmsnorm(sum).",
    .family = TRI_ATTR_NORM,
    .min_in = 3,
    .max_in = 3,
    .min_out = 3,
    .max_out = 3,
    .may_alias = {1 | 2},
    .wide_in = 1 << 2,
    .wide_out = 1 << 2,
    .infer = infer_add_rmsnorm,
    .place = tri_place_rows,
    .grad = grad_add_rmsnorm,
    .flops = flops,
};

const tri_op_def tri_def_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .inputs = "dy, x, gain [D], rstd, [dsum]",
    .outputs = "dx",
    .meaning =
        "dx = rstd * (g - xhat * mean(g * xhat)), g = dy * gain, xhat = x * rstd; plus dsum, "
        "the gradient that reaches x past the norm.",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1 | 16},
    .wide_in = 1 << 2 | 1 << 3,
    .linear_in = 1 << 0,
    .infer = tri_infer_same,
    .place = tri_place_rows,
    .flops = flops,
};

static tr_status infer_param_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    (void)err;
    tri_dim last = in[0].dim[in[0].rank - 1];
    out[0] = tri_shape_of(1, last.name, last.size);
    return TR_OK;
}

const tri_op_def tri_def_rmsnorm_param_grad = {
    .name = "rmsnorm_param_grad",
    .inputs = "dy, x, rstd",
    .outputs = "dgain [D]",
    .suffix = {"weight"},
    .meaning = "dgain = sum of dy * xhat over all rows, xhat = x * rstd.",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_in = 1 << 2,
    .wide_out = 1,
    .linear_in = 1 << 0,
    .infer = infer_param_grad,
    .place = tri_place_columns,
    .flops = flops,
};
