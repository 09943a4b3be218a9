/* Operators that no model and no gradient rule emits: passes put them in the place of several
 * (fuse_backward.c), whose parts they equal. They come after placement, so they have no rule of
 * their own for it. */
#include "graph/op_table.h"

static tr_status infer_norm_grads(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    tri_shape row = {.rank = tri_node_norm_dims(node)};
    for (int d = 0; d < row.rank; d++)
        row.dim[d] = in[0].dim[in[0].rank - row.rank + d];
    out[0] = in[0];
    for (int k = 1; k < node->num_out; k++)
        out[k] = row;
    return TR_OK;
}

static double flops_layer(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (node->num_out > 3 ? 18.0 : 17.0) * (double)tri_shape_count(&in[0]);
}

static double flops_rms(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (node->num_out > 2 ? 12.0 : 11.0) * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_layernorm_grads = {
    .name = "layernorm_grads",
    .inputs = "dy, x, gain [D], stats, [dsum]",
    .outputs = "dx, dgain [D], dshift [D], dbias [D] (optional)",
    .suffix = {NULL, "weight", "bias", "sum"},
    .meaning = "layernorm_grad and layernorm_param_grad in one; dbias = dx summed over all rows.",
    .min_in = 5,
    .max_in = 5,
    .min_out = 3,
    .max_out = 4,
    .may_alias = {1 | 16},
    .can_accumulate = 2 | 4 | 8,
    .optional = 1 << 4,
    .wide_in = 1 << 2 | 1 << 3,
    .wide_out = 2 | 4,
    .infer = infer_norm_grads,
    .flops = flops_layer,
};

const tri_op_def tri_def_rmsnorm_grads = {
    .name = "rmsnorm_grads",
    .inputs = "dy, x, gain [D], rstd, [dsum]",
    .outputs = "dx, dgain [D], dbias [D] (optional)",
    .suffix = {NULL, "weight", "sum"},
    .meaning = "rmsnorm_grad and rmsnorm_param_grad in one; dbias = dx summed over all rows.",
    .family = TRI_ATTR_NORM,
    .min_in = 5,
    .max_in = 5,
    .min_out = 2,
    .max_out = 3,
    .may_alias = {1 | 16},
    .can_accumulate = 2 | 4,
    .optional = 1 << 4,
    .wide_in = 1 << 2 | 1 << 3,
    .wide_out = 2,
    .infer = infer_norm_grads,
    .flops = flops_rms,
};

static tr_status infer_cross_entropy(const tri_node *node, const tri_shape *in, tri_shape *out,
                                     tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (in[0].rank != in[1].rank + 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs logits [B, T, V] and targets [B, T]");
    for (int k = 0; k < node->num_out; k++)
        out[k] = k == 2 ? in[0] : tri_shape_scalar(1);
    return TR_OK;
}

static double flops_cross_entropy(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 10.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_cross_entropy = {
    .name = "cross_entropy",
    .inputs = "logits [B, T, V], targets i32 [B, T], scaler [2] (optional)",
    .outputs = "loss [1], count [1], dlogits [B, T, V], statistics [1] each (optional)",
    .suffix = {"loss", "count", NULL, "stat0", "stat1", "stat2"},
    .meaning = "ce_stats, ce_loss and ce_grad in one; dlogits takes the place of the logits.",
    .family = TRI_ATTR_LOSS,
    .min_in = 2,
    .max_in = 3,
    .min_out = 3,
    .max_out = 3 + TRI_MAX_HEAD_STATS,
    .may_alias = {0, 0, 1},
    .can_accumulate = 0x3b,
    .wide_in = 1 << 2,
    .wide_out = 0x3b,
    .infer = infer_cross_entropy,
    .flops = flops_cross_entropy,
};
