/* PipeDream and PipeDream-2BW: 1F1B that never drains. Weights are updated while micro-batches are
 * under way, so a backward meets other weights than its forward did, unless the old ones are kept.
 *
 * pipedream updates after every backward and stashes, for every micro-batch under way, the weights
 * its forward read: up to p copies on rank 0. pipedream-2bw adds up the gradients of p
 * micro-batches; a micro-batch of group g then uses what update g-2 made (the start, for the first
 * two groups) on every rank, and two copies are enough.
 *
 * The lists hold fill, steady state and drain of m micro-batches; a real run drains once. */
#include "schedule/orders.h"

static tr_status emit_pipedream(tri_schedule *s, tr_error *err)
{
    s->update_every = 1;
    return tri_emit_1f1b(s, 1, err);
}

static void facts_pipedream(const tri_schedule *s, const tri_action_costs *costs,
                            tri_order_facts *out)
{
    (void)costs;
    out->idle = 0;
    out->activations = fmin(s->num_ranks, s->num_microbatches);
    out->weight_copies = fmin(s->num_ranks, s->num_microbatches);
}

const tri_order tri_order_pipedream = {
    .name = "pipedream",
    .help = "asynchronous 1F1B with stashed weights: no bubble, stale gradients, p weight copies",
    .flags = TRI_ORDER_ASYNCHRONOUS,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .idle_formula = "0 (steady)",
    .activation_formula = "p",
    .emit = emit_pipedream,
    .facts = facts_pipedream,
};

static tr_status emit_2bw(tri_schedule *s, tr_error *err)
{
    s->update_every = s->num_ranks;
    s->delayed = true;
    return tri_emit_1f1b(s, s->num_ranks, err);
}

static void facts_2bw(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    (void)costs;
    out->idle = 0;
    out->activations = fmin(s->num_ranks, s->num_microbatches);
    out->weight_copies = s->num_microbatches > s->num_ranks ? 2 : 1;
}

const tri_order tri_order_pipedream_2bw = {
    .name = "pipedream-2bw",
    .help = "asynchronous 1F1B, an update after every p micro-batches: two weight copies",
    .flags = TRI_ORDER_ASYNCHRONOUS,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .microbatches_by_ranks = true,
    .idle_formula = "0 (steady)",
    .activation_formula = "p",
    .emit = emit_2bw,
    .facts = facts_2bw,
};
