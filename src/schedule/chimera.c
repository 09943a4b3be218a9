/* Chimera: two 1F1B pipelines in opposite directions share the ranks. Rank r has chunk r for the
 * micro-batches that go down and chunk p-1-r for those that go up, so each chunk lives twice.
 *
 * With F = B = 1 slot, let micro-batch i of the downward route run its forward on rank r in slot
 * r + 2i and its backward in slot 2p-1-r + 2i, and the upward one likewise with p-1-r for r. When p
 * is even, r and p-1-r have different parity, so the two directions never want the same slot as
 * long as each has at most p/2 micro-batches; after 2p slots the next p micro-batches follow. The
 * lists are the actions in order of their slots: p-2 slots of a rank stay empty in all. */
#include <stdlib.h>

#include "schedule/orders.h"

typedef struct slotted {
    uint32_t slot;
    tri_action action;
} slotted;

static int by_slot(const void *a, const void *b)
{
    uint32_t x = ((const slotted *)a)->slot, y = ((const slotted *)b)->slot;
    return (x > y) - (x < y);
}

/* Micro-batches of the group that m is in: p, or fewer in the last one. */
static uint32_t group_size(const tri_schedule *s, uint32_t m)
{
    uint32_t p = s->num_ranks, left = s->num_microbatches - m / p * p;
    return left < p ? left : p;
}

/* F and B of micro-batch m on a rank, with their slots. */
static void place(const tri_schedule *s, uint32_t rank, uint32_t m, slotted out[2])
{
    uint32_t p = s->num_ranks;
    bool up = s->route[m];
    uint32_t i = m % p - (up ? group_size(s, m) / 2 : 0), chunk = up ? p - 1 - rank : rank;
    uint32_t begin = m / p * 2 * p + 2 * i;
    out[0] = (slotted){begin + chunk, tri_action_of(TRI_ACTION_F, chunk, m)};
    out[1] = (slotted){begin + 2 * p - 1 - chunk, tri_action_of(TRI_ACTION_B, chunk, m)};
}

static tr_status emit(tri_schedule *s, tr_error *err)
{
    uint32_t num = s->num_microbatches;
    slotted *all = malloc(2 * (size_t)num * sizeof *all);
    if (!all)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    tr_status status = TR_OK;
    for (uint32_t m = 0; m < num; m++) /* the first half of a group goes down */
        s->route[m] = m % s->num_ranks >= group_size(s, m) / 2;
    for (uint32_t r = 0; r < s->num_ranks && status == TR_OK; r++) {
        for (uint32_t m = 0; m < num; m++)
            place(s, r, m, &all[2 * (size_t)m]);
        qsort(all, 2 * (size_t)num, sizeof *all, by_slot);
        for (size_t k = 0; k < 2 * (size_t)num && status == TR_OK; k++)
            status = tri_schedule_add(s, r, all[k].action, err);
    }
    free(all);
    return status;
}

/* For whole groups of p micro-batches. The published bubble is that of F = B; a longer backward
 * shows once in every group. */
static void facts(const tri_schedule *s, const tri_action_costs *costs, tri_order_facts *out)
{
    double f = costs->kind[TRI_ACTION_F], b = costs->kind[TRI_ACTION_B];
    double groups = (double)s->num_microbatches / s->num_ranks;
    bool known = b >= f && s->num_microbatches % s->num_ranks == 0;
    out->idle = known ? (s->num_ranks - 2) * (f + groups * (b - f)) : (double)NAN;
    out->activations = fmin(s->num_ranks, s->num_microbatches);
    out->weight_copies = 2;
}

const tri_order tri_order_chimera = {
    .name = "chimera",
    .help = "two pipelines in opposite directions; every chunk lives twice",
    .flags = TRI_ORDER_BIDIRECTIONAL,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 2,
    .even_ranks = true,
    .even_microbatches = true,
    .idle_formula = "(p-2)(F+(B-F)m/p)",
    .activation_formula = "p/2+1 .. p",
    .emit = emit,
    .facts = facts,
};
