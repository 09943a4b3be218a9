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
 *   1f1b-v  backwards in one piece: F takes 1 slot a rank, B 2, 2 and 5 in turn: 2 ceil(2(p-1)/3) +
 *           2 chunks, two thirds of it
 * zb-v is greedy. The others follow a pattern: greed would block itself where memory is short. A
 * few are tried, since 6 slots and p ranks fit together in several ways; greedy plans are among
 * them, since they cannot get stuck. */
#include <string.h>

#include "schedule/orders.h"
#include "schedule/slots.h"

enum { MOST_PLANS = 16 };

/* Slots from rank to rank and at the three turns. */
typedef struct slot_way {
    uint8_t delta[4], gap[3];
} slot_way;

typedef struct plan_list {
    tri_slots_plan plans[MOST_PLANS];
    size_t num;
} plan_list;

/* Greedy plans, which cannot get stuck: new work first, or gradients first. */
static void add_greedy(plan_list *list, uint32_t limit, bool whole)
{
    static const tri_slot_stream prefer[2][TRI_NUM_STREAMS] = {
        {TRI_STREAM_F1, TRI_STREAM_F0, TRI_STREAM_I0, TRI_STREAM_I1},
        {TRI_STREAM_I1, TRI_STREAM_F1, TRI_STREAM_I0, TRI_STREAM_F0},
    };
    for (int i = 0; i < 2; i++) {
        tri_slots_plan *plan = &list->plans[list->num++];
        *plan = (tri_slots_plan){.limit = limit, .whole = whole};
        memcpy(plan->prefer, prefer[i], sizeof plan->prefer);
    }
}

static void add_patterns(plan_list *list, const tri_slots_plan *base, const slot_way *ways,
                         size_t num_ways)
{
    for (size_t i = 0; i < num_ways && list->num < MOST_PLANS; i++) {
        tri_slots_plan *plan = &list->plans[list->num++];
        *plan = *base;
        plan->pattern = true;
        memcpy(plan->delta, ways[i].delta, sizeof plan->delta);
        memcpy(plan->gap, ways[i].gap, sizeof plan->gap);
    }
}

static uint32_t whole_limit(uint32_t p)
{
    return 2 * ((2 * p) / 3) + 2;
}

static uint32_t half_limit(uint32_t p)
{
    return p + 2;
}

static uint32_t min_limit(uint32_t p)
{
    return 2 * ((p + 1) / 3) + 2;
}

static tr_status emit_zb_v(tri_schedule *s, tr_error *err)
{
    plan_list list = {.num = 0};
    add_greedy(&list, 2 * s->num_ranks, false);
    list.plans[0].free_first = true;
    return tri_slots_emit_best(s, list.plans, 1, err);
}

static tr_status emit_v_half(tri_schedule *s, tr_error *err)
{
    static const slot_way ways[] = {{{1, 2, 1, 2}, {1, 4, 2}},
                                    {{1, 2, 1, 2}, {1, 1, 2}},
                                    {{1, 1, 1, 1}, {1, 3, 1}},
                                    {{1, 1, 1, 1}, {1, 5, 1}}};
    tri_slots_plan base = {.limit = half_limit(s->num_ranks)};
    plan_list list = {.num = 0};
    add_greedy(&list, base.limit, false);
    add_patterns(&list, &base, ways, sizeof ways / sizeof *ways);
    return tri_slots_emit_best(s, list.plans, list.num, err);
}

static tr_status emit_v_min(tri_schedule *s, tr_error *err)
{
    /* For p = 1, 0 and 2 modulo 3. */
    static const slot_way ways[] = {{{1, 1, 1, 1}, {1, 1, 1}},
                                    {{1, 1, 1, 1}, {1, 3, 1}},
                                    {{1, 1, 1, 1}, {1, 5, 1}},
                                    {{1, 1, 1, 1}, {3, 1, 3}}};
    tri_slots_plan base = {.limit = min_limit(s->num_ranks), .loose = true};
    plan_list list = {.num = 0};
    add_greedy(&list, base.limit, false);
    add_patterns(&list, &base, ways, sizeof ways / sizeof *ways);
    base = (tri_slots_plan){.limit = base.limit, .slotless_w = true};
    add_patterns(&list, &base, ways, sizeof ways / sizeof *ways);
    return tri_slots_emit_best(s, list.plans, list.num, err);
}

static tr_status emit_1f1b_v(tri_schedule *s, tr_error *err)
{
    static const slot_way ways[] = {{{1, 1, 2, 2}, {1, 1, 2}}, {{1, 1, 2, 2}, {1, 4, 2}}};
    tri_slots_plan base = {.limit = whole_limit(s->num_ranks), .whole = true, .pause = 3};
    plan_list list = {.num = 0};
    add_greedy(&list, base.limit, true);
    for (base.phase = 0; base.phase < 3; base.phase++)
        add_patterns(&list, &base, ways, sizeof ways / sizeof *ways);
    return tri_slots_emit_best(s, list.plans, list.num, err);
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
    facts(s, costs, 5.0 * s->num_ranks - 5, whole_limit(s->num_ranks), out);
    out->idle = costs->kind[TRI_ACTION_B] == 2 * f ? out->idle : (double)NAN;
}

static void facts_zb_v(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 0, 2.0 * s->num_ranks, out);
}

static void facts_v_half(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 3.0 * s->num_ranks - 6, half_limit(s->num_ranks), out);
}

static void facts_v_min(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    facts(s, costs, 4.0 * s->num_ranks - 5, min_limit(s->num_ranks), out);
}

const tri_order tri_order_1f1b_v = {
    .name = "1f1b-v",
    .help = "1F1B with two chunks in a V: two thirds of its memory, a smaller bubble",
    .flags = TRI_ORDER_V,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .idle_formula = "5(p-1)(F+B)/6",
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
    .idle_formula = "(p-2)(F+B)/2",
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
