/* Tables of vectors looked up by id, and rows picked by position. */
#include "graph/op_table.h"

static tr_status infer_embed(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank != 2)
        return tri_fail(err, TR_ERROR_INPUT, "the table must have two dims");
    out[0] = in[1];
    out[0].dim[out[0].rank++] = in[0].dim[1];
    return TR_OK;
}

static void grad_embed(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                       tri_id *din)
{
    const tri_node node = graph->nodes[id];
    if (!wanted[0])
        return;
    const tri_value *table = &graph->values[node.in[0]];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", table->name);
    tri_id grad = tri_graph_emit(graph, TRI_OP_EMBED_GRAD, name, NULL,
                                 (tri_id[]){dout[0], node.in[1], node.in[0]}, 3, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_embed = {
    .name = "embed",
    .inputs = "table [V, D], ids i32 [B, T]",
    .outputs = "y [B, T, D]",
    .meaning = "y[b,t] = table[ids[b,t]]; ids outside the table (or this shard of it) give zeros.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .infer = infer_embed,
    .place = tri_place_embed,
    .grad = grad_embed,
    .flops = no_flops,
};

static tr_status infer_embed_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    out[0] = in[2].rank >= 0 ? in[2] : node->attr.lookup.table;
    return TR_OK;
}

static double flops_embed_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_embed_grad = {
    .name = "embed_grad",
    .inputs = "dy [B, T, D], ids i32 [B, T], table [V, D] (its shape only) or none",
    .outputs = "dtable [V, D]",
    .meaning = "dtable[ids[b,t]] += dy[b,t], in the order of the tokens.",
    .family = TRI_ATTR_LOOKUP,
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 2,
    .can_accumulate = 1,
    .linear_in = 1 << 0,
    .infer = infer_embed_grad,
    .place = tri_place_embed_grad,
    .flops = flops_embed_grad,
};

static tr_status infer_select_row(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank != 3 || in[1].rank != 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs x [B, T, D] and an index [B]");
    out[0] =
        tri_shape_of(2, in[0].dim[0].name, in[0].dim[0].size, in[0].dim[2].name, in[0].dim[2].size);
    return TR_OK;
}

static void grad_select_row(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                            tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id grad = tri_graph_emit(graph, TRI_OP_SELECT_ROW_GRAD, name, NULL,
                                 (tri_id[]){dout[0], node.in[1], node.in[0]}, 3, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_select_row = {
    .name = "select_row",
    .inputs = "x [B, T, D], index i32 [B]",
    .outputs = "y [B, D]",
    .meaning = "y[b] = x[b, index[b]]: the position whose next token is wanted.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .linear_in = 1 << 0,
    .place = tri_place_batch,
    .infer = infer_select_row,
    .grad = grad_select_row,
    .flops = no_flops,
};

const tri_op_def tri_def_select_row_grad = {
    .name = "select_row_grad",
    .inputs = "dy [B, D], index i32 [B], x [B, T, D] (its shape only)",
    .outputs = "dx [B, T, D]",
    .meaning = "dx[b, index[b]] = dy[b], zeros elsewhere.",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .linear_in = 1 << 0,
    .place = tri_place_batch,
    .infer = infer_embed_grad,
    .flops = no_flops,
};
