/* Interleaved 1F1B: a rank has v chunks, r, r+p, r+2p ..., so that a micro-batch passes it v times
 * and the bubble is v times shorter. Micro-batches go in groups of p: the group through the first
 * chunks, then through the second, and so on; backwards the other way round. Rank r begins with
 * 2(p-1-r) + (v-1)p forwards, which is what it costs in memory. */
#include "schedule/orders.h"

/* The k-th forward of a rank. */
static tri_action forward(const tri_schedule *s, uint32_t rank, uint32_t k)
{
    uint32_t p = s->num_ranks, v = s->chunks_per_rank;
    uint32_t chunk = k / p % v * p + rank;
    return tri_action_of(TRI_ACTION_F, chunk, k / (p * v) * p + k % p);
}

static tri_action backward(const tri_schedule *s, uint32_t rank, uint32_t k)
{
    uint32_t p = s->num_ranks, v = s->chunks_per_rank;
    uint32_t chunk = (v - 1 - k / p % v) * p + rank;
    return tri_action_of(TRI_ACTION_B, chunk, k / (p * v) * p + k % p);
}

static tr_status emit(tri_schedule *s, tr_error *err)
{
    uint32_t p = s->num_ranks, v = s->chunks_per_rank, num = s->num_microbatches * v;
    for (uint32_t r = 0; r < p; r++) {
        uint32_t ahead = 2 * (p - 1 - r) + (v - 1) * p;
        if (ahead > num)
            ahead = num;
        for (uint32_t k = 0; k < ahead; k++)
            TRI_TRY(tri_schedule_add(s, r, forward(s, r, k), err));
        for (uint32_t k = 0; k < num; k++) {
            if (k + ahead < num)
                TRI_TRY(tri_schedule_add(s, r, forward(s, r, k + ahead), err));
            TRI_TRY(tri_schedule_add(s, r, backward(s, r, k), err));
        }
    }
    return TR_OK;
}

static void facts(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    uint32_t p = s->num_ranks, v = s->chunks_per_rank;
    out->idle = (p - 1) * tri_rank_work(s, costs) / v;
    out->activations = fmin(2 * (p - 1) + (v - 1) * p + 1, s->num_microbatches * v) / v;
    out->weight_copies = 1;
}

const tri_order tri_order_interleaved = {
    .name = "interleaved",
    .help = "1F1B with v chunks on every rank: the bubble is v times shorter, more memory",
    .min_chunks = 2,
    .max_chunks = 64,
    .default_chunks = 2,
    .min_ranks = 2,
    .microbatches_by_ranks = true,
    .idle_formula = "(p-1)(F+B)/v",
    .activation_formula = "p+(p-1)/v",
    .emit = emit,
    .facts = facts,
};
