/* The gated feed-forward of Llama: silu(gate) times up. */
#include "graph/op_table.h"

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    char a[128], b[128];
    for (int j = 1; j < node->num_in; j++)
        if (!tri_shape_equal(&in[0], &in[j]))
            return tri_fail(err, TR_ERROR_INPUT, "shapes %s and %s differ",
                            tri_shape_text(&in[0], a, sizeof a),
                            tri_shape_text(&in[j], b, sizeof b));
    tri_infer_same(node, in, out, out_dtype, err);
    for (int k = node->op == TRI_OP_SWIGLU ? 1 : 2; k < node->num_out; k++)
        out[k] = tri_shape_scalar(TRI_AMAX_PARTS);
    return node->op == TRI_OP_SWIGLU || node->num_out != 3
               ? TR_OK
               : tri_fail(err, TR_ERROR_INPUT, "it finds the largest of both results, or of none");
}

static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    (void)wanted;
    const tri_node node = graph->nodes[id];
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.out[0]].name);
    tri_id backward = tri_graph_emit(graph, TRI_OP_SWIGLU_GRAD, name, NULL,
                                     (tri_id[]){node.in[0], node.in[1], dout[0]}, 3, 2);
    if (backward == TRI_NONE)
        return;
    for (int j = 0; j < 2; j++) {
        din[j] = graph->nodes[backward].out[j];
        graph->values[din[j]].name =
            tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[j]].name);
    }
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)out;
    return (node->op == TRI_OP_SWIGLU ? 10.0 : 16.0) * (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_swiglu = {
    .name = "swiglu",
    .inputs = "gate, up",
    .outputs = "y, [amax of y]",
    .suffix = {NULL, "amax"},
    .meaning = "y = silu(gate) * up, silu(x) = x / (1 + exp(-x)).",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .wide_out = 1 << 1,
    .may_alias = {1 | 2},
    .infer = infer,
    .place = tri_place_elementwise,
    .grad = grad,
    .flops = flops,
};

/* Each element is read whole before it is written, so any output may lie on any input. */
const tri_op_def tri_def_swiglu_grad = {
    .name = "swiglu_grad",
    .inputs = "gate, up, dy",
    .outputs = "dgate, dup, [amax of dgate, amax of dup]",
    .suffix = {NULL, NULL, "amax", "amax"},
    .meaning = "dgate = dy * up * silu'(gate), dup = dy * silu(gate).",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 4,
    .wide_out = 1 << 2 | 1 << 3,
    .may_alias = {1 | 2 | 4, 1 | 2 | 4},
    .linear_in = 1 << 2,
    .infer = infer,
    .place = tri_place_elementwise,
    .flops = flops,
};
