/* Products of experts together with what stands beside them: a pass puts them in the place of
 * several operators (fuse_experts.c), whose parts they equal. They come after placement, so they
 * have no rule of their own for it. The first three inputs are those of `grouped`. */
#include "graph/op_table.h"

static double rows_of(const tri_node *node, const tri_shape *x)
{
    int64_t own = node->attr.grouped.rows;
    return own > 0 ? (double)own : (double)tri_shape_span(x, 0, x->rank - 1);
}

static double width_of(const tri_shape *x)
{
    return (double)x->dim[x->rank - 1].size;
}

/* x [R.., a] and experts [E, ..] of which dim `contracted` is a: the rows that come out. */
static tr_status infer_product(const tri_shape *x, const tri_shape *w, int contracted,
                               tri_shape *out, tr_error *err)
{
    char a[128], b[128];
    if (w->rank != 3 || x->rank < 2 || x->dim[x->rank - 1].size != w->dim[contracted].size)
        return tri_fail(err, TR_ERROR_INPUT, "rows %s do not fit experts %s",
                        tri_shape_text(x, a, sizeof a), tri_shape_text(w, b, sizeof b));
    *out = *x;
    out->dim[x->rank - 1] = w->dim[3 - contracted];
    return TR_OK;
}

static tr_status infer_swiglu(const tri_node *node, const tri_shape *in, tri_shape *out,
                              tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    TRI_TRY(infer_product(&in[0], &in[1], 2, &out[0], err));
    if (!tri_shape_equal(&in[1], &in[3]))
        return tri_fail(err, TR_ERROR_INPUT, "gate and up of experts differ in shape");
    out[1] = out[2] = out[0];
    return TR_OK;
}

static double flops_swiglu(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    return rows_of(node, &in[0]) * width_of(out) * (4.0 * width_of(&in[0]) + 11.0);
}

const tri_op_def tri_def_grouped_swiglu = {
    .name = "grouped_swiglu",
    .inputs = "x [R.., K], gate [E, F, K], expert i32 [R..], up [E, F, K], w [R..]",
    .outputs = "y [R.., F], g [R.., F], u [R.., F]",
    .suffix = {NULL, "gate", "up"},
    .meaning = "grouped by gate and by up, and swiglu_rows of both, in one.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 5,
    .max_in = 5,
    .min_out = 3,
    .max_out = 3,
    .wide_in = 1 << 4,
    .infer = infer_swiglu,
    .flops = flops_swiglu,
};

static tr_status infer_swiglu_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                   tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    TRI_TRY(infer_product(&in[0], &in[1], 1, &out[0], err));
    if (!tri_shape_equal(&in[3], &in[4]) || !tri_shape_equal(&in[3], &out[0]))
        return tri_fail(err, TR_ERROR_INPUT, "gate, up and their gradients differ in shape");
    out[1] = out[0];
    out[2] = in[5];
    return TR_OK;
}

static double flops_swiglu_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    return rows_of(node, &in[0]) * width_of(out) * (2.0 * width_of(&in[0]) + 20.0);
}

const tri_op_def tri_def_grouped_swiglu_grad = {
    .name = "grouped_swiglu_grad",
    .inputs = "dy [R.., D], down [E, D, F], expert i32 [R..], g [R.., F], u [R.., F], w [R..]",
    .outputs = "dg [R.., F], du [R.., F], dw [R..]",
    .suffix = {"gate", "up", "w"},
    .meaning = "grouped by down, back, and swiglu_rows_grad of g, u and that, in one.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 6,
    .max_in = 6,
    .min_out = 3,
    .max_out = 3,
    .wide_in = 1 << 5,
    .wide_out = 1 << 2,
    .infer = infer_swiglu_grad,
    .flops = flops_swiglu_grad,
};

static tr_status infer_sum(const tri_node *node, const tri_shape *in, tri_shape *out,
                           tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (!tri_shape_equal(&in[0], &in[3]) || !tri_shape_equal(&in[1], &in[4]))
        return tri_fail(err, TR_ERROR_INPUT, "the two products differ in shape");
    return infer_product(&in[0], &in[1], 1, &out[0], err);
}

static double flops_sum(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    return 4.0 * rows_of(node, &in[0]) * width_of(&in[0]) * width_of(out);
}

const tri_op_def tri_def_grouped_sum = {
    .name = "grouped_sum",
    .inputs = "x [R.., N], w [E, N, K], expert i32 [R..], x2 [R.., N], w2 [E, N, K]",
    .outputs = "y [R.., K]",
    .meaning = "The sum of two grouped, back: y[r] = w[expert[r]]^T x[r] + w2[expert[r]]^T x2[r].",
    .family = TRI_ATTR_GROUPED,
    .min_in = 5,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .infer = infer_sum,
    .flops = flops_sum,
};
