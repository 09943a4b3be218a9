/* Recomputation: activations that are made again in the backward instead of being kept.
 *
 * A pass on the finished graph of a rank: after placement, folding and fusing. Which values are
 * made again is decided first (choose.c), for each layer by its level; then the nodes that make
 * them are cloned into the backward, each just before its first reader there (clone.c). A clone is
 * the node itself, with its attributes and random stream, so it makes the same bits. The memory
 * plan sees shorter lifetimes and needs to know nothing of this. */
#ifndef TRI_RECOMPUTE_RECOMPUTE_H
#define TRI_RECOMPUTE_RECOMPUTE_H

#include "graph/op_table.h"

typedef enum tri_recompute_kind {
    TRI_RECOMPUTE_NONE,
    TRI_RECOMPUTE_SELECTIVE, /* attention, and what leads to it from values that are kept */
    TRI_RECOMPUTE_FULL,      /* every layer, from its input */
    TRI_RECOMPUTE_EVERY,     /* every n-th layer, from its input */
    TRI_RECOMPUTE_BUDGET     /* as much as it takes to stay within so many bytes */
} tri_recompute_kind;

typedef struct tri_recompute_config {
    tri_recompute_kind kind;
    int64_t every;         /* EVERY: layers 0, every, 2 every ... */
    uint64_t budget_bytes; /* BUDGET: of the rank's planned memory */
    /* BUDGET: how much is recomputed, 0 to TRI_RECOMPUTE_STAGES times the number of layers; found
     * by whoever can plan the memory of the whole (train/plan/budget.c). More effort is never less
     * arithmetic. */
    int64_t effort;
} tri_recompute_config;

/* How much of a layer is made again. Each level has all of the one before. */
typedef enum tri_recompute_level {
    TRI_LEVEL_KEEP,
    TRI_LEVEL_CHEAP,     /* norms, activation functions and the like, from what is kept anyway */
    TRI_LEVEL_ATTENTION, /* and attention */
    TRI_LEVEL_ALL,       /* everything, from the layer's input */
    TRI_NUM_LEVELS
} tri_recompute_level;
enum { TRI_RECOMPUTE_STAGES = TRI_NUM_LEVELS - 1 };

/* "none", "selective", "full", "every:2", "budget:8GiB". */
tr_status tri_recompute_parse(const char *text, tri_recompute_config *config, tr_error *err);

/* later, of each node: in a backward that is split, it runs in the second part. What such nodes
 * need is made once more for them, since keeping it until then would take the memory that
 * recomputation is to save. */
tr_status tri_recompute(tri_graph *graph, const tri_recompute_config *config, const bool *later,
                        tr_error *err);

/* Between the files of this folder. */

/* What is made again: an array of the graph's values, which the caller frees; NULL without memory.
 * level has an entry for each layer; with attention_only, of a layer that is not kept only what
 * attention makes, and what leads to it. */
bool *tri_recompute_choose(const tri_graph *graph, const tri_recompute_level *level,
                           bool attention_only);
/* The levels for an effort; false without memory. */
bool tri_recompute_levels_of_effort(const tri_graph *graph, int64_t effort,
                                    tri_recompute_level *level);
/* The node to clone for a forward node: itself, or, where its first result is kept and the others
 * follow from that, what makes those. Operands are those of the original. */
tri_node tri_recompute_node(tri_node node, const bool *redo);
tr_status tri_recompute_clone(tri_graph *graph, const bool *redo, const bool *later, tr_error *err);

#endif
