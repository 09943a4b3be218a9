/* Rows that go to the ranks of their experts, and back (layout.ep).
 *
 * rooms, dispatch and collect are there where experts may be on other ranks: on one imaginary
 * device they do nothing. place/expand_experts.c makes messages of them, with pack_rooms and
 * mask_rows. */
#include "graph/op_table.h"

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

static tr_status infer_rooms(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)in;
    (void)out_dtype;
    (void)err;
    out[0] = tri_shape_scalar(1);
    return TR_OK;
}

/* A flag that all ranks must learn of: terms over every factor, even where all have the same rows.
 */
static void place_rooms(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    (void)shapes;
    (void)in;
    out[0] = (tri_spot){TRI_SPOT_TERMS, 0};
}

const tri_op_def tri_def_rooms = {
    .name = "rooms",
    .inputs = "expert i32 [B, T, C]",
    .outputs = "lost [1]",
    .meaning = "Plans how sorted rows go to the ranks of their experts; lost += rows that find no "
               "room on the way: none on one rank.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_out = 1,
    .infer = infer_rooms,
    .place = place_rooms,
    .flops = no_flops,
};

static tr_status infer_moved(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char a[128], b[128];
    if (in[1].rank > in[0].rank || tri_shape_span(&in[0], 0, in[1].rank) != tri_shape_count(&in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "rows %s are not those of experts %s",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    out[0] = in[0];
    return TR_OK;
}

static void grad_moved(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                       tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const tri_op back = node.op == TRI_OP_DISPATCH ? TRI_OP_COLLECT : TRI_OP_DISPATCH;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id grad = tri_graph_emit(graph, back, name, NULL, (tri_id[]){dout[0], node.in[1]}, 2, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_dispatch = {
    .name = "dispatch",
    .inputs = "rows [B, T, C, ..], expert i32 [B, T, C]",
    .outputs = "rows [B, T, C, ..]",
    .meaning = "Rows at the ranks of their experts, in the order of these.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .carries = 1,
    .infer = infer_moved,
    .place = tri_place_same,
    .grad = grad_moved,
    .flops = no_flops,
};

const tri_op_def tri_def_collect = {
    .name = "collect",
    .inputs = "rows [B, T, C, ..], expert i32 [B, T, C]",
    .outputs = "rows [B, T, C, ..]",
    .meaning = "Rows back from the ranks of their experts, as they were before dispatch.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .carries = 1,
    .infer = infer_moved,
    .place = tri_place_same,
    .grad = grad_moved,
    .flops = no_flops,
};

static tr_status infer_pack(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    const tri_route_attr *attr = &node->attr.route;
    if (attr->ranks < 1 || attr->room < 1 || attr->experts % attr->ranks != 0)
        return tri_fail(err, TR_ERROR_INPUT, "%d experts do not divide over %d ranks",
                        attr->experts, attr->ranks);
    out[0] = tri_shape_scalar(attr->ranks);
    out[1] = out[3] =
        tri_shape_of(2, TRI_DIM_N, (int64_t)attr->ranks, TRI_DIM_N, (int64_t)attr->room);
    out[2] = in[0];
    for (int k = 0; k < 4; k++)
        out_dtype[k] = TRI_I32;
    return TR_OK;
}

const tri_op_def tri_def_pack_rooms = {
    .name = "pack_rooms",
    .inputs = "expert i32 [R..], sorted",
    .outputs = "counts i32 [ranks], from i32 [ranks, room], to i32 [R..], ids i32 [ranks, room]",
    .suffix = {"counts", "from", "to", "ids"},
    .meaning =
        "The rows of each rank's experts, experts / ranks of them, are put into its room, as "
        "many as fit: counts of all rows, from: the row that lies in a place of a room, or "
        "-1; to: the place of a row, or -1; ids: the row's expert among those of its rank.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 4,
    .max_out = 4,
    .infer = infer_pack,
    .flops = no_flops,
};

static tr_status infer_mask(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    if (in[0].rank != 2 || tri_shape_count(&in[1]) != in[0].dim[0].size)
        return tri_fail(err, TR_ERROR_INPUT, "needs rooms and a count for each of them");
    out[0] = in[0];
    out_dtype[0] = TRI_I32;
    return TR_OK;
}

const tri_op_def tri_def_mask_rows = {
    .name = "mask_rows",
    .inputs = "ids i32 [ranks, room], got i32 [ranks]",
    .outputs = "ids i32 [ranks, room]",
    .meaning = "The first got[r] of each room; -1 behind them.",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .infer = infer_mask,
    .flops = no_flops,
};
