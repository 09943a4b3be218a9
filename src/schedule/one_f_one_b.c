/* 1F1B: as soon as a rank can, it runs one backward for every forward. Rank r begins with p-1-r
 * forwards, so at most p-r micro-batches are alive on it; the bubble is GPipe's. */
#include "schedule/orders.h"

static tr_status backward(tri_schedule *s, uint32_t rank, uint32_t m, uint32_t update_every,
                          tr_error *err)
{
    TRI_TRY(tri_schedule_add(s, rank, tri_action_of(TRI_ACTION_B, rank, m), err));
    bool last = m + 1 == s->num_microbatches;
    if (update_every && ((m + 1) % update_every == 0 || last))
        TRI_TRY(tri_schedule_add(s, rank, tri_action_of(TRI_ACTION_U, rank, m), err));
    return TR_OK;
}

tr_status tri_emit_1f1b(tri_schedule *s, uint32_t update_every, tr_error *err)
{
    uint32_t num = s->num_microbatches;
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        uint32_t ahead = s->num_ranks - 1 - r;
        if (ahead > num)
            ahead = num;
        for (uint32_t m = 0; m < ahead; m++)
            TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_F, r, m), err));
        for (uint32_t m = 0; m < num; m++) {
            if (m + ahead < num)
                TRI_TRY(tri_schedule_add(s, r, tri_action_of(TRI_ACTION_F, r, m + ahead), err));
            TRI_TRY(backward(s, r, m, update_every, err));
        }
    }
    return TR_OK;
}

static tr_status emit(tri_schedule *s, tr_error *err)
{
    return tri_emit_1f1b(s, 0, err);
}

static void facts(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    out->idle = (s->num_ranks - 1) * tri_rank_work(s, costs);
    out->activations = fmin(s->num_ranks, s->num_microbatches);
    out->weight_copies = 1;
}

const tri_order tri_order_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward; GPipe's bubble, memory bounded by the ranks",
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .idle_formula = "(p-1)(F+B)",
    .activation_formula = "p",
    .emit = emit,
    .facts = facts,
};
