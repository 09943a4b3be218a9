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
    .shape_in = 3,
    .can_accumulate = 1,
    .linear_in = 1 << 0,
    .infer = infer_embed_grad,
    .place = tri_place_embed_grad,
    .flops = flops_embed_grad,
};

static tr_status infer_select_row(const tri_node *node, const tri_shape *in, tri_shape *out,
                                  tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (in[0].rank != 3 || in[1].rank != 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs x [B, T, D] and an index [B]");
    if (node->num_in > 2)
        TRI_TRY(tri_check_places(&in[0], &in[2], err));
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
    tri_id grad =
        tri_graph_emit(graph, TRI_OP_SELECT_ROW_GRAD, name, NULL,
                       (tri_id[]){dout[0], node.in[1], node.in[0], node.in[2]}, node.num_in + 1, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

/* Input `of`, x [B, T, D] or the shape of it, is cut along T, and the places of its tokens are
 * there to go with it: then a rank finds the row that is wanted, or has none of it. */
static bool finds_by_places(const tri_node *node, const tri_shape *shapes, const tri_spot *in,
                            int of)
{
    int last = node->num_in - 1;
    return in[of].kind == TRI_SPOT_CUT && in[of].dim == 1 && last > 1 && last != of &&
           shapes[last].rank == 2;
}

static void place_select(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    if (!finds_by_places(node, shapes, in, 0)) {
        tri_place_batch(node, shapes, in, out);
        return;
    }
    in[1] = (tri_spot){TRI_SPOT_WHOLE, 0};
    in[2] = in[0]; /* [B, P] */
    out[0] = (tri_spot){TRI_SPOT_TERMS, 0};
}

const tri_op_def tri_def_select_row = {
    .name = "select_row",
    .inputs = "x [B, T, D], index i32 [B], [places i32 [B, P]]",
    .outputs = "y [B, D]",
    .meaning = "y[b] = x[b, index[b]]: the position whose next token is wanted. With places, the "
               "token whose place is index[b], zeros where it is not here.",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 2,
    .linear_in = 1 << 0,
    .place = place_select,
    .infer = infer_select_row,
    .grad = grad_select_row,
    .flops = no_flops,
};

static tr_status infer_select_row_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                       tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (node->num_in > 3)
        TRI_TRY(tri_check_places(&in[2], &in[3], err));
    out[0] = in[2];
    return TR_OK;
}

/* Each rank has the gradient of its own tokens. */
static void place_select_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                              tri_spot *out)
{
    if (!finds_by_places(node, shapes, in, 2)) {
        tri_place_batch(node, shapes, in, out);
        return;
    }
    in[0] = in[1] = (tri_spot){TRI_SPOT_WHOLE, 0};
    out[0] = in[3] = in[2];
}

const tri_op_def tri_def_select_row_grad = {
    .name = "select_row_grad",
    .inputs = "dy [B, D], index i32 [B], x [B, T, D] (its shape only), [places i32 [B, P]]",
    .outputs = "dx [B, T, D]",
    .meaning = "dx[b, index[b]] = dy[b], zeros elsewhere. With places, dx of the token whose place "
               "is index[b].",
    .min_in = 3,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 3,
    .linear_in = 1 << 0,
    .place = place_select_grad,
    .infer = infer_select_row_grad,
    .flops = no_flops,
};

/* Dims of the index that count rows of the result. */
static int index_lead(const tri_node *node, const tri_shape *index)
{
    return index->rank - !node->attr.gather.each;
}

static tr_status infer_gather_rows(const tri_node *node, const tri_shape *in, tri_shape *out,
                                   tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char a[128], b[128];
    int lead = node->attr.gather.lead, first = index_lead(node, &in[1]);
    int rank = first + in[0].rank - lead;
    if (lead < 1 || lead > in[0].rank || first < 0 || rank < 1 || rank > TRI_MAX_RANK)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no rows of %d dims for the index %s",
                        tri_shape_text(&in[0], a, sizeof a), lead,
                        tri_shape_text(&in[1], b, sizeof b));
    out[0].rank = 0;
    for (int d = 0; d < first; d++)
        out[0].dim[out[0].rank++] = in[1].dim[d];
    for (int d = lead; d < in[0].rank; d++)
        out[0].dim[out[0].rank++] = in[0].dim[d];
    return TR_OK;
}

static double flops_gather_rows(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    double terms = node->attr.gather.each ? 1 : (double)in[1].dim[in[1].rank - 1].size;
    return terms > 1 ? terms * (double)tri_shape_count(out) : 0; /* of one term it is a copy */
}

/* By the index that leads the other way. */
static void grad_gather_rows(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                             tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    if (node.num_in < 3) {
        tri_graph_fail(graph, "%s cannot be differentiated: it has no index that leads back",
                       graph->values[node.out[0]].name);
        return;
    }
    int lead = index_lead(&node, &graph->values[node.in[1]].shape);
    int of_back = graph->values[node.in[2]].shape.rank;
    tri_attr attr = {.gather = {.lead = (uint8_t)lead, .each = of_back == node.attr.gather.lead}};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id in[] = {dout[0], node.in[2], node.in[1]};
    tri_id grad = tri_graph_emit(graph, TRI_OP_GATHER_ROWS, name, &attr, in, 3, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_gather_rows = {
    .name = "gather_rows",
    .inputs = "x [N.., W..], index i32 [M.., k] (or [M..]: one term), [back i32: of its gradient]",
    .outputs = "y [M.., W..]",
    .meaning =
        "y[m] = the sum over k of x[index[m,k]], where the first `lead` dims of x count its "
        "rows; an index of -1 adds nothing. back lists, for each row of x, the rows of y that "
        "it goes to.",
    .family = TRI_ATTR_GATHER,
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .carries = 1 << 0,
    .infer = infer_gather_rows,
    .grad = grad_gather_rows,
    .place = tri_place_by_index,
    .flops = flops_gather_rows,
};
