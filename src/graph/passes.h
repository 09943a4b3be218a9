/* Passes over the graph. src/compile calls them in order and runs the verifier after each. */
#ifndef TRI_GRAPH_PASSES_H
#define TRI_GRAPH_PASSES_H

#include "base/text.h"
#include "graph/graph.h"

/* Adds the backward of the graph's loss, and a gradient accumulator for every parameter used.
 * loss_seed is the constant that the backward starts from; with f16 activations it is multiplied
 * by the scale in the state `scaler`, which this pass makes. */
tr_status tri_autodiff(tri_graph *graph, float loss_seed, tr_error *err);

/* Which products a device can finish with more than a product, and what else it does in one. */
typedef struct tri_fusions {
    bool bias, bias_gelu, gelu_grad;
    bool add;           /* of another value, instead of an addition after the product */
    bool residual;      /* of the residual stream, instead of one in the norm after the product */
    bool norm_grads;    /* all of a norm's backward in one */
    bool cross_entropy; /* all of it in one, the gradient too */
    bool amax;          /* of activations and their gradients, while they are made */
    bool adam_copy;     /* Adam writes the 16-bit copy of what it updates */
    bool expert_act;    /* gate and up of experts as one product, and what is made of them */
    bool expert_grads;  /* their gradients by the product before, and the sum of two products */
} tri_fusions;

/* Contributions to an accumulator write into it themselves where their operator can. */
tr_status tri_fold_accumulate(tri_graph *graph, tr_error *err);
/* Biases and GELU move into the product before them. */
tr_status tri_fuse_epilogues(tri_graph *graph, const tri_fusions *can, tr_error *err);
/* What the backward would read twice is read once. */
tr_status tri_fuse_backward(tri_graph *graph, const tri_fusions *can, tr_error *err);

/* Sums of the residual stream move from norms into the products before them. */
tr_status tri_fuse_residual(tri_graph *graph, const tri_fusions *can, tr_error *err);

/* Activations of experts move into the products beside them. */
tr_status tri_fuse_experts(tri_graph *graph, const tri_fusions *can, tr_error *err);

/* The products of linear layers get 8-bit operands. After all that knows 16-bit products. */
tr_status tri_quantise_products(tri_graph *graph, const tri_fusions *can, tr_error *err);

/* The graph as text, a line per node. */
void tri_graph_print(const tri_graph *graph, tri_text *text);

/* Tools for passes: how many inputs read each value (caller frees; NULL without memory). */
uint32_t *tri_graph_count_uses(const tri_graph *graph);
/* Drops the nodes marked in `dead`, keeping order and fixing producers. */
void tri_graph_remove_nodes(tri_graph *graph, const bool *dead);
/* Takes all nodes out of the graph, for a pass that puts them back one by one. From here on the
 * caller owns them and frees them, whatever happens; the graph has none. */
tri_node *tri_graph_take_nodes(tri_graph *graph, size_t *num);
/* Puts the nodes in another order: order[n] is the one that comes n-th. */
tr_status tri_graph_reorder(tri_graph *graph, const tri_id *order, tr_error *err);
/* Puts a node at the end, as the producer of its outputs. */
void tri_graph_append(tri_graph *graph, const tri_node *node);

#endif
