/* Products with the matrices of experts whose operands have 8 bits.
 *
 * As all products of such operands, they take both with the contracted dim last, so they have other
 * layouts than grouped and its gradient: quantise.c makes transposes where these are wanted. */
#include "graph/op_table.h"

static bool same_dims(const tri_shape *a, int from_a, const tri_shape *b, int from_b, int num)
{
    for (int d = 0; d < num; d++)
        if (a->dim[from_a + d].size != b->dim[from_b + d].size)
            return false;
    return true;
}

static tr_status check_scales(const tri_shape *a, const tri_shape *b, tri_dtype made, tr_error *err)
{
    if (tri_shape_count(a) != 1 || tri_shape_count(b) != 1)
        return tri_fail(err, TR_ERROR_INPUT, "8-bit operands come with their scales");
    if (made != TRI_F32 && made != TRI_BF16 && made != TRI_F16)
        return tri_fail(err, TR_ERROR_INPUT, "it makes %s", tri_dtype_name(made));
    return TR_OK;
}

/* Rows that have an expert. */
static double rows_of(const tri_node *node, const tri_shape *expert)
{
    int64_t own = node->attr.grouped.rows;
    return own > 0 ? (double)own : (double)tri_shape_count(expert);
}

/* x [R.., K] and w [E, N, K], or, with back, w [N, E, K]. */
static tr_status infer_grouped8(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    char a[128], b[128];
    const tri_shape *x = &in[0], *w = &in[1];
    int rows = in[2].rank;
    if (w->rank != 3 || x->rank != rows + 1 || !same_dims(x, 0, &in[2], 0, rows) ||
        !same_dims(x, rows, w, 2, 1) || x->dim[rows].name != w->dim[2].name)
        return tri_fail(err, TR_ERROR_INPUT, "rows %s do not fit experts %s",
                        tri_shape_text(x, a, sizeof a), tri_shape_text(w, b, sizeof b));
    TRI_TRY(check_scales(&in[3], &in[4], node->attr.grouped.dtype, err));
    out[0] = *x;
    out[0].dim[rows] = w->dim[node->attr.grouped.back ? 0 : 1];
    out_dtype[0] = node->attr.grouped.dtype;
    return TR_OK;
}

static double flops_grouped8(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    double k = (double)in[1].dim[2].size, n = (double)out->dim[out->rank - 1].size;
    return 2.0 * rows_of(node, &in[2]) * n * k;
}

const tri_op_def tri_def_grouped8 = {
    .name = "grouped8",
    .inputs = "x [R.., K], w [E, N, K] (back: [N, E, K]), expert i32 [R..], scale of x, scale of w",
    .outputs = "y [R.., N]",
    .meaning = "As grouped, of 8-bit operands, which are multiplied by their scales. With back, "
               "the experts are transposed: the contracted dim is last in both.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 5,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .wide_in = 1 << 3 | 1 << 4,
    .infer = infer_grouped8,
    .flops = flops_grouped8,
};

static tr_status infer_grouped8_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                     tri_dtype *out_dtype, tr_error *err)
{
    char a[128], b[128];
    int rows = in[2].rank;
    out[0] = in[3].rank >= 0 ? in[3] : node->attr.grouped.table;
    if (out[0].rank != 3 || in[0].rank != rows + 1 || in[1].rank != rows + 1 ||
        !same_dims(&in[0], 1, &in[2], 0, rows) || !same_dims(&in[1], 1, &in[2], 0, rows) ||
        !same_dims(&in[0], 0, out, 1, 1) || !same_dims(&in[1], 0, out, 2, 1))
        return tri_fail(err, TR_ERROR_INPUT, "%s and %s are no transposed rows of experts",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    TRI_TRY(check_scales(&in[4], &in[5], node->attr.grouped.dtype, err));
    out_dtype[0] = node->attr.grouped.dtype;
    return TR_OK;
}

static double flops_grouped8_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    return 2.0 * rows_of(node, &in[2]) * (double)out->dim[1].size * (double)out->dim[2].size;
}

const tri_op_def tri_def_grouped8_grad = {
    .name = "grouped8_grad",
    .inputs = "dy^T [N, R..], x^T [K, R..], expert i32 [R..], w [E, N, K] (its shape only) or "
              "none, scale of dy, scale of x",
    .outputs = "dw [E, N, K]",
    .meaning = "As grouped_grad, of 8-bit operands, which are multiplied by their scales.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 6,
    .max_in = 6,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 3,
    .shape_in = 4,
    .can_accumulate = 1,
    .wide_in = 1 << 4 | 1 << 5,
    .infer = infer_grouped8_grad,
    .flops = flops_grouped8_grad,
};
