/* The order in which layers are made again when memory must fall below a bound.
 *
 * For every level, what all layers at that level keep and what they compute again is counted. Going
 * from level to level costs so much arithmetic for each byte; levels that cost more than a later
 * one are left out, so that what remains gets dearer step by step (the lower convex hull). Effort
 * then takes one layer after the other to the first of these levels, then to the next: of all
 * mixtures of levels that save as much, the one with the least arithmetic, to within one layer. */
#include <stdlib.h>

#include "recompute/recompute.h"

/* A byte of a message made again counts as so many operations: roughly what a GPU computes while
 * its links carry a byte. */
static const double flops_of_byte = 1000;

typedef struct tally {
    const tri_graph *graph;
    const bool *redo;
    bool *seen; /* of each value: it was counted */
    double flops, kept_bytes;
} tally;

static void count(tally *t, tri_id value)
{
    const tri_graph *graph = t->graph;
    if (value == TRI_NONE || graph->values[value].kind != TRI_VALUE_TEMP || t->seen[value])
        return;
    const tri_node *maker = &graph->nodes[graph->values[value].producer];
    if (maker->phase != TRI_PHASE_FORWARD || maker->op == TRI_OP_UNSHARD)
        return;
    t->seen[value] = true;
    double bytes = (double)tri_shape_count(&graph->values[value].shape) *
                   (double)tri_dtype_bytes(graph->values[value].dtype);
    if (!t->redo[value]) {
        t->kept_bytes += bytes;
        return;
    }
    tri_node node = tri_recompute_node(*maker, t->redo);
    for (int k = 0; k < node.num_out; k++)
        t->seen[node.out[k]] = true;
    t->flops += tri_op_get(node.op)->communicates ? bytes * flops_of_byte
                                                  : tri_node_cost(graph, &node).flops;
    for (int j = 0; j < node.num_in; j++)
        count(t, node.in[j]);
}

/* What all layers at one level keep and compute again; false without memory. */
static bool tally_level(const tri_graph *graph, tri_recompute_level level,
                        tri_recompute_level *levels, double *flops, double *kept_bytes)
{
    for (int l = 0; l < graph->num_layers; l++)
        levels[l] = level;
    bool *redo = tri_recompute_choose(graph, levels, false);
    tally t = {.graph = graph, .redo = redo, .seen = calloc(graph->num_values + 1, sizeof *t.seen)};
    bool ready = redo && t.seen;
    for (size_t n = 0; ready && n < graph->num_nodes; n++)
        for (int j = 0; graph->nodes[n].phase == TRI_PHASE_BACKWARD && j < graph->nodes[n].num_in;
             j++)
            count(&t, graph->nodes[n].in[j]);
    *flops = t.flops;
    *kept_bytes = t.kept_bytes;
    free(redo);
    free(t.seen);
    return ready;
}

/* Levels worth going to, in order; returns how many. */
static int hull(const double *flops, const double *kept_bytes, tri_recompute_level *path)
{
    int num = 0;
    tri_recompute_level at = TRI_LEVEL_KEEP;
    while (at < TRI_LEVEL_ALL) {
        tri_recompute_level best = TRI_NUM_LEVELS;
        double best_price = 0;
        for (tri_recompute_level to = at + 1; to < TRI_NUM_LEVELS; to++) {
            double saved = kept_bytes[at] - kept_bytes[to];
            if (saved <= 0)
                continue;
            double price = (flops[to] - flops[at]) / saved;
            if (best == TRI_NUM_LEVELS || price <= best_price) {
                best = to;
                best_price = price;
            }
        }
        if (best == TRI_NUM_LEVELS)
            break;
        path[num++] = at = best;
    }
    return num;
}

bool tri_recompute_levels_of_effort(const tri_graph *graph, int64_t effort,
                                    tri_recompute_level *level)
{
    double flops[TRI_NUM_LEVELS], kept_bytes[TRI_NUM_LEVELS];
    tri_recompute_level path[TRI_NUM_LEVELS];
    for (tri_recompute_level at = TRI_LEVEL_KEEP; at < TRI_NUM_LEVELS; at++)
        if (!tally_level(graph, at, level, &flops[at], &kept_bytes[at]))
            return false;
    int num = hull(flops, kept_bytes, path);
    for (int l = 0; l < graph->num_layers; l++) {
        level[l] = TRI_LEVEL_KEEP;
        for (int stage = 0; stage < num; stage++)
            if (effort > (int64_t)stage * graph->num_layers + l)
                level[l] = path[stage];
    }
    return true;
}
