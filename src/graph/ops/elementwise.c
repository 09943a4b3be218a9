/* Sums, biases, activations, dropout. */
#include "graph/op_table.h"

static tri_id out_of(tri_graph *graph, tri_id node, int k)
{
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[k];
}

static tr_status infer_equal(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    char a[128], b[128];
    if (node->num_in > 1 && !tri_shape_equal(&in[0], &in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "shapes %s and %s differ",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    tri_infer_same(node, in, out, out_dtype, err);
    for (int k = 1; k < node->num_out; k++) /* the largest of the result */
        out[k] = tri_shape_scalar(TRI_AMAX_PARTS);
    return TR_OK;
}

static void grad_add(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                     tri_id *din)
{
    (void)graph;
    (void)id;
    (void)wanted;
    din[0] = din[1] = dout[0];
}

const tri_op_def tri_def_add = {
    .name = "add",
    .inputs = "a, b",
    .outputs = "c",
    .meaning = "c = a + b.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {3},
    .infer = infer_equal,
    .place = tri_place_elementwise,
    .linear = true,
    .grad = grad_add,
};

/* The dims of the bias are the last dims of x. */
static tr_status check_trailing(const tri_shape *x, const tri_shape *bias, tr_error *err)
{
    char a[128], b[128];
    int lead = x->rank - bias->rank;
    bool fits = lead >= 0;
    for (int i = 0; fits && i < bias->rank; i++)
        fits = x->dim[lead + i].name == bias->dim[i].name &&
               x->dim[lead + i].size == bias->dim[i].size;
    if (fits)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s does not end in %s", tri_shape_text(x, a, sizeof a),
                    tri_shape_text(bias, b, sizeof b));
}

static tr_status infer_bias_add(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    TRI_TRY(check_trailing(&in[0], &in[1], err));
    return tri_infer_same(node, in, out, out_dtype, err);
}

static void grad_bias_add(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                          tri_id *din)
{
    const tri_node node = graph->nodes[id];
    din[0] = dout[0];
    if (!wanted[1])
        return;
    int bias_rank = graph->values[node.in[1]].shape.rank;
    int rank = graph->values[node.in[0]].shape.rank;
    tri_attr attr = {.bias_grad = {.leading = (uint8_t)(rank - bias_rank)}};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[1]].name);
    din[1] = out_of(graph, tri_graph_emit(graph, TRI_OP_BIAS_GRAD, name, &attr, dout, 1, 1), 0);
}

const tri_op_def tri_def_bias_add = {
    .name = "bias_add",
    .inputs = "x [..., N], bias [N]",
    .outputs = "y [..., N]",
    .meaning = "y = x + bias, the bias repeated over the leading dims.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .infer = infer_bias_add,
    .place = tri_place_bias,
    .grad = grad_bias_add,
};

static tr_status infer_bias_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                 tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    out[0].rank = in[0].rank - node->attr.bias_grad.leading;
    for (int i = 0; i < out[0].rank; i++)
        out[0].dim[i] = in[0].dim[node->attr.bias_grad.leading + i];
    return TR_OK;
}

static double flops_input(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_bias_grad = {
    .name = "bias_grad",
    .inputs = "dy [..., N]",
    .outputs = "dbias [N]",
    .meaning = "dbias = dy summed over the leading dims.",
    .family = TRI_ATTR_BIAS_GRAD,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .linear_in = 1 << 0,
    .infer = infer_bias_grad,
    .place = tri_place_columns,
    .flops = flops_input,
};

static double flops_act(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (double)tri_shape_count(&in[0]) * (node->attr.act.kind == TRI_ACT_RELU ? 1 : 10);
}

static void grad_act(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                     tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    din[0] = out_of(graph,
                    tri_graph_emit(graph, TRI_OP_ACT_GRAD, name, &node.attr,
                                   (tri_id[]){node.in[0], dout[0]}, 2, 1),
                    0);
}

const tri_op_def tri_def_act = {
    .name = "act",
    .inputs = "x",
    .outputs = "y, [amax of y]",
    .suffix = {NULL, "amax"},
    .meaning = "y = gelu(x), the tanh form or the exact one, relu(x), tanh(x) or silu(x).",
    .family = TRI_ATTR_ACT,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 2,
    .wide_out = 1 << 1,
    .may_alias = {1},
    .infer = infer_equal,
    .place = tri_place_elementwise,
    .grad = grad_act,
    .flops = flops_act,
};

const tri_op_def tri_def_act_grad = {
    .name = "act_grad",
    .inputs = "x, dy",
    .outputs = "dx, [amax of dx]",
    .suffix = {NULL, "amax"},
    .meaning = "dx = dy times the slope of the activation at x.",
    .family = TRI_ATTR_ACT,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .wide_out = 1 << 1,
    .may_alias = {2},
    .linear_in = 1 << 1,
    .infer = infer_equal,
    .place = tri_place_elementwise,
    .flops = flops_act,
};

static tr_status infer_dropout(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    if (node->num_in > 3)
        TRI_TRY(tri_check_places(&in[0], &in[3], err));
    return tri_infer_same(node, in, out, out_dtype, err);
}

/* The mask is a pure function of the element's global index: the backward draws it again. */
static void grad_dropout(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    din[0] = out_of(graph,
                    tri_graph_emit(graph, TRI_OP_DROPOUT, name, &node.attr,
                                   (tri_id[]){dout[0], node.in[1], node.in[2], node.in[3]},
                                   node.num_in, 1),
                    0);
}

static double flops_dropout(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 20.0 * (double)tri_shape_count(&in[0]); /* ten Philox rounds for four elements */
}

const tri_op_def tri_def_dropout = {
    .name = "dropout",
    .inputs = "x [B, ...], rows i32 [B], step i32 [1], [places i32 [B, P]]",
    .outputs = "y",
    .meaning = "y = x / (1-p) where the random word of the element's global index is kept, else 0. "
               "With places, the index along T of x [B, T, ...] is the token's place. Its own "
               "gradient: the same call on dy.",
    .family = TRI_ATTR_DROPOUT,
    .min_in = 3,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .optional = 1 << 3,
    .linear_in = 1 << 0,
    .infer = infer_dropout,
    .place = tri_place_same,
    .grad = grad_dropout,
    .flops = flops_dropout,
};

/* Its own gradient, too: the factor of an element does not depend on the element. */
static void grad_jitter(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                        tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    din[0] = out_of(graph,
                    tri_graph_emit(graph, TRI_OP_JITTER, name, &node.attr,
                                   (tri_id[]){dout[0], node.in[1], node.in[2], node.in[3]},
                                   node.num_in, 1),
                    0);
}

const tri_op_def tri_def_jitter = {
    .name = "jitter",
    .inputs = "x [B, ...], rows i32 [B], step i32 [1], [places i32 [B, P]]",
    .outputs = "y",
    .meaning = "y = x times a factor from [1-p, 1+p), drawn by the random word of the element's "
               "global index, as in dropout. Its own gradient: the same call on dy.",
    .family = TRI_ATTR_DROPOUT,
    .min_in = 3,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .optional = 1 << 3,
    .linear_in = 1 << 0,
    .infer = infer_dropout,
    .place = tri_place_same,
    .grad = grad_jitter,
    .flops = flops_dropout,
};

static tr_status infer_accumulate(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    out[0] = node->attr.flat.parts > 0 ? tri_flat_shape(&node->attr.flat) : in[0];
    return TR_OK;
}

const tri_op_def tri_def_accumulate = {
    .name = "accumulate",
    .inputs = "x",
    .outputs = "sum",
    .meaning = "sum = x, or sum += x after the first micro-batch.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .infer = infer_accumulate,
    .place = tri_place_elementwise,
    .linear = true,
};

static double flops_axpby(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 3.0 * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_axpby = {
    .name = "axpby",
    .inputs = "x, y",
    .outputs = "z",
    .meaning = "z = alpha x + beta y.",
    .family = TRI_ATTR_AXPBY,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {3},
    .infer = infer_equal,
    .place = tri_place_elementwise,
    .flops = flops_axpby,
};

static tr_status infer_cast(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)err;
    out[0] = in[0];
    out_dtype[0] = node->attr.cast.dtype;
    return TR_OK;
}

static void grad_cast(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                      tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const tri_value *x = &graph->values[node.in[0]];
    tri_attr attr = {.cast = {.dtype = x->dtype}};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", x->name);
    din[0] = out_of(graph, tri_graph_emit(graph, TRI_OP_CAST, name, &attr, &dout[0], 1, 1), 0);
}

const tri_op_def tri_def_cast = {
    .name = "cast",
    .inputs = "x",
    .outputs = "y",
    .meaning = "y = x in another type, rounded to the nearest, ties to even.",
    .family = TRI_ATTR_CAST,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .infer = infer_cast,
    .place = tri_place_elementwise,
    .linear = true,
    .grad = grad_cast,
};
