/* From 16-bit to 8-bit operands of products. A tensor is divided by one number, its scale, so that
 * its largest element reaches the end of the format; that takes a pass to find the largest, and one
 * to round. The scale is of the very tensor: nothing is remembered from step to step. */
#include "graph/op_table.h"

static tr_status infer_amax(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)in;
    (void)out_dtype;
    (void)err;
    out[0] = tri_shape_scalar(TRI_AMAX_PARTS);
    return TR_OK;
}

static double flops_amax(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

static tr_status infer_quantise(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    const tri_quantise_attr *attr = &node->attr.quantise;
    const tri_shape *x = &in[0];
    int split = attr->split, k = 1;
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
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_amax = {
    .name = "amax",
    .inputs = "x",
    .outputs = "amax [256]",
    .suffix = {"amax"},
    .meaning = "amax_i = the largest |x| of part i, 0 for none; run r of 4096 elements is of part "
               "r mod 256.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .wide_out = 1,
    .infer = infer_amax,
    .flops = flops_amax,
};

const tri_op_def tri_def_quantise = {
    .name = "quantise",
    .inputs = "x (seen as a matrix), amax [256]",
    .outputs = "scale [1], [q], [q^T], [sums]",
    .suffix = {"scale", "q", "qt", "sums"},
    .meaning = "scale = the least power of two with max(amax) / scale within the 8-bit format; "
               "q = x / scale, rounded to it; q^T its transpose; sums of the columns of x.",
    .family = TRI_ATTR_QUANTISE,
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 4,
    .can_accumulate = 1 << 3,
    .wide_in = 1 << 1,
    .wide_out = 1,
    .infer = infer_quantise,
    .flops = flops_quantise,
};
