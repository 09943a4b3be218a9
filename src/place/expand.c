#include "place/expand.h"

#include <stdlib.h>

#include "graph/passes.h"
#include "place/expand_experts.h"

static const tri_expansion *const table[] = {&tri_expansion_ring, &tri_expansion_ring_grad,
                                             &tri_expansion_seen, &tri_expansion_seen_grad,

                                             &tri_expansion_head};

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

/* All nodes of one kind, in one walk. */
static tr_status replace_all(tri_graph *graph, const tri_expansion *row,
                             const tri_expand_config *config, tr_error *err)
{
    size_t num, wanted = 0;
    for (size_t n = 0; n < graph->num_nodes; n++)
        wanted += graph->nodes[n].op == row->op && row->parts(graph, &graph->nodes[n], config) > 1;
    if (wanted == 0)
        return TR_OK;
    tri_node *old = tri_graph_take_nodes(graph, &num);
    for (size_t n = 0; n < num; n++) {
        int64_t parts = old[n].op == row->op ? row->parts(graph, &old[n], config) : 1;
        if (parts > 1)
            row->replace(graph, &old[n], parts);
        else
            tri_graph_append(graph, &old[n]);
    }
    free(old);
    return tri_graph_status(graph, err);
}

tr_status tri_expand(tri_graph *graph, const tri_expand_config *config, tr_error *err)
{
    tr_status status = tri_expand_experts(graph, config->ep_room, err);
    for (size_t i = 0; i < sizeof table / sizeof *table && status == TR_OK; i++)
        if (table[i]->replace)
            status = replace_all(graph, table[i], config, err);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        while (!table[i]->replace && status == TR_OK &&
               expand_one(graph, table[i], config, &status, err))
            continue;
    return status;
}
