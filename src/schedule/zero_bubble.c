/* ZB-H1 and ZB-H2: 1F1B with the backward cut in two. The next rank waits for I only; W can be put
 * off and fills what would be idle.
 *
 * zb-h1 runs ahead as far as 1F1B does and keeps no more than p micro-batches: a third of the
 * bubble is left. zb-h2 runs ahead twice as far, and with 2p-1 micro-batches in memory no bubble is
 * left within the span of a rank. */
#include "schedule/orders.h"
#include "schedule/slots.h"

static tr_status emit(tri_schedule *s, uint32_t slope, uint32_t limit, tr_error *err)
{
    const tri_slots_plan plan = {
        .limit = limit,
        .slope = slope,
        .prefer = {TRI_STREAM_F0, TRI_STREAM_I0, TRI_STREAM_I0, TRI_STREAM_I0}};
    return tri_slots_emit_best(s, &plan, 1, err);
}

static tr_status emit_h1(tri_schedule *s, tr_error *err)
{
    return emit(s, 1, s->num_ranks, err);
}

static tr_status emit_h2(tri_schedule *s, tr_error *err)
{
    return emit(s, 2, 2 * s->num_ranks - 1, err);
}

static void facts(const tri_schedule *s, const tri_action_costs *costs, int num_w, double most,
                  tri_order_facts *out)
{
    double each =
        costs->kind[TRI_ACTION_F] + costs->kind[TRI_ACTION_I] - num_w * costs->kind[TRI_ACTION_W];
    out->idle = fmax(0, (s->num_ranks - 1) * each);
    out->activations = fmin(most, s->num_microbatches);
    out->weight_copies = 1;
}

static void facts_h1(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 1, s->num_ranks, out);
}

static void facts_h2(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 2, 2.0 * s->num_ranks - 1, out);
}

const tri_order tri_order_zb_h1 = {
    .name = "zb-h1",
    .help = "1F1B with W put off: 1F1B's memory, a third of its bubble",
    .flags = TRI_ORDER_SPLIT,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .idle_formula = "(p-1)(F+I-W)",
    .activation_formula = "p",
    .emit = emit_h1,
    .facts = facts_h1,
};

const tri_order tri_order_zb_h2 = {
    .name = "zb-h2",
    .help = "as zb-h1, and further ahead: no bubble, twice 1F1B's memory",
    .flags = TRI_ORDER_SPLIT,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 1,
    .idle_formula = "(p-1)(F+I-2W)",
    .activation_formula = "2p-1",
    .emit = emit_h2,
    .facts = facts_h2,
};
