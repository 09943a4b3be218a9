/* Tensors that are divided over ranks without regard to their dims: what ZeRO's policies insert.
 * One node for each tensor; the tensors of a bucket travel in one message. */
#include "graph/op_table.h"

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_shard_sum = {
    .name = "shard_sum",
    .inputs = "x: a partial sum on every rank of the axis",
    .outputs = "x: the sum, in this rank's slice",
    .meaning = "A reduce-scatter in place over a bucket of tensors, in a fixed order. What is not "
               "in the rank's slice holds nothing defined afterwards.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .may_alias = {1},
    .communicates = true,
    .infer = tri_infer_same,
    .flops = flops,
};

const tri_op_def tri_def_shard_gather = {
    .name = "shard_gather",
    .inputs = "x: up to date in this rank's slice",
    .outputs = "x: up to date everywhere",
    .meaning = "An all-gather in place over a bucket of tensors.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .communicates = true,
    .infer = tri_infer_same,
    .flops = no_flops,
};

const tri_op_def tri_def_unshard = {
    .name = "unshard",
    .inputs = "x: this rank's slice, or none when it is empty",
    .outputs = "y: the tensor",
    .meaning = "An all-gather over a bucket of tensors, from the slices where they are kept.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .optional = 1,
    .communicates = true,
    .infer = tri_infer_given,
    .flops = no_flops,
};
