/* Experts: rows of tokens, sorted by the expert that they go to, through products whose matrix is
 * that of the row's expert.
 *
 * A token with C choices is C rows. The dims of sorted rows stay those of the choices, [B, T, C]:
 * what a rank has of them are the rows of its own tokens, in an order of its own, so whatever lies
 * apart by tokens needs no word with other ranks. Borders between experts are in the sorted list of
 * expert ids; no shape depends on who goes where. */
#include "graph/op_table.h"

static const tri_spot whole = {TRI_SPOT_WHOLE, 0}, terms = {TRI_SPOT_TERMS, 0};

static bool cut_below(const tri_spot *spot, int dims)
{
    return spot->kind == TRI_SPOT_CUT && spot->dim < dims;
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

static tr_status infer_sort(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    char text[128];
    if (in[0].rank < 2 || node->attr.route.experts < 1)
        return tri_fail(err, TR_ERROR_INPUT, "%s are no choices of experts",
                        tri_shape_text(&in[0], text, sizeof text));
    for (int k = 0; k < 4; k++) {
        out[k] = in[0];
        out_dtype[k] = TRI_I32;
    }
    return TR_OK;
}

const tri_op_def tri_def_sort_rows = {
    .name = "sort_rows",
    .inputs = "choice i32 [B, T, C]",
    .outputs = "place i32 [B, T, C], row i32 [B, T, C], slot i32 [B, T, C], expert i32 [B, T, C]",
    .suffix = {"place", "row", "slot", "expert"},
    .meaning = "Choices in the order of their experts, of equal ones in their own order; negative "
               "ones last. place of a choice: where it stands in that order. Of what stands there: "
               "row, its token; slot, the choice itself; expert, or -1.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 4,
    .max_out = 4,
    .infer = infer_sort,
    .place = tri_place_same,
    .flops = no_flops,
};

/* x [R.., K] and w [E, N, K]; back: x [R.., N]. */
static tr_status infer_grouped(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char a[128], b[128];
    int contracted = node->attr.grouped.back ? 1 : 2, made = 3 - contracted;
    const tri_shape *x = &in[0], *w = &in[1];
    if (w->rank != 3 || x->rank < 2 || in[2].rank != x->rank - 1 ||
        x->dim[x->rank - 1].name != w->dim[contracted].name ||
        x->dim[x->rank - 1].size != w->dim[contracted].size)
        return tri_fail(err, TR_ERROR_INPUT, "rows %s do not fit experts %s",
                        tri_shape_text(x, a, sizeof a), tri_shape_text(w, b, sizeof b));
    out[0] = *x;
    out[0].dim[x->rank - 1] = w->dim[made];
    return TR_OK;
}

/* Of the product of rows [R.., a] and something of b. */
static double flops_rows(const tri_node *node, const tri_shape *rows, double b)
{
    int64_t width = rows->dim[rows->rank - 1].size, own = node->attr.grouped.rows;
    double num = own > 0 ? (double)own : (double)tri_shape_span(rows, 0, rows->rank - 1);
    return 2.0 * num * (double)width * b;
}

static double flops_grouped(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    return flops_rows(node, &in[0], (double)out->dim[out->rank - 1].size);
}

/* Rows that lie apart go through all experts. Where experts lie apart, too, rows are at theirs
 * (place/expand_experts.c). Otherwise as of any product. */
static void place_grouped(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    int rows = shapes[2].rank, contracted = node->attr.grouped.back ? 1 : 2, made = 3 - contracted;
    bool apart = cut_below(&in[1], 1);
    if (cut_below(&in[0], rows)) {
        in[1] = apart ? in[1] : whole;
        in[2] = out[0] = in[0];
        return;
    }
    in[2] = out[0] = whole;
    bool inner =
        in[0].kind == TRI_SPOT_CUT && in[1].kind == TRI_SPOT_CUT && in[1].dim == contracted;
    bool outer = in[1].kind == TRI_SPOT_CUT && in[1].dim == made;
    if (inner) {
        out[0] = terms;
        return;
    }
    in[0] = whole;
    in[1] = outer ? in[1] : whole;
    if (outer)
        out[0] = (tri_spot){TRI_SPOT_CUT, rows};
}

static void grad_grouped(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    const tri_node node = graph->nodes[id];
    bool back = node.attr.grouped.back;
    if (wanted[0]) {
        tri_attr attr = {.grouped = {.back = !back}};
        const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
        tri_id grad = tri_graph_emit(graph, TRI_OP_GROUPED, name, &attr,
                                     (tri_id[]){dout[0], node.in[1], node.in[2]}, 3, 1);
        din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
    }
    if (wanted[1]) {
        const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[1]].name);
        tri_id of_n = back ? node.in[0] : dout[0], of_k = back ? dout[0] : node.in[0];
        tri_id grad = tri_graph_emit(graph, TRI_OP_GROUPED_GRAD, name, NULL,
                                     (tri_id[]){of_n, of_k, node.in[2], node.in[1]}, 4, 1);
        din[1] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
    }
}

const tri_op_def tri_def_grouped = {
    .name = "grouped",
    .inputs = "x [R.., K], w [E, N, K], expert i32 [R..]",
    .outputs = "y [R.., N]",
    .meaning = "y[r] = w[expert[r]] x[r], where rows are sorted by expert and those without one (a "
               "negative id) come last; theirs are 0. With back, x is [R.., N] and the transpose "
               "of each matrix is taken.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .linear_in = 1 << 0,
    .infer = infer_grouped,
    .place = place_grouped,
    .grad = grad_grouped,
    .flops = flops_grouped,
};

static tr_status infer_grouped_grad(const tri_node *node, const tri_shape *in, tri_shape *out,
                                    tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char a[128], b[128];
    out[0] = in[3].rank >= 0 ? in[3] : node->attr.grouped.table;
    if (out[0].rank != 3 || in[0].rank != in[1].rank || in[2].rank != in[0].rank - 1 ||
        in[0].dim[in[0].rank - 1].size != out[0].dim[1].size ||
        in[1].dim[in[1].rank - 1].size != out[0].dim[2].size)
        return tri_fail(err, TR_ERROR_INPUT, "rows %s and %s are not those of experts",
                        tri_shape_text(&in[0], a, sizeof a), tri_shape_text(&in[1], b, sizeof b));
    return TR_OK;
}

static double flops_grouped_grad(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return flops_rows(node, &in[0], (double)in[1].dim[in[1].rank - 1].size);
}

static void place_grouped_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                               tri_spot *out)
{
    (void)node;
    int rows = shapes[2].rank;
    bool apart = cut_below(&in[3], 1);
    if (cut_below(&in[0], rows) || cut_below(&in[1], rows)) {
        tri_spot spot = cut_below(&in[0], rows) ? in[0] : in[1];
        in[0] = in[1] = in[2] = spot;
        out[0] = apart ? in[3] : terms;
        in[3] = apart ? in[3] : whole;
        return;
    }
    in[2] = out[0] = whole;
    if (in[0].kind == TRI_SPOT_CUT) {
        in[1] = whole;
        out[0] = (tri_spot){TRI_SPOT_CUT, 1};
    } else if (in[1].kind == TRI_SPOT_CUT) {
        out[0] = (tri_spot){TRI_SPOT_CUT, 2};
    }
    in[3] = out[0];
}

const tri_op_def tri_def_grouped_grad = {
    .name = "grouped_grad",
    .inputs = "dy [R.., N], x [R.., K], expert i32 [R..], w [E, N, K] (its shape only) or none",
    .outputs = "dw [E, N, K]",
    .meaning = "dw[e] = the sum over the rows of expert e of dy[r] x[r]^T, in their order.",
    .family = TRI_ATTR_GROUPED,
    .min_in = 4,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 3,
    .shape_in = 4,
    .can_accumulate = 1,
    .infer = infer_grouped_grad,
    .place = place_grouped_grad,
    .flops = flops_grouped_grad,
};

/* x and others [R.., F], and a weight for each row. */
static tr_status infer_rows(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    char a[128], b[128];
    int last = node->num_in - 1;
    bool right = in[last].rank == in[0].rank - 1;
    for (int j = 1; j < last; j++)
        right = right && tri_shape_equal(&in[0], &in[j]);
    if (!right)
        return tri_fail(err, TR_ERROR_INPUT, "rows %s and weights %s do not fit each other",
                        tri_shape_text(&in[0], a, sizeof a),
                        tri_shape_text(&in[last], b, sizeof b));
    bool grad = node->op == TRI_OP_SWIGLU_ROWS_GRAD;
    int rows = grad ? 2 : 1, made = rows + grad; /* behind these, the largest of each of the rows */
    if (node->num_out != made && node->num_out != made + rows)
        return tri_fail(err, TR_ERROR_INPUT, "it makes %d results, or their largest, too", made);
    for (int k = 0; k < node->num_out; k++)
        out[k] = k < rows ? in[0] : k < made ? in[last] : tri_shape_scalar(TRI_AMAX_PARTS);
    return TR_OK;
}

static void place_swiglu_rows(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                              tri_spot *out)
{
    int rows = shapes[0].rank - 1, last = node->num_in - 1;
    tri_spot spot = in[0].kind == TRI_SPOT_CUT ? in[0] : whole;
    for (int j = 0; j < last; j++)
        in[j] = spot;
    in[last] = cut_below(&spot, rows) ? spot : whole;
    for (int k = 0; k < node->num_out; k++)
        out[k] = spot;
    if (node->num_out == 3 && spot.kind == TRI_SPOT_CUT && spot.dim == rows)
        out[2] = terms;
}

static void grad_swiglu_rows(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                             tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.out[0]].name);
    tri_id backward = tri_graph_emit(graph, TRI_OP_SWIGLU_ROWS_GRAD, name, NULL,
                                     (tri_id[]){node.in[0], node.in[1], dout[0], node.in[2]}, 4, 3);
    if (backward == TRI_NONE)
        return;
    for (int j = 0; j < 3; j++) {
        din[j] = graph->nodes[backward].out[j];
        graph->values[din[j]].name =
            tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[j]].name);
    }
}

static double flops_swiglu_rows(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (node->op == TRI_OP_SWIGLU_ROWS ? 11.0 : 20.0) * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_swiglu_rows = {
    .name = "swiglu_rows",
    .inputs = "gate [R.., F], up [R.., F], w [R..]",
    .outputs = "y [R.., F], [amax of y]",
    .suffix = {NULL, "amax"},
    .meaning = "y[r] = w[r] * silu(gate[r]) * up[r].",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 2,
    .wide_in = 1 << 2,
    .wide_out = 1 << 1,
    .may_alias = {1 | 2},
    .infer = infer_rows,
    .place = place_swiglu_rows,
    .grad = grad_swiglu_rows,
    .flops = flops_swiglu_rows,
};

const tri_op_def tri_def_swiglu_rows_grad = {
    .name = "swiglu_rows_grad",
    .inputs = "gate [R.., F], up [R.., F], dy [R.., F], w [R..]",
    .outputs = "dgate [R.., F], dup [R.., F], dw [R..], [amax of dgate, amax of dup]",
    .suffix = {"gate", "up", "w", "gate.amax", "up.amax"},
    .meaning =
        "dgate = w dy up silu'(gate); dup = w dy silu(gate); dw[r] = the sum of dy silu(gate) "
        "up over a row.",
    .min_in = 4,
    .max_in = 4,
    .min_out = 3,
    .max_out = 5,
    .wide_in = 1 << 3,
    .wide_out = 1 << 2 | 1 << 3 | 1 << 4,
    .may_alias = {1 | 2 | 4, 1 | 2 | 4},
    .infer = infer_rows,
    .place = place_swiglu_rows,
    .flops = flops_swiglu_rows,
};

static tr_status infer_gate(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    int g = node->num_in - 1;
    if (in[g].rank != in[0].rank || in[g].dim[in[g].rank - 1].size != 1)
        return tri_fail(err, TR_ERROR_INPUT, "needs one gate for each row");
    out[0] = in[0];
    if (node->num_out > 1)
        out[1] = in[g];
    return TR_OK;
}

static void grad_gate(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                      tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.out[0]].name);
    tri_id backward = tri_graph_emit(graph, TRI_OP_GATE_ROWS_GRAD, name, NULL,
                                     (tri_id[]){dout[0], node.in[0], node.in[1]}, 3, 2);
    for (int j = 0; j < 2 && backward != TRI_NONE; j++)
        din[j] = graph->nodes[backward].out[j];
}

const tri_op_def tri_def_gate_rows = {
    .name = "gate_rows",
    .inputs = "x [.., D], gate [.., 1]",
    .outputs = "y [.., D]",
    .meaning = "y = x / (1 + exp(-gate)).",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .may_alias = {1},
    .infer = infer_gate,
    .place = tri_place_rows,
    .grad = grad_gate,
};

const tri_op_def tri_def_gate_rows_grad = {
    .name = "gate_rows_grad",
    .inputs = "dy [.., D], x [.., D], gate [.., 1]",
    .outputs = "dx [.., D], dgate [.., 1]",
    .suffix = {"x", "gate"},
    .meaning = "dx = s dy and dgate = s (1 - s) times the sum of dy x over a row, s = 1 / (1 + "
               "exp(-gate)).",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .may_alias = {1 | 2},
    .infer = infer_gate,
    .place = tri_place_rows,
};
