/* GPipe: all forwards, then all backwards. Every micro-batch is alive in the middle. */
#include "schedule/orders.h"

static tr_status emit(tri_schedule *s, tr_error *err)
{
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        for (uint32_t m = 0; m < s->num_microbatches; m++)
            TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_F, r, m), err));
        for (uint32_t m = 0; m < s->num_microbatches; m++)
            TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_B, r, m), err));
    }
    return TR_OK;
}

static void facts(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    out->idle = (s->num_ranks - 1) * tri_rank_work(s, costs);
    out->activations = s->num_microbatches;
    out->weight_copies = 1;
}

const tri_order tri_order_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards; simple, keeps every micro-batch",
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .idle_formula = "(p-1)(F+B)",
    .activation_formula = "m",
    .emit = emit,
    .facts = facts,
};
