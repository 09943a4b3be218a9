/* The vocabulary in which models are written. Each call emits one or two nodes; weights are found
 * by name ("scope.name.weight", "scope.name.bias") in the parameter table. */
#ifndef TRI_GRAPH_EMIT_H
#define TRI_GRAPH_EMIT_H

#include "graph/graph.h"

/* Integer inputs that come with every batch of sequences. Whatever depends on where a token stands
 * reads these, so packing, sharding and caches are matters of data. */
typedef struct tri_batch_inputs {
    tri_id tokens;    /* [B, T] */
    tri_id targets;   /* [B, T], negative: no loss here; absent for prediction */
    tri_id positions; /* [B, T] */
    tri_id docs;      /* [B, T], negative: padding; or TRI_NONE */
    tri_id rows;      /* [B], number of the row within the global batch; of the cache, with one */
    tri_id step;      /* [1], number of the step */
    tri_id index;     /* [B], for prediction: the position whose next token is wanted */
    /* Rows that are divided: the place of each token in its row. Where attention goes by these, the
     * places that a query sees, begin and end. TRI_NONE: token i has place i, and documents say who
     * sees whom. */
    tri_id places; /* [B, P] with as many as there are tokens */
    tri_id span;   /* [B, P, 2], or TRI_NONE */
    bool by_place;
} tri_batch_inputs;

/* y = x W^T (+ bias when the table has one). The last dims of W are those of x that it contracts.
 */
tri_id tri_linear(tri_graph *graph, const char *name, tri_id x);
/* The same with the parameters of another name than the node's. */
tri_id tri_linear_named(tri_graph *graph, const char *name, const char *params, tri_id x);
/* x + the named bias of the table. */
tri_id tri_bias(tri_graph *graph, const char *name, const char *bias, tri_id x);
/* The same with a named weight of the table and no bias: a tied head. */
tri_id tri_linear_tied(tri_graph *graph, const char *name, const char *weight, tri_id x);
tri_id tri_embed(tri_graph *graph, const char *name, tri_id ids);
tri_id tri_add(tri_graph *graph, const char *name, tri_id a, tri_id b);
tri_id tri_activation(tri_graph *graph, const char *name, tri_act act, tri_id x);
/* No node when p is 0. Of tokens [B, T, ...] the mask goes by their places, where these are data.
 */
tri_id tri_dropout(tri_graph *graph, const char *name, tri_id x, float p,
                   const tri_batch_inputs *in);
/* y = layernorm(*stream + branch), and *stream becomes that sum; branch may be TRI_NONE. */
tri_id tri_residual_layernorm(tri_graph *graph, const char *name, tri_id *stream, tri_id branch,
                              float eps);
/* The same with rmsnorm, which has no shift. */
tri_id tri_residual_rmsnorm(tri_graph *graph, const char *name, tri_id *stream, tri_id branch,
                            float eps);
/* Over the last dim of x, however many come before: also of the heads of a query. */
tri_id tri_rmsnorm(tri_graph *graph, const char *name, tri_id x, float eps);
/* silu(gate) * up */
tri_id tri_swiglu(tri_graph *graph, const char *name, tri_id gate, tri_id up);
/* x [B, T, H or G, K] turned by its positions [B, T]. */
tri_id tri_rope(tri_graph *graph, const char *name, tri_id x, tri_id positions,
                const tri_rope_config *rope);

/* Either q is the packed [B, T, qkv, H, K], and k and v are TRI_NONE; or q is [B, T, H, K], and k
 * and v are [B, T, G, K] with H a multiple of G: head h looks at key head h / (H / G). */
typedef struct tri_attention_inputs {
    tri_id q, k, v;
    tri_id docs; /* [B, T], or TRI_NONE; pairs of equal ids see each other, negative ones nobody */
} tri_attention_inputs;

typedef struct tri_attention_config {
    bool causal;
    int32_t window; /* causal only: a query sees this many keys, itself the last; 0: all */
    float dropout;  /* of the probabilities */
} tri_attention_config;

/* Scores are scaled by 1 / sqrt(K). */
tri_id tri_attention(tri_graph *graph, const char *name, tri_attention_inputs of,
                     tri_attention_config how, const tri_batch_inputs *in);
/* x [B, T, D] at position index[b] of each row: [B, D]. `in`: tokens may lie in any order, and the
 * index is a place; NULL: they lie in order. */
tri_id tri_select_row(tri_graph *graph, const char *name, tri_id x, tri_id index,
                      const tri_batch_inputs *in);
/* Losses become the graph's loss and count (and hits). */
/* count_hits: also count the targets whose logit is the largest of its row. */
void tri_cross_entropy(tri_graph *graph, tri_id logits, tri_id targets,
                       const tri_head_config *head);
void tri_output_loss(tri_graph *graph, tri_out_loss kind, tri_id out, tri_id target);
/* The host will read this value after the program has run. */
void tri_mark_output(tri_graph *graph, tri_id value);

/* For update rules. Products of values seen as matrices, cut at split. */
tri_id tri_matmul(tri_graph *graph, const char *name, tri_id a, uint8_t split_a, bool trans_a,
                  tri_id b, uint8_t split_b, bool trans_b);
tri_id tri_axpby(tri_graph *graph, const char *name, float alpha, tri_id x, float beta, tri_id y);

/* Output k of a node that may be TRI_NONE after a failure. */
tri_id tri_node_out(const tri_graph *graph, tri_id node, int k);

#endif
