/* Pipelines: which rank has which layers, and the graph of one rank's share.
 *
 * The layers are cut into chunks, what comes before the first and after the last layer included. A
 * schedule says which ranks of the pipeline a chunk lives on (its homes: one, or one for each
 * route). Three passes know of it: the residual sum at the border between two chunks becomes a node
 * of its own, so that one tensor crosses and not two (before autodiff); placement adds up what is
 * held by several homes; and when all of the model is placed, the nodes of other ranks are dropped
 * and what crosses becomes messages. */
#ifndef TRI_PLACE_STAGES_H
#define TRI_PLACE_STAGES_H

#include "graph/graph.h"
#include "place/placed_params.h"

typedef struct tri_stages {
    int num_ranks, rank; /* of the pipeline; num_ranks 1: there is none */
    int num_chunks, num_routes;
    const uint32_t *home; /* [num_routes][num_chunks]: a rank */
    int num_layers;
    int *chunk_of; /* [num_layers + 2]: of layer l at l + 1, ascending */
} tri_stages;

/* Fills chunk_of: by an explicit list of layers for each chunk ("4,4,3,5"), or, when that is "", so
 * that the largest chunk costs as little as possible. cost[l + 1] is that of layer l. */
tr_status tri_stages_divide(tri_stages *stages, const double *cost, const char *list,
                            tr_error *err);
/* What each layer costs in the forward: [num_layers + 2], by the operator table. */
void tri_stages_costs(const tri_graph *graph, double *cost);

/* Before autodiff. */
tr_status tri_stages_open(tri_graph *graph, const tri_stages *stages, tr_error *err);
/* Before placement: who has each parameter (placed->homes). */
tr_status tri_stages_settle(tri_graph *graph, const tri_stages *stages, tri_placed_params *placed,
                            tr_error *err);
/* The ranks of a home set, ascending; returns their number. */
int tri_home_set_ranks(const tri_stages *stages, tri_home_set set, uint32_t *ranks);
/* After placement. With `all_routes` every chunk that lives here; otherwise those of the first
 * route, which is how a graph without a backward runs. */
tr_status tri_stages_cut(tri_graph *graph, const tri_stages *stages, const tri_homes *homes,
                         bool all_routes, tr_error *err);

#endif
