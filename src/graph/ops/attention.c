/* Fused attention: the T x T scores are never stored. */
#include "graph/op_table.h"

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char text[128];
    if (in[0].rank != 5 || in[0].dim[2].name != TRI_DIM_QKV || in[0].dim[2].size != 3)
        return tri_fail(err, TR_ERROR_INPUT, "needs [B, T, qkv 3, H, K], not %s",
                        tri_shape_text(&in[0], text, sizeof text));
    tri_dim b = in[0].dim[0], t = in[0].dim[1], h = in[0].dim[3], k = in[0].dim[4];
    out[0] = (tri_shape){.rank = 4, .dim = {b, t, h, k}};
    out[1] = (tri_shape){.rank = 3, .dim = {b, h, t}};
    return TR_OK;
}

static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id in[] = {dout[0], node.in[0], node.out[0], node.out[1], node.in[1], node.in[2]};
    tri_id backward = tri_graph_emit(graph, TRI_OP_ATTENTION_GRAD, name, &node.attr, in, 6, 1);
    din[0] = backward == TRI_NONE ? TRI_NONE : graph->nodes[backward].out[0];
}

/* Products over the pairs of positions that are looked at; a causal row t sees t + 1 of them. */
static double pair_flops(const tri_node *node, const tri_shape *qkv, double products)
{
    double t = (double)qkv->dim[1].size;
    double pairs = node->attr.causal ? t * (t + 1) / 2 : t * t;
    double heads = (double)qkv->dim[0].size * (double)qkv->dim[3].size;
    return products * 2 * heads * pairs * (double)qkv->dim[4].size;
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return pair_flops(node, &in[0], 2);
}

static double flops_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return pair_flops(node, &in[1], 5); /* scores again, dv, dp, dq, dk */
}

static tr_status infer_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    (void)err;
    out[0] = in[1];
    return TR_OK;
}

const tri_op_def tri_def_attention = {
    .name = "attention",
    .inputs = "qkv [B, T, 3, H, K], rows i32 [B], step i32 [1]",
    .outputs = "o [B, T, H, K], lse [B, H, T]",
    .suffix = {NULL, "lse"},
    .meaning = "o = softmax(alpha q.k) v for each head, causal where marked, with dropout on the "
               "probabilities; lse = log of the sum of exponentials of a row of scores.",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .infer = infer,
    .grad = grad,
    .flops = flops,
};

const tri_op_def tri_def_attention_grad = {
    .name = "attention_grad",
    .inputs = "do, qkv, o, lse, rows i32 [B], step i32 [1]",
    .outputs = "dqkv [B, T, 3, H, K]",
    .meaning = "The backward of attention; probabilities are computed again from lse, block by "
               "block.",
    .min_in = 6,
    .max_in = 6,
    .min_out = 1,
    .max_out = 1,
    .infer = infer_grad,
    .flops = flops_grad,
};
