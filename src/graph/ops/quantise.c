/* From 16-bit to 8-bit operands of products. A tensor is divided by one number, its scale, so that
 * its largest element reaches the end of the format; that takes a pass to find the largest, and one
 * to round. The scale is of the very tensor: nothing is remembered from step to step. */
#include "graph/op_table.h"

static tr_status infer_amax(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_shape *x = &in[0];
    bool fits = node->num_in < 2 || in[1].rank < x->rank;
    for (int d = 0; node->num_in > 1 && fits && d < in[1].rank; d++)
        fits = in[1].dim[d].size == x->dim[d].size;
    if (!fits)
        return tri_fail(err, TR_ERROR_INPUT, "its experts are not those of its rows");
    out[0] = tri_shape_scalar(TRI_AMAX_PARTS);
    return TR_OK;
}

static double flops_amax(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

/* What is quantised: x, or the rows of it that an index names. */
static bool rows_of(const tri_node *node, const tri_shape *in, tri_shape *rows)
{
    int lead = node->attr.quantise.lead;
    *rows = in[0];
    if (node->num_in < 3)
        return lead == 0;
    if (lead < 1 || lead > in[0].rank || in[2].rank + in[0].rank - lead > TRI_MAX_RANK ||
        node->attr.quantise.split != in[2].rank)
        return false;
    rows->rank = 0;
    for (int d = 0; d < in[2].rank; d++)
        rows->dim[rows->rank++] = in[2].dim[d];
    for (int d = lead; d < in[0].rank; d++)
        rows->dim[rows->rank++] = in[0].dim[d];
    return true;
}

static tr_status infer_quantise(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    const tri_quantise_attr *attr = &node->attr.quantise;
    tri_shape rows, *x = &rows;
    int split = attr->split, k = 1;
    if (!rows_of(node, in, &rows))
        return tri_fail(err, TR_ERROR_INPUT, "its index does not fit its rows");
    if (split > x->rank || tri_shape_span(x, 0, split) % TRI_QUANTISE_UNIT != 0 ||
        tri_shape_span(x, split, x->rank) % TRI_QUANTISE_UNIT != 0)
        return tri_fail(err, TR_ERROR_INPUT, "the sides of its matrix must be multiples of %d",
                        TRI_QUANTISE_UNIT);
    if (!tri_dtype_is_float8(attr->dtype))
        return tri_fail(err, TR_ERROR_INPUT, "it makes %s", tri_dtype_name(attr->dtype));
    if (tri_shape_count(&in[1]) != TRI_AMAX_PARTS)
        return tri_fail(err, TR_ERROR_INPUT, "its second input is not a result of amax");
    bool sums = attr->straight && attr->turned && node->num_out == 4;
    if (node->num_out != 1 + attr->straight + attr->turned + sums)
        return tri_fail(err, TR_ERROR_INPUT, "its outputs do not fit its attributes");
    out[0] = tri_shape_scalar(1);
    if (attr->straight) {
        out_dtype[k] = attr->dtype;
        out[k++] = *x;
    }
    if (attr->turned) {
        out_dtype[k] = attr->dtype;
        out[k] = *x;
        for (int d = 0; d < x->rank; d++)
            out[k].dim[d] = x->dim[(d + split) % x->rank];
        k++;
    }
    if (sums) {
        out[k].rank = x->rank - split;
        for (int d = split; d < x->rank; d++)
            out[k].dim[d - split] = x->dim[d];
    }
    return TR_OK;
}

static double flops_quantise(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    return (double)tri_shape_count(&out[1]);
}

const tri_op_def tri_def_amax = {
    .name = "amax",
    .inputs = "x, [expert i32 of each row]",
    .outputs = "amax [256]",
    .suffix = {"amax"},
    .meaning = "amax_i = the largest |x| of part i, 0 for none; run r of 4096 elements is of part "
               "r mod 256. Rows without an expert (a negative id) are passed over.",
    .min_in = 1,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .wide_out = 1,
    .infer = infer_amax,
    .flops = flops_amax,
};

const tri_op_def tri_def_quantise = {
    .name = "quantise",
    .inputs = "x (seen as a matrix), amax [256], [row i32]",
    .outputs = "scale [1], [q], [q^T], [sums]",
    .suffix = {"scale", "q", "qt", "sums"},
    .meaning =
        "scale = the least power of two with max(amax) / scale within the 8-bit format; "
        "q = x / scale, rounded to it; q^T its transpose; sums of the columns of x. With row, "
        "of the rows x[row] instead, where the first `lead` dims of x count its rows.",
    .family = TRI_ATTR_QUANTISE,
    .min_in = 2,
    .max_in = 3,
    .min_out = 2,
    .max_out = 4,
    .can_accumulate = 1 << 3,
    .wide_in = 1 << 1,
    .wide_out = 1,
    .infer = infer_quantise,
    .flops = flops_quantise,
};
