/* The pass, and how much of each layer it makes again. */
#include "recompute/recompute.h"

#include <stdlib.h>

static void set_levels(tri_recompute_level *level, int num_layers, tri_recompute_level all,
                       int64_t every)
{
    for (int l = 0; l < num_layers; l++)
        level[l] = l % every == 0 ? all : TRI_LEVEL_KEEP;
}

tr_status tri_recompute(tri_graph *graph, const tri_recompute_config *config, const bool *later,
                        tr_error *err)
{
    if (config->kind == TRI_RECOMPUTE_NONE || graph->num_layers == 0)
        return TR_OK;
    tri_recompute_level *level = calloc((size_t)graph->num_layers, sizeof *level);
    bool *redo = NULL, ready = level != NULL;
    if (ready && config->kind == TRI_RECOMPUTE_BUDGET)
        ready = tri_recompute_levels_of_effort(graph, config->effort, level);
    else if (ready)
        set_levels(level, graph->num_layers, TRI_LEVEL_ALL,
                   config->kind == TRI_RECOMPUTE_EVERY ? config->every : 1);
    if (ready)
        redo = tri_recompute_choose(graph, level, config->kind == TRI_RECOMPUTE_SELECTIVE);
    tr_status status = redo ? tri_recompute_clone(graph, redo, later, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for recomputation");
    free(level);
    free(redo);
    return status;
}
