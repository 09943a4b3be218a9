#include "place/expand.h"

static const tri_expansion *const table[] = {&tri_expansion_head};

/* Expands the first node that wants it; false: there is none. */
static bool expand_one(tri_graph *graph, const tri_expansion *row, const tri_expand_config *config,
                       tr_status *status, tr_error *err)
{
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node node = graph->nodes[n];
        int64_t parts = node.op == row->op ? row->parts(graph, &node, config) : 1;
        if (parts <= 1)
            continue;
        *status = row->expand(graph, &node, parts, err);
        return true;
    }
    return false;
}

tr_status tri_expand(tri_graph *graph, const tri_expand_config *config, tr_error *err)
{
    tr_status status = TR_OK;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        while (status == TR_OK && expand_one(graph, table[i], config, &status, err))
            continue;
    return status;
}
