/* Fused attention: the Tq x Tk scores are never stored.
 *
 * Who sees whom goes by places. A key has one place, a query an interval of them: what the
 * attributes leave of it (causal, a window: equal in every batch), and where there is one, its
 * span, which is data. A plain batch has neither spans nor places: token i has place i. */
#include "graph/op_table.h"

/* Shorter here; those of the gradient, from ROWS on, are NUM_RESULTS further on. */
enum {
    IN_Q = TRI_ATTENTION_Q,
    IN_K,
    IN_V,
    IN_ROWS,
    IN_STEP,
    IN_DOCS,
    IN_SPAN,
    IN_Q_PLACES,
    IN_K_PLACES,
    IN_SINK,
    MIN_IN = IN_SPAN,
    NUM_RESULTS = TRI_NUM_ATTENTION_GRAD_IN - TRI_NUM_ATTENTION_IN, /* do, o, lse */
    OPTIONAL = 1 << IN_K | 1 << IN_V | 1 << IN_DOCS | 1 << IN_SPAN | 1 << IN_Q_PLACES |
               1 << IN_K_PLACES | 1 << IN_SINK,
};

/* The dims of keys and of values that count heads and tokens. */
typedef struct key_dims {
    int heads, tokens;
} key_dims;

static key_dims key_dims_of(const tri_node *node)
{
    return node->attr.attention.cached ? (key_dims){1, 2} : (key_dims){2, 1};
}

static bool is_packed(const tri_shape *q)
{
    return q->rank == 5 && q->dim[2].name == TRI_DIM_QKV && q->dim[2].size == 3;
}

/* q [B, Tq, H, K] beside k [B, Tk, G, K] and v [B, Tk, G, V], or beside caches [R, G, P, K]. */
static tr_status check_apart(const tri_node *node, const tri_shape *q, const tri_shape *k,
                             const tri_shape *v, tr_error *err)
{
    char a[128], b[128], c[128];
    const bool cached = node->attr.attention.cached;
    const key_dims at = key_dims_of(node);
    bool fits = (q->rank == 4 || (cached && is_packed(q))) && k->rank == 4 && v->rank == 4;
    for (int i = 0; fits && i < 3; i++)
        fits = k->dim[i].size == v->dim[i].size;
    if (fits && k->dim[at.heads].size > 0 && k->dim[at.tokens].size > 0 &&
        q->dim[q->rank - 2].size % k->dim[at.heads].size == 0 &&
        q->dim[q->rank - 1].size == k->dim[3].size && (cached || q->dim[0].size == k->dim[0].size))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "needs q [B, T, H, K], k %s and v %s with H a multiple of G, not %s, %s and %s",
                    cached ? "[R, G, P, K]" : "[B, T, G, K]",
                    cached ? "[R, G, P, V]" : "[B, T, G, V]", tri_shape_text(q, a, sizeof a),
                    tri_shape_text(k, b, sizeof b), tri_shape_text(v, c, sizeof c));
}

/* An input j of integers, or of the sinks: absent, or of so many dims of these sizes. */
static tr_status check_extra(const tri_node *node, const tri_shape *in, int j, const char *what,
                             tri_shape want, tr_error *err)
{
    char text[128];
    if (j >= node->num_in || in[j].rank < 0)
        return TR_OK;
    bool fits = in[j].rank == want.rank;
    for (int d = 0; fits && d < want.rank; d++)
        fits = in[j].dim[d].size == want.dim[d].size;
    if (fits)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "needs %s, not %s", what,
                    tri_shape_text(&in[j], text, sizeof text));
}

static tr_status check_extras(const tri_node *node, const tri_shape *in, tr_error *err)
{
    const tri_shape *q = &in[IN_Q], *k = in[IN_K].rank < 0 ? q : &in[IN_K];
    const tri_dim keys = k->dim[in[IN_K].rank < 0 ? 1 : key_dims_of(node).tokens];
    const tri_dim two = {TRI_DIM_N, 2};
    tri_shape bt = {.rank = 2, .dim = {q->dim[0], q->dim[1]}};
    tri_shape spans = {.rank = 3, .dim = {q->dim[0], q->dim[1], two}};
    tri_shape places = {.rank = 2, .dim = {q->dim[0], keys}};
    tri_shape heads = {.rank = 1, .dim = {q->dim[q->rank - 2]}};
    TRI_TRY(check_extra(node, in, IN_DOCS, "a document for each [B, T]", bt, err));
    TRI_TRY(check_extra(node, in, IN_SPAN, "a span for each query, [B, T, 2]", spans, err));
    TRI_TRY(check_extra(node, in, IN_Q_PLACES, "a place for each query, [B, T]", bt, err));
    TRI_TRY(check_extra(node, in, IN_K_PLACES, "a place for each key, [B, T]", places, err));
    TRI_TRY(check_extra(node, in, IN_SINK, "a sink for each head, [H]", heads, err));
    if (in[IN_DOCS].rank >= 0 && keys.size != q->dim[1].size)
        return tri_fail(err, TR_ERROR_INPUT, "with documents there is a key for each query");
    return TR_OK;
}

/* What goes by the order of a batch has no meaning for a cache. */
static tr_status check_attr(const tri_node *node, const tri_shape *in, tr_error *err)
{
    const tri_attention_attr *attr = &node->attr.attention;
    if (attr->window < 0 || (attr->window > 0 && !attr->causal))
        return tri_fail(err, TR_ERROR_INPUT, "a window of %d needs causal attention",
                        (int)attr->window);
    if (attr->soft_cap < 0)
        return tri_fail(err, TR_ERROR_INPUT, "a soft cap of %g is negative",
                        (double)attr->soft_cap);
    if (attr->cached &&
        (in[IN_K].rank < 0 || in[IN_DOCS].rank >= 0 || attr->dropout > 0 || attr->causal == 0 ||
         node->num_in <= IN_Q_PLACES || in[IN_Q_PLACES].rank < 0 ||
         (node->num_in > IN_K_PLACES && in[IN_K_PLACES].rank >= 0)))
        return tri_fail(err, TR_ERROR_INPUT,
                        "looks at a cache by the places of its queries alone, and back");
    return TR_OK;
}

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char text[128];
    const tri_shape *q = &in[IN_Q];
    bool apart = in[IN_K].rank >= 0;
    if (apart != (in[IN_V].rank >= 0))
        return tri_fail(err, TR_ERROR_INPUT, "needs k and v, or neither");
    TRI_TRY(check_attr(node, in, err));
    if (apart)
        TRI_TRY(check_apart(node, q, &in[IN_K], &in[IN_V], err));
    else if (!is_packed(q))
        return tri_fail(err, TR_ERROR_INPUT, "needs [B, T, qkv 3, H, K], not %s",
                        tri_shape_text(q, text, sizeof text));
    TRI_TRY(check_extras(node, in, err));
    tri_dim b = q->dim[0], t = q->dim[1], h = q->dim[q->rank - 2];
    tri_dim width = apart ? in[IN_V].dim[3] : q->dim[q->rank - 1];
    out[0] = (tri_shape){.rank = 4, .dim = {b, t, h, width}};
    out[1] = (tri_shape){.rank = 3, .dim = {b, h, t}};
    return TR_OK;
}

/* The log-sum-exps pass no gradient: what merges results is made after the backward. */
static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    if (dout[1] != TRI_NONE || node.attr.attention.cached) {
        tri_graph_fail(graph, "%s: %s no gradient", graph->values[node.out[0]].name,
                       dout[1] != TRI_NONE ? "lse passes" : "attention to a cache has");
        return;
    }
    bool apart = node.in[IN_K] != TRI_NONE;
    bool sinks = node.num_in > IN_SINK && node.in[IN_SINK] != TRI_NONE;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[IN_Q]].name);
    tri_id in[TRI_MAX_IN] = {dout[0],       node.in[IN_Q], node.in[IN_K],
                             node.in[IN_V], node.out[0],   node.out[1]};
    for (int j = IN_ROWS; j < node.num_in; j++)
        in[j + NUM_RESULTS] = node.in[j];
    int of_input[] = {IN_Q, IN_K, IN_V, IN_SINK}, num_out = apart ? 3 : 1;
    of_input[num_out] = IN_SINK;
    num_out += sinks;
    tri_id backward = tri_graph_emit(graph, TRI_OP_ATTENTION_GRAD, name, &node.attr, in,
                                     node.num_in + NUM_RESULTS, num_out);
    for (int k = 0; backward != TRI_NONE && k < num_out; k++) {
        tri_id from = node.in[of_input[k]], to = graph->nodes[backward].out[k];
        din[of_input[k]] = to;
        graph->values[to].name = tri_arena_printf(&graph->arena, "d.%s", graph->values[from].name);
    }
}

/* A causal query i sees i + 1 keys, or as many as the window. */
static double plain_pairs(bool causal, double w, double tokens)
{
    if (!causal)
        return tokens * tokens;
    return w > 0 && w < tokens ? w * (w + 1) / 2 + (tokens - w) * w : tokens * (tokens + 1) / 2;
}

double tri_attention_share(bool causal, int32_t window, int64_t tokens)
{
    double n = (double)tokens;
    return plain_pairs(causal, window, n) / (n * n);
}

/* Pairs of a query and a key that are looked at. Spans, places and borders of documents are data,
 * and not counted: with places this is what a plain row would have on average, and in a cache the
 * most. */
static double num_pairs(const tri_node *node, const tri_shape *q, const tri_shape *k, bool placed)
{
    const tri_attention_attr *attr = &node->attr.attention;
    double queries = (double)q->dim[1].size, keys = queries, w = attr->window, pairs;
    if (k->rank >= 0)
        keys = (double)k->dim[key_dims_of(node).tokens].size;
    pairs = queries * keys;
    if (attr->share > 0)
        pairs *= (double)attr->share;
    else if (attr->causal && !placed && keys == queries)
        pairs = plain_pairs(true, w, keys);
    else if (w > 0 && w < keys)
        pairs = queries * w;
    return (double)q->dim[0].size * (double)q->dim[q->rank - 2].size * pairs;
}

/* Whether queries or keys have places of their own. */
static bool is_placed(const tri_node *node, const tri_shape *in, int first)
{
    bool placed = false;
    for (int j = first; j < first + 2 && j < node->num_in; j++)
        placed |= in[j].rank >= 0;
    return placed;
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    double pairs = num_pairs(node, &in[IN_Q], &in[IN_K], is_placed(node, in, IN_Q_PLACES));
    double k = (double)in[IN_Q].dim[in[IN_Q].rank - 1].size, v = (double)out[0].dim[3].size;
    return 2 * pairs * (k + v);
}

static double flops_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    const tri_shape *q = &in[TRI_ATTENTION_GRAD_Q];
    double pairs = num_pairs(node, q, &in[TRI_ATTENTION_GRAD_K],
                             is_placed(node, in, IN_Q_PLACES + NUM_RESULTS));
    double k = (double)q->dim[q->rank - 1].size;
    double v = (double)in[TRI_ATTENTION_GRAD_DO].dim[3].size;
    return 2 * pairs * (3 * k + 2 * v); /* scores again, dq, dk; dv, dp */
}

static tr_status infer_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    const int sink = IN_SINK + NUM_RESULTS;
    int num = in[TRI_ATTENTION_GRAD_K].rank >= 0 ? 3 : 1;
    bool sinks = node->num_in > sink && in[sink].rank >= 0;
    if (node->num_out != num + sinks || node->attr.attention.cached)
        return tri_fail(err, TR_ERROR_INPUT, "its outputs do not fit its inputs");
    for (int k = 0; k < num; k++)
        out[k] = in[TRI_ATTENTION_GRAD_Q + k];
    if (sinks) {
        out[num] = in[sink];
        out_dtype[num] = TRI_F32;
    }
    return TR_OK;
}

static tr_status infer_merge(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char a[128], b[128];
    const tri_shape *o = &in[0], *lse = &in[1];
    if (o->rank != 4 || lse->rank != 3 || lse->dim[0].size != o->dim[0].size ||
        lse->dim[1].size != o->dim[2].size || lse->dim[2].size != o->dim[1].size ||
        !tri_shape_equal(o, &in[2]) || !tri_shape_equal(lse, &in[3]))
        return tri_fail(err, TR_ERROR_INPUT,
                        "needs two results of attention, o [B, T, H, V] and lse [B, H, T], not %s "
                        "and %s",
                        tri_shape_text(o, a, sizeof a), tri_shape_text(lse, b, sizeof b));
    out[0] = *o;
    out[1] = *lse;
    return TR_OK;
}

const tri_op_def tri_def_attention = {
    .name = "attention",
    .inputs = "q [B, T, H, K] (or qkv [B, T, 3, H, K]), k [B, T, G, K] or none, v [B, T, G, V] or "
              "none, rows i32 [B], step i32 [1], docs i32 [B, T] or none, [span i32 [B, T, 2]], "
              "[q_places i32 [B, T]], [k_places i32 [B, T]], [sink [H]]",
    .outputs = "o [B, T, H, V], lse [B, H, T]",
    .suffix = {NULL, "lse"},
    .meaning = "o = softmax(alpha q.k) v for each head, with dropout on the probabilities; lse = "
               "log of the sum of exponentials of a row of scores. Who sees whom goes by places: "
               "causal where marked, then perhaps within a window; within the span of the query; "
               "with docs, within a document. Scores may have a soft cap, rows a sink. k and v may "
               "be caches [R, G, P, K]: rows says which row, place x lies at x mod P. H/G heads "
               "share a key head.",
    .family = TRI_ATTR_ATTENTION,
    .min_in = MIN_IN,
    .max_in = TRI_NUM_ATTENTION_IN,
    .min_out = 2,
    .max_out = 2,
    .optional = OPTIONAL,
    .wide_in = 1 << IN_SINK,
    .wide_out = 1 << 1,
    .infer = infer,
    .place = tri_place_heads,
    .grad = grad,
    .flops = flops,
};

const tri_op_def tri_def_attention_grad = {
    .name = "attention_grad",
    .inputs = "do, q (or qkv), k or none, v or none, o, lse, rows i32 [B], step i32 [1], docs i32 "
              "[B, T] or none, [span], [q_places], [k_places], [sink]",
    .outputs = "dq (or dqkv), [dk], [dv], [dsink [H]]",
    .meaning = "The backward of attention; probabilities are computed again from lse, block by "
               "block. o and lse may be of more keys than are given here.",
    .family = TRI_ATTR_ATTENTION,
    .min_in = MIN_IN + NUM_RESULTS,
    .max_in = TRI_NUM_ATTENTION_GRAD_IN,
    .min_out = 1,
    .max_out = 4,
    .optional = 1 << TRI_ATTENTION_GRAD_K | 1 << TRI_ATTENTION_GRAD_V |
                (OPTIONAL >> IN_DOCS << IN_DOCS) << NUM_RESULTS,
    .wide_in = 1 << TRI_ATTENTION_GRAD_LSE | 1 << (IN_SINK + NUM_RESULTS),
    .linear_in = 1 << TRI_ATTENTION_GRAD_DO,
    .infer = infer_grad,
    .place = tri_place_heads_grad,
    .flops = flops_grad,
};

const tri_op_def tri_def_attention_merge = {
    .name = "attention_merge",
    .inputs = "o1 [B, T, H, V], lse1 [B, H, T], o2, lse2",
    .outputs = "o, lse",
    .suffix = {NULL, "lse"},
    .meaning = "Attention to two sets of keys, from the results for each: lse = log(exp(lse1) + "
               "exp(lse2)), o = exp(lse1 - lse) o1 + exp(lse2 - lse) o2. A query that one of them "
               "has no key for has the other's result.",
    .min_in = 4,
    .max_in = 4,
    .min_out = 2,
    .max_out = 2,
    .may_alias = {1 << 0 | 1 << 2},
    .wide_in = 1 << 1 | 1 << 3,
    .wide_out = 1 << 1,
    .infer = infer_merge,
    .place = tri_place_merge,
};
