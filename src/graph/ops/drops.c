/* Rows beyond what an expert takes, and two figures for people.
 *
 * Which rows are dropped is decided in each row of the batch by itself, in the order of its tokens:
 * so it does not depend on which other rows a rank or a micro-batch has. Where tokens of a row lie
 * on several ranks their choices are gathered first: whole numbers, few beside the tokens. */
#include "graph/op_table.h"

static tr_status infer_drop(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    if (in[0].rank != 3 || node->attr.route.experts < 1 || node->attr.route.limit < 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs choices [B, T, C], experts and a limit");
    if (node->num_in > 1)
        TRI_TRY(tri_check_places(&in[0], &in[1], err));
    out[0] = in[0];
    out_dtype[0] = TRI_I32;
    return TR_OK;
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_drop_rows = {
    .name = "drop_rows",
    .inputs = "choice i32 [B, T, C], [places i32 [B, P]]",
    .outputs = "kept i32 [B, T, C]",
    .meaning = "Of the choices of each b that fall on an expert, in the order of their tokens (of "
               "places, where these are given) and then of a token's choices, the first `limit`; "
               "-1 instead of the others.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 1,
    .returns = 1,
    .infer = infer_drop,
    .place = tri_place_batch,
    .flops = no_flops,
};

static tr_status infer_count(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank != 3 || in[1].rank != 2 ||
        tri_shape_count(&in[1]) != tri_shape_span(&in[0], 0, 2))
        return tri_fail(err, TR_ERROR_INPUT, "needs choices [B, T, C] and targets [B, T]");
    out[0] = tri_shape_scalar(1);
    return TR_OK;
}

const tri_op_def tri_def_count_dropped = {
    .name = "count_dropped",
    .inputs = "kept i32 [B, T, C], targets i32 [B, T]",
    .outputs = "dropped [1]",
    .meaning = "dropped += alpha * (how many of kept are negative, of tokens whose target is not).",
    .family = TRI_ATTR_ROUTE,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_out = 1,
    .infer = infer_count,
    .place = tri_place_sum,
    .flops = no_flops,
};

static tr_status infer_largest(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)in;
    (void)out_dtype;
    (void)err;
    out[0] = tri_shape_scalar(1);
    return TR_OK;
}

const tri_op_def tri_def_largest = {
    .name = "largest",
    .inputs = "x",
    .outputs = "most [1]",
    .meaning = "most = the largest |x|, or the larger of that and what was there.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_in = 1,
    .wide_out = 1,
    .infer = infer_largest,
    .place = tri_place_sum,
    .how = TRI_PARTIAL_MAX,
};
