/* DualPipe and DualPipeV: forwards of one stream are paired with backwards of another, so that a
 * device which can overlap the two hides the communication of each behind the other's arithmetic.
 *
 * DualPipe has two routes, as Chimera: rank r holds chunk r of the downward and chunk p-1-r of the
 * upward one. DualPipeV folds the same picture in the middle: rank r holds chunks r and 2p-1-r of
 * one route, and needs each chunk once.
 *
 * Both are the same eight steps for a rank at depth d of h (d = 0 outermost), with stream 0 the one
 * that enters on this side and stream 1 the one that has come back, or comes from the other side:
 *
 *   1  2(h-1-d) x  F0
 *   2  d+1      x  F0 F1
 *   3  h-1-d    x  I1 W1 F1           the backward is split where nothing can be paired with it
 *   4  the rest x  (F0 B1) (F1 B0)
 *   5  h-1-d    x  B1 (F1 B0)
 *   6  d+1      x  B1 B0              in the second half as I, their W are put off
 *   7  h-1-d    x  W I0
 *   8  d+1      x  W */
#include <math.h>
#include <stdlib.h>

#include "schedule/orders.h"

typedef struct dualpipe_stream {
    uint32_t chunk, first; /* micro-batch */
    uint32_t num_forward, num_backward;
} dualpipe_stream;

typedef struct dualpipe_rank {
    tri_schedule *schedule;
    uint32_t rank;
    dualpipe_stream stream[2];
    tri_action *waiting; /* W that were put off */
    uint32_t num_waiting, next_waiting;
    tr_status status;
    tr_error *err;
} dualpipe_rank;

static void add(dualpipe_rank *w, tri_action action)
{
    if (w->status == TR_OK)
        w->status = tri_schedule_add(w->schedule, w->rank, action, w->err);
}

static void forward(dualpipe_rank *w, int s, bool overlap)
{
    dualpipe_stream *st = &w->stream[s];
    tri_action action = tri_action_of(TRI_ACTION_F, st->chunk, st->first + st->num_forward++);
    action.overlap = overlap;
    add(w, action);
}

static void backward(dualpipe_rank *w, int s)
{
    dualpipe_stream *st = &w->stream[s];
    add(w, tri_action_of(TRI_ACTION_B, st->chunk, st->first + st->num_backward++));
}

static void input_gradient(dualpipe_rank *w, int s)
{
    dualpipe_stream *st = &w->stream[s];
    uint32_t m = st->first + st->num_backward++;
    add(w, tri_action_of(TRI_ACTION_I, st->chunk, m));
    w->waiting[w->num_waiting++] = tri_action_of(TRI_ACTION_W, st->chunk, m);
}

static void weight_gradient(dualpipe_rank *w)
{
    add(w, w->waiting[w->next_waiting++]);
}

static void pair(dualpipe_rank *w, int f, int b)
{
    forward(w, f, true);
    backward(w, b);
}

/* Step 6: the second half leaves its W for later; an odd depth changes over before stream 1. */
static void wind_down(dualpipe_rank *w, uint32_t depth)
{
    bool split = false;
    for (uint32_t i = 0; i < depth + 1; i++) {
        bool here = i == (depth + 1) / 2;
        split = split || (here && depth % 2 == 1);
        split ? input_gradient(w, 1) : backward(w, 1);
        split = split || here;
        split ? input_gradient(w, 0) : backward(w, 0);
    }
}

static void eight_steps(dualpipe_rank *w, uint32_t depth, uint32_t height, uint32_t num)
{
    uint32_t outer = height - 1 - depth, rest = num - 2 * height + depth + 1;
    for (uint32_t i = 0; i < 2 * outer; i++)
        forward(w, 0, false);
    for (uint32_t i = 0; i < depth + 1; i++) {
        forward(w, 0, false);
        forward(w, 1, false);
    }
    for (uint32_t i = 0; i < outer; i++) {
        input_gradient(w, 1);
        weight_gradient(w);
        forward(w, 1, false);
    }
    for (uint32_t i = 0; i < rest; i++) {
        /* On the innermost rank the first B1 has only just become possible: no pair. */
        forward(w, 0, i > 0 || outer > 0);
        backward(w, 1);
        pair(w, 1, 0);
    }
    for (uint32_t i = 0; i < outer; i++) {
        backward(w, 1);
        pair(w, 1, 0);
    }
    wind_down(w, depth);
    for (uint32_t i = 0; i < outer; i++) {
        weight_gradient(w);
        input_gradient(w, 0);
    }
    while (w->next_waiting < w->num_waiting)
        weight_gradient(w);
}

static tr_status emit_rank(tri_schedule *s, uint32_t rank, dualpipe_stream s0, dualpipe_stream s1,
                           uint32_t depth, uint32_t height, uint32_t num, tr_error *err)
{
    dualpipe_rank w = {.schedule = s, .rank = rank, .stream = {s0, s1}, .err = err};
    w.waiting = malloc(2 * (size_t)num * sizeof *w.waiting);
    if (!w.waiting)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    eight_steps(&w, depth, height, num);
    free(w.waiting);
    return w.status;
}

static tr_status emit_dualpipe(tri_schedule *s, tr_error *err)
{
    uint32_t p = s->num_ranks, half = s->num_microbatches / 2;
    for (uint32_t m = half; m < s->num_microbatches; m++)
        s->route[m] = 1;
    for (uint32_t r = 0; r < p; r++) {
        bool upper = r >= p / 2; /* the other half mirrors this one */
        uint32_t depth = upper ? p - 1 - r : r;
        dualpipe_stream near = {.chunk = depth, .first = upper ? half : 0};
        dualpipe_stream far = {.chunk = p - 1 - depth, .first = upper ? 0 : half};
        TRI_TRY(emit_rank(s, r, near, far, depth, p / 2, half, err));
    }
    return TR_OK;
}

static tr_status emit_dualpipev(tri_schedule *s, tr_error *err)
{
    uint32_t p = s->num_ranks;
    for (uint32_t r = 0; r < p; r++)
        TRI_TRY(emit_rank(s, r, (dualpipe_stream){.chunk = r},
                          (dualpipe_stream){.chunk = 2 * p - 1 - r}, r, p, s->num_microbatches,
                          err));
    return TR_OK;
}

/* Published for F = I: ranks then meet without waiting for each other's forwards or gradients. A W
 * that is longer than those delays what is published as hidden. No formula for other costs. */
static double idle(double height, const tri_action_costs *costs)
{
    double f = costs->kind[TRI_ACTION_F], b = costs->kind[TRI_ACTION_B];
    double pair = costs->overlap > 0 ? costs->overlap : f + b;
    if (fabs(f - costs->kind[TRI_ACTION_I]) > 1e-9 * f || costs->kind[TRI_ACTION_W] > f)
        return NAN;
    return (height - 1) * (pair + b - 3 * costs->kind[TRI_ACTION_W]);
}

static void facts_dualpipe(const tri_schedule *s, const tri_action_costs *costs,
                           tri_order_facts *out)
{
    out->idle = idle(s->num_ranks / 2.0, costs);
    out->activations = s->num_ranks + 1;
    out->weight_copies = 2;
}

static void facts_dualpipev(const tri_schedule *s, const tri_action_costs *costs,
                            tri_order_facts *out)
{
    out->idle = idle(s->num_ranks, costs);
    out->activations = s->num_ranks + 0.5;
    out->weight_copies = 1;
}

const tri_order tri_order_dualpipe = {
    .name = "dualpipe",
    .help = "two directions, forwards paired with backwards to hide communication",
    .flags = TRI_ORDER_BIDIRECTIONAL | TRI_ORDER_SPLIT | TRI_ORDER_OVERLAP,
    .min_chunks = 1,
    .max_chunks = 1,
    .default_chunks = 1,
    .min_ranks = 2,
    .even_ranks = true,
    .even_microbatches = true,
    .min_microbatches_per_rank = 2,
    .idle_formula = "(p/2-1)(FB+B-3W)",
    .activation_formula = "p+1",
    .emit = emit_dualpipe,
    .facts = facts_dualpipe,
};

const tri_order tri_order_dualpipev = {
    .name = "dualpipev",
    .help = "DualPipe folded into a V: the same pairs, every chunk lives once",
    .flags = TRI_ORDER_V | TRI_ORDER_SPLIT | TRI_ORDER_OVERLAP,
    .min_chunks = 2,
    .max_chunks = 2,
    .default_chunks = 2,
    .min_ranks = 1,
    .min_microbatches_per_rank = 2,
    .idle_formula = "(p-1)(FB+B-3W)/2",
    .activation_formula = "p+1/2",
    .emit = emit_dualpipev,
    .facts = facts_dualpipev,
};
