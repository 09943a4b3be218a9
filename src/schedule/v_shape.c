/* 1F1B-V, ZB-V, V-Half and V-Min: two chunks on a rank, r and 2p-1-r, so that a micro-batch comes
 * down the ranks and goes up again. The rank that computes the loss is the first one, where the
 * activations of the first chunk live longest and those of the second shortest: all ranks need the
 * same memory.
 *
 * What limits the memory is how long activations live, and that is a matter of how many slots F and
 * I take from rank to rank (see docs/pipelines.md):
 *   zb-v    as many in flight as give no bubble: 2p chunks, 1F1B's memory
 *   v-half  F and I take 1 and 2 slots a rank: p+2 chunks, half of it
 *   v-min   every hop takes one slot: 2 ceil((p-1)/3) + 2 chunks, a third of it
 *   1f1b-v  backwards in one piece: F takes 1 slot a rank, B 3: 2 ceil(2(p-1)/3) + 2 chunks, two
 *           thirds of it
 * zb-v is greedy. The others follow their pattern: greed would block itself where memory is
 * short. Several variants of the turns are tried, since 6 slots and p ranks fit differently. */
#include "schedule/orders.h"
#include "schedule/slots.h"

enum { MOST_PLANS = 16 };

#define BY_TURNS                                                                                   \
    {                                                                                              \
        TRI_STREAM_F1, TRI_STREAM_F0, TRI_STREAM_I0, TRI_STREAM_I1                                 \
    }
#define GRADIENTS_FIRST                                                                            \
    {                                                                                              \
        TRI_STREAM_I1, TRI_STREAM_F1, TRI_STREAM_I0, TRI_STREAM_F0                                 \
    }

static tr_status emit_zb_v(tri_schedule *s, tr_error *err)
{
    const tri_slots_plan plan = {.limit = 2 * s->num_ranks, .prefer = BY_TURNS, .free_first = true};
    return tri_slots_emit_best(s, &plan, 1, err);
}

static tr_status emit_patterns(tri_schedule *s, uint32_t limit, const uint8_t deltas[][4],
                               size_t num_deltas, tr_error *err)
{
    static const uint8_t gaps[][3] = {{1, 1, 1}, {1, 3, 1}, {1, 1, 4}, {3, 3, 3}, {4, 3, 4}};
    tri_slots_plan plans[MOST_PLANS] = {
        {.limit = limit, .prefer = BY_TURNS},
        {.limit = limit, .prefer = GRADIENTS_FIRST},
    };
    size_t num = 2;
    for (size_t d = 0; d < num_deltas; d++)
        for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
            for (uint8_t early = 0; early < 2 && num < MOST_PLANS; early += 1 + (g > 0)) {
                tri_slots_plan *plan = &plans[num++];
                *plan = (tri_slots_plan){.limit = limit, .pattern = true, .early = early};
                for (int i = 0; i < 4; i++)
                    plan->delta[i] = deltas[d][i];
                for (int i = 0; i < 3; i++)
                    plan->gap[i] = gaps[g][i];
            }
    return tri_slots_emit_best(s, plans, num, err);
}

static uint32_t whole_limit(uint32_t p)
{
    return 2 * ((2 * p) / 3) + 2;
}

static tr_status emit_1f1b_v(tri_schedule *s, tr_error *err)
{
    static const uint8_t gaps[][3] = {{1, 1, 3}, {1, 3, 3}, {3, 2, 3}, {3, 1, 4}, {1, 3, 1}};
    enum { NUM_GAPS = sizeof gaps / sizeof *gaps };
    uint32_t limit = whole_limit(s->num_ranks);
    tri_slots_plan plans[2 + NUM_GAPS] = {
        {.limit = limit, .whole = true, .prefer = BY_TURNS},
        {.limit = limit, .whole = true, .prefer = GRADIENTS_FIRST},
    };
    for (size_t g = 0; g < NUM_GAPS; g++)
        plans[2 + g] = (tri_slots_plan){.limit = limit,
                                        .whole = true,
                                        .pattern = true,
                                        .spare = true,
                                        .delta = {1, 1, 3, 3},
                                        .gap = {gaps[g][0], gaps[g][1], gaps[g][2]}};
    return tri_slots_emit_best(s, plans, 2 + NUM_GAPS, err);
}

static uint32_t half_limit(uint32_t p)
{
    return p + 2;
}

static uint32_t min_limit(uint32_t p)
{
    return 2 * ((p + 1) / 3) + 2;
}

static tr_status emit_v_half(tri_schedule *s, tr_error *err)
{
    static const uint8_t deltas[][4] = {{1, 2, 1, 2}, {1, 2, 2, 1}};
    return emit_patterns(s, half_limit(s->num_ranks), deltas, 2, err);
}

static tr_status emit_v_min(tri_schedule *s, tr_error *err)
{
    static const uint8_t deltas[][4] = {{1, 1, 1, 1}};
    return emit_patterns(s, min_limit(s->num_ranks), deltas, 1, err);
}

/* The formulas hold for F = I = W, which the builder plans for; slots are those of one chunk. */
static void facts(const tri_schedule *s, const tri_action_costs *costs, double num_slots,
                  double chunks, tri_order_facts *out)
{
    double f = costs->kind[TRI_ACTION_F], i = costs->kind[TRI_ACTION_I];
    bool equal = f == i && i == costs->kind[TRI_ACTION_W];
    out->idle = equal ? fmax(0, num_slots) * f : (double)NAN;
    out->activations = fmin(chunks, 2.0 * s->num_microbatches) / 2;
    out->weight_copies = 1;
}

static void facts_1f1b_v(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    double f = costs->kind[TRI_ACTION_F];
    facts(s, costs, fmax(4, 6.0 * s->num_ranks - 9), whole_limit(s->num_ranks), out);
    out->idle = costs->kind[TRI_ACTION_B] == 2 * f ? out->idle : (double)NAN;
}

static void facts_zb_v(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 0, 2.0 * s->num_ranks, out);
}

static void facts_v_half(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 3.0 * s->num_ranks - 5, half_limit(s->num_ranks), out);
}

static void facts_v_min(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 4.0 * s->num_ranks - 5, min_limit(s->num_ranks), out);
}

const tri_order tri_order_1f1b_v = {
    .name = "1f1b-v",
    .help = "1F1B with two chunks in a V: its bubble, two thirds of its memory",
    .flags = TRI_ORDER_V,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .idle_formula = "(2p-3)(F+B)/2",
    .activation_formula = "ceil(2(p-1)/3)+1",
    .emit = emit_1f1b_v,
    .facts = facts_1f1b_v,
};

const tri_order tri_order_zb_v = {
    .name = "zb-v",
    .help = "two chunks in a V: no bubble with 1F1B's memory",
    .flags = TRI_ORDER_V | TRI_ORDER_SPLIT,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .idle_formula = "0 if F=I=W",
    .activation_formula = "p",
    .emit = emit_zb_v,
    .facts = facts_zb_v,
};

const tri_order tri_order_v_half = {
    .name = "v-half",
    .help = "two chunks in a V: half of 1F1B's memory and bubble",
    .flags = TRI_ORDER_V | TRI_ORDER_SPLIT,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .idle_formula = "(3p-5)(F+B)/6",
    .activation_formula = "p/2+1",
    .emit = emit_v_half,
    .facts = facts_v_half,
};

const tri_order tri_order_v_min = {
    .name = "v-min",
    .help = "two chunks in a V: a third of 1F1B's memory, two thirds of its bubble",
    .flags = TRI_ORDER_V | TRI_ORDER_SPLIT,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .idle_formula = "(4p-5)(F+B)/6",
    .activation_formula = "ceil((p-1)/3)+1",
    .emit = emit_v_min,
    .facts = facts_v_min,
};
