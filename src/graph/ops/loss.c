/* Losses. A loss adds a sum and a count of targets to two statistics; dividing one by the other is
 * left to the end of the step, when all micro-batches and ranks have added theirs. A loss that is
 * to stay a sum counts nothing: where the count is 0, nothing is divided. */
#include "graph/op_table.h"

static double flops_logits(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 5.0 * (double)tri_shape_count(&in[0]);
}

static tr_status infer_ce_stats(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank != in[1].rank + 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs logits [B, T, V] and targets [B, T]");
    out[0] = in[1];
    out[0].dim[out[0].rank++] = (tri_dim){TRI_DIM_STAT, 3};
    return TR_OK;
}

/* What the seed of the backward is multiplied by on the device, or TRI_NONE. */
static tri_id loss_scale(const tri_graph *graph)
{
    return graph->scaler == TRI_NONE ? TRI_NONE : graph->states[graph->scaler].latest;
}

/* What comes back from ce_loss as the gradient of the statistics is the row's lse: it is all that
 * the gradient of the logits needs besides the logits themselves. */
static void grad_ce_stats(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                          tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    tri_attr attr = {.loss = {.alpha = graph->loss_seed, .z = node.attr.loss.z}};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id in[] = {node.in[0], node.in[1], dout[0], loss_scale(graph)};
    tri_id backward =
        tri_graph_emit(graph, TRI_OP_CE_GRAD, name, &attr, in, in[3] == TRI_NONE ? 3 : 4, 1);
    din[0] = backward == TRI_NONE ? TRI_NONE : graph->nodes[backward].out[0];
}

const tri_op_def tri_def_ce_stats = {
    .name = "ce_stats",
    .inputs = "logits [B, T, V], targets i32 [B, T]",
    .outputs = "stats [B, T, 3]",
    .meaning = "Per row: largest logit, sum of exponentials relative to it, logit of the target.",
    .family = TRI_ATTR_LOSS,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .wide_out = 1,
    .how = TRI_PARTIAL_COMBINE,
    .infer = infer_ce_stats,
    .place = tri_place_ce_stats,
    .grad = grad_ce_stats,
    .flops = flops_logits,
};

static tr_status infer_ce_loss(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    for (int k = 0; k < node->num_out; k++)
        out[k] = k == 2 ? in[1] : tri_shape_scalar(1);
    return TR_OK;
}

static void grad_ce_loss(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    (void)wanted;
    (void)dout;
    din[0] = graph->nodes[id].out[2];
}

const tri_op_def tri_def_ce_loss = {
    .name = "ce_loss",
    .inputs = "stats [B, T, 3], targets i32 [B, T]",
    .outputs = "loss [1], count [1], lse [B, T], statistics [1] each (optional)",
    .suffix = {"loss", "count", "lse", "stat0", "stat1", "stat2"},
    .meaning =
        "lse = max + log(sum); loss += lse - target's logit and count += 1 for every row "
        "whose target is not negative. Of these rows, statistics as their rows of the table say.",
    .family = TRI_ATTR_LOSS,
    .min_in = 2,
    .max_in = 2,
    .min_out = 3,
    .max_out = 3 + TRI_MAX_HEAD_STATS,
    .can_accumulate = 0x3b,
    .wide_in = 1,
    .wide_out = 0x3f,
    .place = tri_place_ce_loss,
    .infer = infer_ce_loss,
    .grad = grad_ce_loss,
};

const tri_op_def tri_def_ce_grad = {
    .name = "ce_grad",
    .inputs = "logits [B, T, V], targets i32 [B, T], lse [B, T], scaler [2] (optional)",
    .outputs = "dlogits [B, T, V]",
    .meaning = "dlogits = alpha * scale * ((1 + 2 z lse) softmax - onehot(target)), 0 in ignored "
               "rows; takes the place of the logits. z is the weight of the squared lse in the "
               "loss; the scale is 1 without a scaler.",
    .family = TRI_ATTR_LOSS,
    .min_in = 3,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .wide_in = 1 << 2 | 1 << 3,
    .infer = tri_infer_same,
    .place = tri_place_ce_grad,
    .flops = flops_logits,
};

static tr_status infer_out_loss(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (!tri_shape_equal(&in[0], &in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "output and target differ in shape");
    out[0] = out[1] = tri_shape_scalar(1);
    return TR_OK;
}

static void grad_out_loss(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                          tri_id *din)
{
    (void)wanted;
    (void)dout;
    const tri_node node = graph->nodes[id];
    tri_attr attr = node.attr;
    attr.loss.alpha = graph->loss_seed * tri_graph_loss_of(graph, node.out[0])->weight;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id in[] = {node.in[0], node.in[1], loss_scale(graph)};
    tri_id backward =
        tri_graph_emit(graph, TRI_OP_OUT_LOSS_GRAD, name, &attr, in, in[2] == TRI_NONE ? 2 : 3, 1);
    din[0] = backward == TRI_NONE ? TRI_NONE : graph->nodes[backward].out[0];
}

static double flops_out_loss(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 3.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_out_loss = {
    .name = "out_loss",
    .inputs = "out, target",
    .outputs = "loss [1], count [1]",
    .suffix = {"loss", "count"},
    .meaning = "sse: half the sum of squared differences, counting nothing; mse: their sum, "
               "counting elements; mean: the sum of the outputs, counting elements.",
    .family = TRI_ATTR_LOSS,
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .can_accumulate = 3,
    .wide_in = 1 << 1,
    .wide_out = 1 | 1 << 1,
    .place = tri_place_sum,
    .infer = infer_out_loss,
    .grad = grad_out_loss,
    .flops = flops_out_loss,
};

const tri_op_def tri_def_out_loss_grad = {
    .name = "out_loss_grad",
    .inputs = "out, target, scaler [2] (optional)",
    .outputs = "dout",
    .meaning = "alpha * scale times: out - target (sse), 2 (out - target) (mse), 1 (mean). The "
               "scale is 1 without a scaler.",
    .family = TRI_ATTR_LOSS,
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .wide_in = 1 << 1 | 1 << 2,
    .place = tri_place_same,
    .infer = tri_infer_same,
};

static tr_status infer_ce_combine(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank < 2)
        return tri_fail(err, TR_ERROR_INPUT, "needs the statistics of several parts");
    out[0].rank = in[0].rank - 1;
    for (int d = 0; d < out[0].rank; d++)
        out[0].dim[d] = in[0].dim[d + 1];
    return TR_OK;
}

const tri_op_def tri_def_ce_combine = {
    .name = "ce_combine",
    .inputs = "stats [N, B, T, 3]: of N parts of the vocabulary",
    .outputs = "stats [B, T, 3]: of all of it",
    .meaning = "The largest of the largest, the sums brought to it and added, and the target's "
               "logit, which one part has.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .wide_in = 1,
    .wide_out = 1,
    .infer = infer_ce_combine,
    .place = tri_place_ce_combine,
};
