/* GEMS: the least memory of all. Two copies of the model, in opposite directions, take turns, and a
 * rank holds one micro-batch at a time: the forward of the next one follows the backward of the
 * last one along the ranks. */
#include "schedule/orders.h"

static tr_status emit(tri_schedule *s, tr_error *err)
{
    uint32_t p = s->num_ranks;
    for (uint32_t m = 0; m < s->num_microbatches; m++)
        s->route[m] = m % 2;
    for (uint32_t r = 0; r < p; r++)
        for (uint32_t m = 0; m < s->num_microbatches; m++) {
            uint32_t chunk = m % 2 ? p - 1 - r : r;
            TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_F, chunk, m), err));
            TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_B, chunk, m), err));
        }
    return TR_OK;
}

/* A micro-batch adds F + pB: its forward keeps just behind the backward before it. An even number
 * of micro-batches ends at the other end of the pipeline from where it began, so a rank's span
 * lacks the fill. With B = 2F the idle share is (p-1)/(p+1/2). */
static void facts(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    double f = costs->kind[TRI_ACTION_F], b = costs->kind[TRI_ACTION_B];
    double p = s->num_ranks, m = s->num_microbatches;
    out->idle = b < f ? (double)NAN : (p - 1) * (m * b + (s->num_microbatches % 2 ? f : 0));
    out->activations = 1;
    out->weight_copies = 2;
}

const tri_order tri_order_gems = {
    .name = "gems",
    .help = "two directions take turns; one micro-batch in memory, the largest bubble",
    .flags = TRI_ORDER_BIDIRECTIONAL,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 2,
    .even_ranks = true,
    .idle_formula = "(p-1)mB",
    .activation_formula = "1",
    .emit = emit,
    .facts = facts,
};
