#include "graph/stats.h"

#include <string.h>

#include "graph/op_table.h"

/* Those that train.stats may name stand behind the others: a new one is a row. */
static const tri_stat_def stats[] = {
    [TRI_STAT_LOSS] = {.name = "loss", .mean = true, .digits = 5, .meaning = "the main loss"},
    [TRI_STAT_COUNT] = {.name = "count", .meaning = "real targets, or elements"},
    [TRI_STAT_HITS] = {.name = "hits",
                       .row = {.max = -1, .target = 1, .map = TRI_ROW_NOT_NEGATIVE},
                       .meaning = "targets that have the largest logit of their row"},
    [TRI_STAT_SQUARES] = {.name = "sum_squares", .meaning = "squared norm of the gradient"},
    [TRI_STAT_Z_LOSS] = {.name = "z_loss",
                         .mean = true,
                         .digits = 4,
                         .row = {.lse = 1, .map = TRI_ROW_SQUARE},
                         .meaning = "squared log of the sum of exponentials of a row's logits"},
    [TRI_STAT_BALANCE] = {.name = "balance_loss",
                          .mean = true,
                          .digits = 4,
                          .meaning = "how unequal loads of experts are, mean of layers; 1: equal"},
    [TRI_STAT_ROUTER_Z] = {.name = "router_z",
                           .mean = true,
                           .meaning = "squared log of the sum of exponentials of a router's "
                                      "logits, mean of layers"},
    [TRI_STAT_ENTROPY] = {.name = "router_entropy",
                          .mean = true,
                          .digits = 3,
                          .meaning = "entropy of a router's scores, mean of layers"},
    [TRI_STAT_LOST] = {.name = "lost_rows",
                       .stops = true,
                       .meaning = "rows that found no room on the way to their experts"},
    [TRI_STAT_DROPPED] = {.name = "dropped_rows",
                          .mean = true,
                          .digits = 4,
                          .meaning = "share of rows beyond model.expert_capacity, mean of layers"},
    [TRI_STAT_BIAS] = {.name = "bias_max",
                       .join = TRI_PARTIAL_MAX,
                       .digits = 3,
                       .meaning = "the largest bias of an expert's selection, without its sign"},
    {.name = "max_logit",
     .join = TRI_PARTIAL_MAX,
     .chosen = true,
     .digits = 3,
     .row = {.max = 1, .join = TRI_PARTIAL_MAX},
     .meaning = "the largest logit"},
    {.name = "mean_lse",
     .mean = true,
     .chosen = true,
     .digits = 3,
     .row = {.lse = 1},
     .meaning = "mean log of the sum of exponentials of a row's logits"},
};

const tri_stat_def *tri_stat_at(size_t row)
{
    return row < sizeof stats / sizeof *stats ? &stats[row] : NULL;
}

int tri_stat_find(const char *name)
{
    for (size_t row = 0; tri_stat_at(row); row++)
        if (stats[row].chosen && strcmp(stats[row].name, name) == 0)
            return (int)row;
    return -1;
}

static int find_stat(const tri_graph *graph, size_t row)
{
    for (size_t i = 0; i < graph->num_stats; i++)
        if (graph->stats[i].row == row)
            return (int)i;
    return -1;
}

uint8_t tri_graph_stat(tri_graph *graph, size_t row)
{
    int found = find_stat(graph, row);
    if (found >= 0)
        return (uint8_t)found;
    if (graph->num_stats == TRI_MAX_STATS) {
        tri_graph_fail(graph, "a step has at most %d statistics", TRI_MAX_STATS);
        return 0;
    }
    const tri_stat_def *def = tri_stat_at(row);
    tri_id state = tri_graph_state(graph, TRI_STATE_STAT, def->name, def->dtype,
                                   tri_shape_scalar(1), TRI_NONE);
    graph->stats[graph->num_stats] = (tri_stat){.row = (uint8_t)row, .state = state};
    return (uint8_t)graph->num_stats++;
}

tri_id tri_graph_stat_value(const tri_graph *graph, size_t row)
{
    int found = find_stat(graph, row);
    tri_id state = found < 0 ? TRI_NONE : graph->stats[found].state;
    return state == TRI_NONE ? TRI_NONE : graph->states[state].latest;
}

tri_partial_how tri_graph_join_of(const tri_graph *graph, tri_id state)
{
    for (size_t i = 0; i < graph->num_stats; i++)
        if (graph->stats[i].state == state)
            return tri_stat_at(graph->stats[i].row)->join;
    return TRI_PARTIAL_SUM;
}

void tri_graph_show(tri_graph *graph, uint8_t stat)
{
    if (graph->num_shown == TRI_MAX_SHOWN)
        tri_graph_fail(graph, "a step shows at most %d statistics", TRI_MAX_SHOWN);
    else
        graph->shown[graph->num_shown++] = stat;
}

void tri_graph_add_loss(tri_graph *graph, const tri_loss *loss)
{
    if (graph->num_losses == TRI_MAX_LOSSES) {
        tri_graph_fail(graph, "a step has at most %d losses", TRI_MAX_LOSSES);
        return;
    }
    /* Accumulated gradients have one divisor, which is known when all of them are there. */
    if (graph->num_losses > 0 && loss->count != graph->losses[0].count) {
        tri_graph_fail(graph,
                       "the loss %s is divided by another count than %s: gradients have one "
                       "divisor, so sum it up over the targets of that one",
                       loss->name, graph->losses[0].name);
        return;
    }
    graph->losses[graph->num_losses++] = *loss;
}

const tri_loss *tri_graph_loss_of(const tri_graph *graph, tri_id value)
{
    for (size_t i = 0; i < graph->num_losses; i++) {
        tri_id state = graph->stats[graph->losses[i].sum].state;
        if (state != TRI_NONE && graph->values[value].state == state)
            return &graph->losses[i];
    }
    return NULL;
}
