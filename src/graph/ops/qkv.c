/* Queries, keys and values apart, and packed as one product makes them. Where keys travel and
 * queries do not, they must be apart. Each of the two is the other's gradient. */
#include "graph/op_table.h"

enum { NUM_PARTS = 3, PART_DIM = 2 };

static tr_status infer_split(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char text[128];
    if (in[0].rank != 5 || in[0].dim[PART_DIM].size != NUM_PARTS)
        return tri_fail(err, TR_ERROR_INPUT, "needs [B, T, 3, H, K], not %s",
                        tri_shape_text(&in[0], text, sizeof text));
    tri_shape part = {.rank = 4, .dim = {in[0].dim[0], in[0].dim[1], in[0].dim[3], in[0].dim[4]}};
    out[0] = out[1] = out[2] = part;
    return TR_OK;
}

static tr_status infer_join(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char a[128], b[128];
    for (int j = 0; j < NUM_PARTS; j++)
        if (in[j].rank != 4 || !tri_shape_equal(&in[j], &in[0]))
            return tri_fail(err, TR_ERROR_INPUT, "needs three equal [B, T, H, K], not %s and %s",
                            tri_shape_text(&in[0], a, sizeof a),
                            tri_shape_text(&in[j], b, sizeof b));
    out[0] = (tri_shape){
        .rank = 5,
        .dim = {in[0].dim[0], in[0].dim[1], {TRI_DIM_QKV, NUM_PARTS}, in[0].dim[2], in[0].dim[3]}};
    return TR_OK;
}

static void grad_split(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                       tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    for (int k = 0; k < NUM_PARTS; k++)
        if (dout[k] == TRI_NONE) {
            tri_graph_fail(graph, "%s: the loss does not depend on all of its three parts", name);
            return;
        }
    tri_id back = tri_graph_emit(graph, TRI_OP_JOIN_QKV, name, NULL, dout, NUM_PARTS, 1);
    din[0] = back == TRI_NONE ? TRI_NONE : graph->nodes[back].out[0];
}

static void grad_join(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                      tri_id *din)
{
    (void)wanted;
    const char *name =
        tri_arena_printf(&graph->arena, "d.%s", graph->values[graph->nodes[id].out[0]].name);
    tri_id back = tri_graph_emit(graph, TRI_OP_SPLIT_QKV, name, NULL, dout, 1, NUM_PARTS);
    for (int k = 0; back != TRI_NONE && k < NUM_PARTS; k++)
        din[k] = graph->nodes[back].out[k];
}

/* Rows, tokens, heads and widths may lie anywhere; the three are a rank's own. */
static void place_split(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)shapes;
    bool cut = in[0].kind == TRI_SPOT_CUT && in[0].dim != PART_DIM;
    if (!cut)
        in[0] = (tri_spot){TRI_SPOT_WHOLE, 0};
    for (int k = 0; k < node->num_out; k++) {
        out[k] = in[0];
        out[k].dim -= cut && in[0].dim > PART_DIM;
    }
}

static void place_join(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    tri_place_elementwise(node, shapes, in, out);
    out[0].dim += out[0].kind == TRI_SPOT_CUT && out[0].dim >= PART_DIM;
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_split_qkv = {
    .name = "split_qkv",
    .inputs = "qkv [B, T, 3, H, K]",
    .outputs = "q, k, v [B, T, H, K]",
    .suffix = {"q", "k", "v"},
    .meaning = "q, k and v, each dense. The gradient of join_qkv.",
    .min_in = 1,
    .max_in = 1,
    .min_out = NUM_PARTS,
    .max_out = NUM_PARTS,
    .moves = true,
    .infer = infer_split,
    .grad = grad_split,
    .place = place_split,
    .linear = true,
    .flops = no_flops,
};

const tri_op_def tri_def_join_qkv = {
    .name = "join_qkv",
    .inputs = "q, k, v [B, T, H, K]",
    .outputs = "qkv [B, T, 3, H, K]",
    .meaning = "The three of each token side by side. The gradient of split_qkv.",
    .min_in = NUM_PARTS,
    .max_in = NUM_PARTS,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .infer = infer_join,
    .grad = grad_join,
    .place = place_join,
    .linear = true,
    .flops = no_flops,
};
