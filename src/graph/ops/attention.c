/* Fused attention: the T x T scores are never stored. */
#include "graph/op_table.h"

/* Inputs of attention, and of its gradient, where they begin one later. */
enum { IN_Q, IN_K, IN_V, IN_ROWS, IN_STEP, IN_DOCS, NUM_FORWARD_IN };
enum { GRAD_DO, GRAD_Q, GRAD_K, GRAD_V, GRAD_O, GRAD_LSE, GRAD_ROWS, GRAD_STEP, GRAD_DOCS };

/* q [B, T, H, K] beside k and v [B, T, G, K]. */
static tr_status check_apart(const tri_shape *q, const tri_shape *k, const tri_shape *v,
                             tr_error *err)
{
    char a[128], b[128];
    bool fits = q->rank == 4 && k->rank == 4 && tri_shape_equal(k, v);
    for (int i = 0; fits && i < 4; i++)
        fits = i == 2 ? k->dim[i].size > 0 && q->dim[i].size % k->dim[i].size == 0
                      : q->dim[i].size == k->dim[i].size;
    if (fits)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "needs q [B, T, H, K], k and v [B, T, G, K] with H a multiple of G, not %s and "
                    "%s",
                    tri_shape_text(q, a, sizeof a), tri_shape_text(k, b, sizeof b));
}

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char text[128];
    const tri_shape *q = &in[IN_Q], *docs = &in[IN_DOCS];
    bool apart = in[IN_K].rank >= 0;
    if (apart != (in[IN_V].rank >= 0))
        return tri_fail(err, TR_ERROR_INPUT, "needs k and v, or neither");
    if (apart)
        TRI_TRY(check_apart(q, &in[IN_K], &in[IN_V], err));
    else if (q->rank != 5 || q->dim[2].name != TRI_DIM_QKV || q->dim[2].size != 3)
        return tri_fail(err, TR_ERROR_INPUT, "needs [B, T, qkv 3, H, K], not %s",
                        tri_shape_text(q, text, sizeof text));
    if (docs->rank >= 0 && (docs->rank != 2 || docs->dim[0].size != q->dim[0].size ||
                            docs->dim[1].size != q->dim[1].size))
        return tri_fail(err, TR_ERROR_INPUT, "needs a document for each [B, T], not %s",
                        tri_shape_text(docs, text, sizeof text));
    if (node->attr.attention.window < 0 ||
        (node->attr.attention.window > 0 && !node->attr.attention.causal))
        return tri_fail(err, TR_ERROR_INPUT, "a window of %d needs causal attention",
                        (int)node->attr.attention.window);
    tri_dim b = q->dim[0], t = q->dim[1], h = q->dim[q->rank - 2], k = q->dim[q->rank - 1];
    out[0] = (tri_shape){.rank = 4, .dim = {b, t, h, k}};
    out[1] = (tri_shape){.rank = 3, .dim = {b, h, t}};
    return TR_OK;
}

static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    bool apart = node.in[IN_K] != TRI_NONE;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[IN_Q]].name);
    tri_id in[] = {dout[0],     node.in[IN_Q],    node.in[IN_K],    node.in[IN_V],   node.out[0],
                   node.out[1], node.in[IN_ROWS], node.in[IN_STEP], node.in[IN_DOCS]};
    int num_out = apart ? 3 : 1;
    tri_id backward = tri_graph_emit(graph, TRI_OP_ATTENTION_GRAD, name, &node.attr, in,
                                     sizeof in / sizeof *in, num_out);
    for (int j = 0; backward != TRI_NONE && j < num_out; j++) {
        din[j] = graph->nodes[backward].out[j];
        graph->values[din[j]].name =
            tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[j]].name);
    }
}

/* Products over the pairs of positions that are looked at; a causal row t sees t + 1 of them, or
 * as many as the window. Borders of documents are data, and not counted. */
static double pair_flops(const tri_node *node, const tri_shape *q, double products)
{
    double t = (double)q->dim[1].size, w = node->attr.attention.window;
    double pairs = t * t;
    if (node->attr.attention.causal)
        pairs = w > 0 && w < t ? w * (w + 1) / 2 + (t - w) * w : t * (t + 1) / 2;
    double heads = (double)q->dim[0].size * (double)q->dim[q->rank - 2].size;
    return products * 2 * heads * pairs * (double)q->dim[q->rank - 1].size;
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return pair_flops(node, &in[IN_Q], 2);
}

static double flops_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return pair_flops(node, &in[GRAD_Q], 5); /* scores again, dv, dp, dq, dk */
}

static tr_status infer_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (node->num_out != (in[GRAD_K].rank >= 0 ? 3 : 1))
        return tri_fail(err, TR_ERROR_INPUT, "its outputs do not fit its inputs");
    for (int k = 0; k < node->num_out; k++)
        out[k] = in[GRAD_Q + k];
    return TR_OK;
}

const tri_op_def tri_def_attention = {
    .name = "attention",
    .inputs = "q [B, T, H, K] (or qkv [B, T, 3, H, K]), k [B, T, G, K] or none, v [B, T, G, K] or "
              "none, rows i32 [B], step i32 [1], docs i32 [B, T] or none",
    .outputs = "o [B, T, H, K], lse [B, H, T]",
    .suffix = {NULL, "lse"},
    .meaning = "o = softmax(alpha q.k) v for each head, with dropout on the probabilities; lse = "
               "log of the sum of exponentials of a row of scores. Causal where marked, then "
               "perhaps within a window; with docs, within a document. H/G heads share a key head.",
    .family = TRI_ATTR_ATTENTION,
    .min_in = NUM_FORWARD_IN,
    .max_in = NUM_FORWARD_IN,
    .min_out = 2,
    .max_out = 2,
    .optional = 1 << IN_K | 1 << IN_V | 1 << IN_DOCS,
    .wide_out = 1 << 1,
    .infer = infer,
    .place = tri_place_heads,
    .grad = grad,
    .flops = flops,
};

const tri_op_def tri_def_attention_grad = {
    .name = "attention_grad",
    .inputs = "do, q (or qkv), k or none, v or none, o, lse, rows i32 [B], step i32 [1], docs i32 "
              "[B, T] or none",
    .outputs = "dq (or dqkv), [dk], [dv]",
    .meaning = "The backward of attention; probabilities are computed again from lse, block by "
               "block.",
    .family = TRI_ATTR_ATTENTION,
    .min_in = GRAD_DOCS + 1,
    .max_in = GRAD_DOCS + 1,
    .min_out = 1,
    .max_out = 3,
    .optional = 1 << GRAD_K | 1 << GRAD_V | 1 << GRAD_DOCS,
    .wide_in = 1 << 5,
    .linear_in = 1 << 0,
    .infer = infer_grad,
    .place = tri_place_heads_grad,
    .flops = flops_grad,
};
