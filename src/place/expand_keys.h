/* What the expansions of attention over the ranks of a ring share: which input is what, and how
 * keys are divided. */
#ifndef TRI_PLACE_EXPAND_KEYS_H
#define TRI_PLACE_EXPAND_KEYS_H

#include "graph/graph.h"

typedef struct tri_keys_node {
    tri_graph *graph;
    const tri_node *node; /* attention, or its gradient */
    int32_t parts;        /* ranks */
    int first;            /* the input that is q; k and v follow it */
    int k_places;         /* and the one that has the places of keys */
    tri_cut cut;          /* of keys, along their tokens */
    uint8_t axis;         /* of the ranks */
} tri_keys_node;

/* Ranks that a node gets keys from in this way; 1: in another, or from none. */
int64_t tri_keys_parts(const tri_graph *graph, const tri_node *node, tri_attention_keys how);
/* Nodes that are emitted from here on stand where this one did. */
tri_keys_node tri_keys_begin(tri_graph *graph, const tri_node *node, int64_t parts);
/* Whether more can be emitted: nothing has failed. */
static inline bool tri_keys_go_on(const tri_graph *graph)
{
    return graph->status == TR_OK && !graph->arena.failed;
}

#endif
