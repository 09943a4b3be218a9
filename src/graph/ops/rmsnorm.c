/* RMS norm, alone and with the residual sum before it. Over as many of the last dims as the gain
 * has, whatever comes before: a gain [K] normalises the heads of a query or key one by one, a gain
 * [H, K] all of them together. */
#include "graph/op_table.h"

/* The last dims of x, over which it is normalised. */
static tri_shape row_shape(const tri_node *node, const tri_shape *x)
{
    tri_shape row = {.rank = tri_node_norm_dims(node)};
    for (int d = 0; d < row.rank; d++)
        row.dim[d] = x->dim[x->rank - row.rank + d];
    return row;
}

static tr_status check_gain(const tri_node *node, const tri_shape *x, const tri_shape *gain,
                            tr_error *err)
{
    char a[128], b[128];
    if (x->rank >= tri_node_norm_dims(node)) {
        tri_shape row = row_shape(node, x);
        if (tri_shape_equal(&row, gain))
            return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT, "%s cannot be normalised with a gain of %s",
                    tri_shape_text(x, a, sizeof a), tri_shape_text(gain, b, sizeof b));
}

static tri_shape rstd_shape(const tri_node *node, const tri_shape *x)
{
    tri_shape rstd = *x;
    rstd.rank -= tri_node_norm_dims(node) - 1;
    rstd.dim[rstd.rank - 1] = (tri_dim){TRI_DIM_STAT, 1};
    return rstd;
}

static tr_status infer_rmsnorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    TRI_TRY(check_gain(node, &in[0], &in[1], err));
    out[0] = in[0];
    out[1] = rstd_shape(node, &in[0]);
    return TR_OK;
}

static tr_status infer_add_rmsnorm(const tri_node *node, const tri_shape *in, tri_shape *out,
                                   tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char a[128], b[128];
    TRI_TRY(check_gain(node, &in[0], &in[2], err));
    if (!tri_shape_equal(&in[0], &in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "the sum needs equal shapes, not %s and %s",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    out[0] = out[1] = in[0];
    out[2] = rstd_shape(node, &in[0]);
    return TR_OK;
}

static tri_attr row_attr(const tri_node *node)
{
    return (tri_attr){.norm = {.dims = node->attr.norm.dims}};
}

/* The backward shared by both: x is what was normalised, ds reaches it by another way. */
static tri_id emit_grad(tri_graph *graph, const tri_node *norm, tri_id dy, tri_id x, tri_id ds)
{
    tri_id gain = norm->in[norm->num_in - 1], rstd = norm->out[norm->num_out - 1];
    tri_id in[] = {dy, x, gain, rstd, ds};
    tri_attr attr = row_attr(norm);
    tri_id node = tri_graph_emit(graph, TRI_OP_RMSNORM_GRAD,
                                 tri_arena_printf(&graph->arena, "d.%s", graph->values[x].name),
                                 &attr, in, ds == TRI_NONE ? 4 : 5, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static tri_id emit_param_grad(tri_graph *graph, const tri_node *norm, tri_id dy, tri_id x)
{
    tri_id y = norm->out[norm->num_out - 2], rstd = norm->out[norm->num_out - 1];
    tri_attr attr = row_attr(norm);
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[y].name);
    tri_id node = tri_graph_emit(graph, TRI_OP_RMSNORM_PARAM_GRAD, name, &attr,
                                 (tri_id[]){dy, x, rstd}, 3, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static void grad_rmsnorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    const tri_node node = graph->nodes[id];
    if (wanted[0])
        din[0] = emit_grad(graph, &node, dout[0], node.in[0], TRI_NONE);
    if (wanted[1])
        din[1] = emit_param_grad(graph, &node, dout[0], node.in[0]);
}

static void grad_add_rmsnorm(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                             tri_id *din)
{
    const tri_node node = graph->nodes[id];
    tri_id ds = dout[0], dy = dout[1], sum = node.out[0];
    if (dy == TRI_NONE) {
        din[0] = din[1] = ds;
        return;
    }
    if (wanted[0] || wanted[1])
        din[0] = din[1] = emit_grad(graph, &node, dy, sum, ds);
    if (wanted[2])
        din[2] = emit_param_grad(graph, &node, dy, sum);
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
    .meaning = "y = x * rstd * gain over the last dim, or as many as the gain has; rstd = 1 / "
               "sqrt(mean(x^2) + eps).",
    .family = TRI_ATTR_NORM,
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .wide_in = 1 << 1,
    .wide_out = 1 << 1,
    .infer = infer_rmsnorm,
    .place = tri_place_rows,
    .returns = 1,
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
    .returns = 1 | 2,
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
    .family = TRI_ATTR_NORM,
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1 | 16},
    .wide_in = 1 << 2 | 1 << 3,
    .linear_in = 1 << 0,
    .infer = tri_infer_same,
    .place = tri_place_rows,
    .returns = 1,
    .flops = flops,
};

static tr_status infer_param_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    out[0] = row_shape(node, &in[0]);
    return TR_OK;
}

const tri_op_def tri_def_rmsnorm_param_grad = {
    .name = "rmsnorm_param_grad",
    .inputs = "dy, x, rstd",
    .outputs = "dgain [D]",
    .suffix = {"weight"},
    .meaning = "dgain = sum of dy * xhat over all rows, xhat = x * rstd.",
    .family = TRI_ATTR_NORM,
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
