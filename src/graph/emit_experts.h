/* Experts, in the vocabulary in which models are written. */
#ifndef TRI_GRAPH_EMIT_EXPERTS_H
#define TRI_GRAPH_EMIT_EXPERTS_H

#include "graph/emit.h"

/* What a router makes of tokens. */
typedef struct tri_routing {
    tri_id logits;  /* f32 [B, T, E]; TRI_NONE: there is no router */
    tri_id weights; /* f32 [B, T, C] */
    tri_id choice;  /* i32 [B, T, C] */
    tri_id kept;    /* the same without what is dropped */
    tri_id bias;    /* row of the parameter table, or TRI_NONE */
} tri_routing;

/* The router "name.weight" [E, D] of x [B, T, D], with "name.e_score_correction_bias" where the
 * table has one. jitter: how far from one the factors are that x is multiplied by, each element by
 * one of its own; 0: it is not. */
tri_routing tri_route(tri_graph *graph, const char *name, tri_id x, const tri_route_attr *how,
                      float jitter, const tri_batch_inputs *in);
/* An expert takes so many times its mean share of a sequence's rows, rounded up; others are
 * dropped. */
void tri_drop_rows(tri_graph *graph, const char *name, tri_routing *routing, float capacity,
                   const tri_batch_inputs *in);
/* x through the chosen ones of the experts "name.gate_proj.weight" [E, F, D], up_proj, and
 * down_proj [E, D, F]: the sum of their results, each times its weight. */
tri_id tri_experts(tri_graph *graph, const char *name, tri_id x, const tri_routing *routing);
/* x times the sigmoid of a gate [..., 1]. */
tri_id tri_gate_rows(tri_graph *graph, const char *name, tri_id x, tri_id gate);

/* Sums of a router over tokens that have a target, with its statistics. mean: what z and entropy
 * are multiplied by. rate: what a router's bias is moved by, where it has one. */
tri_id tri_route_sums(tri_graph *graph, const char *name, const tri_routing *routing,
                      const tri_route_attr *how, float mean, float rate);
/* Adds alpha * the balance of these sums to the balance loss, and says that it is one. */
void tri_balance(tri_graph *graph, const char *name, tri_id sums, float alpha);
/* How many of a router's rows were dropped, of tokens that have a target: times alpha. */
void tri_count_dropped(tri_graph *graph, const char *name, const tri_routing *routing, float alpha);
/* The statistics become losses of these weights; 0: they are only shown. */
void tri_router_losses(tri_graph *graph, float balance, float z);

#endif
