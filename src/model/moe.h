/* Mixtures of experts in a model: in some layers the feed-forward is several, of which a router
 * chooses a few for each token. */
#ifndef TRI_MODEL_MOE_H
#define TRI_MODEL_MOE_H

#include "graph/emit_experts.h"
#include "model/writer.h"

/* Over what the balance loss is formed. */
typedef enum tri_balance_over {
    TRI_BALANCE_SEQUENCE,   /* each row of the batch: the same in every layout */
    TRI_BALANCE_MICROBATCH, /* a micro-batch, over all ranks that share it */
    TRI_BALANCE_JOINT       /* all layers together, as Hugging Face does */
} tri_balance_over;

typedef struct tri_moe_config {
    int64_t num_experts; /* 0: none */
    int64_t choices, expert_dim, shared_dim;
    const char *layers; /* those that have experts, "1..23" or "1,3,5"; "": all */
    bool shared_gate;
    tri_route_score score;
    bool renorm;
    int64_t groups, group_limit;
    float scale;
    float balance, z; /* weights of losses */
    float bias_rate;  /* what the bias of an expert moves by; 0: there is none */
    float capacity;   /* training: rows that an expert takes, of its mean share; 0: all */
    float jitter;     /* training: how far from one the router's input is multiplied */
    tri_balance_over over;
} tri_moe_config;

tr_status tri_moe_check(const tri_moe_config *moe, int64_t num_layers, tr_error *err);
/* Whether a layer has experts; one that tri_moe_check has passed. */
bool tri_moe_has(const tri_moe_config *moe, int64_t layer);

/* Parameters that a token meets: of experts, those of its choices. */
int64_t tri_moe_active(const tri_moe_config *moe, const tri_param_table *table);

/* The parameters of a layer's experts, and its feed-forward: x [B, T, D] of a norm. *router gets
 * what the losses need. train: rows may be dropped, and the router's input jittered. */
void tri_moe_write(const tri_param_writer *w, const tri_moe_config *moe, int64_t dim, float std);
tri_id tri_moe_emit(tri_graph *graph, const tri_moe_config *moe, bool train,
                    const tri_batch_inputs *in, tri_id x, tri_routing *router);
/* Losses and statistics of all routers, after the head: the main loss comes first. routers[l] of
 * layer l; `scope` formats the name of a layer. */
void tri_moe_losses(tri_graph *graph, const tri_moe_config *moe, const tri_routing *routers,
                    int num_layers, const char *scope);

#endif
