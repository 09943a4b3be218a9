/* The graph as text: one line per node, for people who debug passes. */
#include "graph/op_table.h"
#include "graph/passes.h"

static const char *const phase_names[] = {"forward", "backward", "update"};

static void print_node(const tri_graph *graph, const tri_node *node, tri_text *text)
{
    char shape[160];
    for (int k = 0; k < node->num_out; k++) {
        const tri_value *out = &graph->values[node->out[k]];
        bool placed = out->whole.rank == out->shape.rank;
        tri_text_add(
            text, "%s%s%s", k ? ", " : "  ", out->name,
            placed ? tri_placement_text(&graph->grid, &out->at, &out->shape, shape, sizeof shape)
                   : tri_shape_text(&out->shape, shape, sizeof shape));
    }
    bool adds = node->write[0] == TRI_WRITE_START || node->write[0] == TRI_WRITE_ADD;
    tri_text_add(text, " %s %s(", adds ? "+=" : "=", tri_op_get(node->op)->name);
    for (int j = 0; j < node->num_in; j++) {
        bool transposed = node->op == TRI_OP_MATMUL && ((j == 0 && node->attr.matmul.trans_a) ||
                                                        (j == 1 && node->attr.matmul.trans_b));
        tri_text_add(text, "%s%s%s", j ? ", " : "",
                     node->in[j] == TRI_NONE ? "-" : graph->values[node->in[j]].name,
                     transposed ? "^T" : "");
    }
    tri_text_add(text, ")\n");
}

void tri_graph_print(const tri_graph *graph, tri_text *text)
{
    for (int phase = TRI_PHASE_FORWARD; phase <= TRI_PHASE_UPDATE; phase++) {
        bool any = false;
        for (size_t n = 0; n < graph->num_nodes; n++) {
            if ((int)graph->nodes[n].phase != phase)
                continue;
            if (!any)
                tri_text_add(text, "%s:\n", phase_names[phase]);
            any = true;
            print_node(graph, &graph->nodes[n], text);
        }
    }
}
