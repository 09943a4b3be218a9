/* The end of a step: norm, factor, and the pieces that update rules are made of.
 * Rules that write state look at result[ok] and write nothing when it is 0. */
#include "graph/op_table.h"

static tr_status infer_one(const tri_node *node, const tri_shape *in, tri_shape *out,
                           tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)in;
    (void)out_dtype;
    (void)err;
    out[0] = tri_shape_scalar(1);
    return TR_OK;
}

static double flops_2(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return in[0].rank < 0 ? 0 : 2.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_sum_squares = {
    .name = "sum_squares",
    .inputs = "x, or none on a rank that has nothing to add",
    .outputs = "sum [1]",
    .meaning = "Adds the squares of x to a statistic, in fixed blocks.",
    .min_in = 1,
    .max_in = 1,
    .optional = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_out = 1,
    .infer = infer_one,
    .place = tri_place_total,
    .flops = flops_2,
};

static double flops_none(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

static tr_status infer_fill(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)in;
    (void)out_dtype;
    (void)err;
    int32_t count = node->attr.axpby.count;
    out[0] = tri_shape_scalar(count > 0 ? count : 1);
    return TR_OK;
}

const tri_op_def tri_def_fill = {
    .name = "fill",
    .inputs = "none",
    .outputs = "x [n]",
    .meaning = "x = alpha: what a statistic begins with on a rank that adds nothing to it.",
    .family = TRI_ATTR_AXPBY,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_out = 1,
    .infer = infer_fill,
    .flops = flops_none,
};

static tr_status infer_finish(const tri_node *node, const tri_shape *in, tri_shape *out,
                              tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (node->num_out > 1 &&
        (node->num_in < 4 || in[3].rank < 0 || tri_shape_count(&in[3]) != TRI_NUM_SCALER))
        return tri_fail(err, TR_ERROR_INPUT, "needs the scaler that it is to change");
    int num_stats = node->num_in - 4 - (node->attr.finish.limit_row > 0);
    out[0] = tri_shape_scalar(TRI_NUM_RESULT + (num_stats > 0 ? num_stats : 0));
    if (node->num_out > 1)
        out[1] = in[3];
    return TR_OK;
}

const tri_op_def tri_def_finish = {
    .name = "finish",
    .inputs = "loss [1], count [1], sum_squares [1], scaler [2] (optional), statistics [1] each "
              "(optional), sched (with limit_row)",
    .outputs = "result, scaler (with the input)",
    .meaning =
        "result = (mean loss, gradient norm, factor, ok, count, scale, statistics). "
        "Statistics that are losses are part of the loss, by their weight. The factor turns "
        "an accumulated gradient into the one to apply: normalised, clipped, unscaled. The "
        "scale halves when the step is not ok and doubles after enough good ones. A step with "
        "a statistic that stops it (rows that found no room), or with a loss above "
        "sched[limit_row], "
        "is not ok either, but leaves the scale alone.",
    .family = TRI_ATTR_FINISH,
    .min_in = 3,
    .max_in = 5 + TRI_MAX_SHOWN,
    .min_out = 1,
    .max_out = 2,
    .updates = {0, 4},
    .optional = 1 << 3,
    .wide_in = 0x7ff,
    .wide_out = 1 | 1 << 1,
    .infer = infer_finish,
};

/* in[0] is the state that out[0] replaces; further states follow the same way. */
static tr_status infer_update(const tri_node *node, const tri_shape *in, tri_shape *out,
                              tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    const tri_op_def *def = tri_op_get(node->op);
    for (int k = 0; k < node->num_out; k++)
        out[k] = in[def->updates[k] && in[def->updates[k] - 1].rank >= 0 ? def->updates[k] - 1 : 0];
    return TR_OK;
}

static double flops_update(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (node->op == TRI_OP_ADAM || node->op == TRI_OP_ADAM8 ? 14.0 : 6.0) *
           (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_sgd = {
    .name = "sgd",
    .inputs = "p, momentum or none, g, sched, result",
    .outputs = "p, [momentum]",
    .meaning = "g' = factor g + decay p; momentum = beta1 momentum + g'; p -= lr * momentum (or g' "
               "+ beta1 momentum with Nesterov, or g' without momentum).",
    .family = TRI_ATTR_UPDATE,
    .min_in = 5,
    .max_in = 5,
    .min_out = 1,
    .max_out = 2,
    .updates = {1, 2},
    .optional = 2,
    .wide_in = 1 | 1 << 1 | 1 << 3 | 1 << 4,
    .wide_out = 1 | 1 << 1,
    .infer = infer_update,
    .place = tri_place_state,
    .flops = flops_update,
};

const tri_op_def tri_def_adam = {
    .name = "adam",
    .inputs = "p, m, v, g, sched, result, copy (optional)",
    .outputs = "p, m, v, [copy]",
    .meaning = "Adam on g' = factor g, bias-corrected by sched; decay apart from the gradient "
               "(AdamW) where marked, else added to it. copy = p in the type of the copy.",
    .family = TRI_ATTR_UPDATE,
    .min_in = 6,
    .max_in = 7,
    .min_out = 3,
    .max_out = 4,
    .updates = {1, 2, 3, 7},
    .wide_in = 1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5,
    .wide_out = 1 | 1 << 1 | 1 << 2,
    .copies = 1 << 3,
    .infer = infer_update,
    .place = tri_place_state,
    .flops = flops_update,
};

static tr_status infer_adam8(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    out_dtype[1] = TRI_Q8S;
    out_dtype[2] = TRI_Q8U;
    return infer_update(node, in, out, out_dtype, err);
}

const tri_op_def tri_def_adam8 = {
    .name = "adam8",
    .inputs = "p, m (q8s), v (q8u), g, sched, result",
    .outputs = "p, m, v",
    .meaning = "adam, with moments of 8 bits in blocks of 256: they are decoded, the parameter is "
               "updated with what they become, and that is encoded, rounded at random.",
    .family = TRI_ATTR_UPDATE,
    .min_in = 6,
    .max_in = 6,
    .min_out = 3,
    .max_out = 3,
    .updates = {1, 2, 3},
    .wide_in = 1 | 1 << 4 | 1 << 5,
    .wide_out = 1,
    .infer = infer_adam8,
    .place = tri_place_state,
    .flops = flops_update,
};

const tri_op_def tri_def_lion = {
    .name = "lion",
    .inputs = "p, m, g, sched, result",
    .outputs = "p, m",
    .meaning = "g' = factor g; p -= lr (sign(beta1 m + (1 - beta1) g') + decay p); m = beta2 m + "
               "(1 - beta2) g'.",
    .family = TRI_ATTR_UPDATE,
    .min_in = 5,
    .max_in = 5,
    .min_out = 2,
    .max_out = 2,
    .updates = {1, 2},
    .wide_in = 1 | 1 << 1 | 1 << 3 | 1 << 4,
    .wide_out = 1 | 1 << 1,
    .infer = infer_update,
    .place = tri_place_state,
    .flops = flops_update,
};

const tri_op_def tri_def_momentum = {
    .name = "momentum",
    .inputs = "momentum, g, result",
    .outputs = "momentum, update",
    .suffix = {NULL, "update"},
    .meaning = "momentum = beta1 momentum + factor g; update = momentum, or factor g + beta1 "
               "momentum with Nesterov.",
    .family = TRI_ATTR_UPDATE,
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .updates = {1},
    .wide_in = 1 | 1 << 2,
    .wide_out = 1 | 1 << 1,
    .infer = infer_update,
    .place = tri_place_state,
    .flops = flops_update,
};

static double flops_unit_norm(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 3.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_unit_norm = {
    .name = "unit_norm",
    .inputs = "x",
    .outputs = "y",
    .meaning = "y = x / (norm(x) + eps).",
    .family = TRI_ATTR_UPDATE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .infer = tri_infer_same,
    .flops = flops_unit_norm,
};

const tri_op_def tri_def_apply_update = {
    .name = "apply_update",
    .inputs = "p, update, sched, result",
    .outputs = "p",
    .meaning = "p -= lr (alpha update + decay p).",
    .family = TRI_ATTR_UPDATE,
    .min_in = 4,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .wide_in = 1 | 1 << 1 | 1 << 2 | 1 << 3,
    .wide_out = 1,
    .infer = infer_update,
    .place = tri_place_state,
    .flops = flops_update,
};

const tri_op_def tri_def_narrow = {
    .name = "narrow",
    .inputs = "p, copy (which it replaces)",
    .outputs = "copy",
    .meaning = "copy = p in the type of the copy: what 16-bit products read of a parameter. bf16 "
               "rounds ties away from zero.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .updates = {2},
    .wide_in = 1,
    .copies = 1,
    .infer = infer_update,
    .place = tri_place_state,
};
