/* Expansions: operators that placements alone cannot cut into what a rank should run.
 *
 * A row of the table (expand.c) says which operator it replaces, in how many parts, and by what: a
 * function that puts other nodes, messages among them, in the place of the node and of its
 * backward. It works on the graph of one rank, after placement and after a pipeline has been cut:
 * whatever placement has inserted is nodes like any other. What comes later (folding, fusing,
 * recomputation, the split of I and W, the order of messages) sees the new nodes.
 *
 * To add one: a file beside expand_head.c, and a row. docs/how-to/new-expansion.md is the recipe.
 */
#ifndef TRI_PLACE_EXPAND_H
#define TRI_PLACE_EXPAND_H

#include "graph/op_table.h"

typedef struct tri_expand_config {
    int64_t loss_tile; /* tokens of T that have logits at a time, at most; 0: all */
    double ep_room;    /* of expand_experts.h */
} tri_expand_config;

typedef struct tri_expansion {
    tri_op op; /* what it replaces, with all that belongs to it in forward and backward */
    /* In how many parts; 1: it stays as it is. Asked again of what `expand` has made, where the
     * answer must be 1. */
    int64_t (*parts)(const tri_graph *graph, const tri_node *node, const tri_expand_config *config);
    tr_status (*expand)(tri_graph *graph, const tri_node *node, int64_t parts, tr_error *err);
    /* In its stead, where every node is replaced for itself: appends other nodes instead of this
     * one. Called for one node after the other, while the graph is put together anew. */
    void (*replace)(tri_graph *graph, const tri_node *node, int64_t parts);
} tri_expansion;

extern const tri_expansion tri_expansion_head, tri_expansion_ring, tri_expansion_ring_grad,
    tri_expansion_seen, tri_expansion_seen_grad;

/* All rows, on the graph of one rank. */
tr_status tri_expand(tri_graph *graph, const tri_expand_config *config, tr_error *err);

#endif
