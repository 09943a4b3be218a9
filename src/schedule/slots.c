/* See slots.h.
 *
 * Why the preferences cannot deadlock: memory is the only thing that could. With two chunks, an F0
 * may take the last place only when an F1 of this rank is alive (room_for below). So a rank is
 * either not full, or has an activation of its second chunk. Let k be the oldest micro-batch that
 * is not finished, and say that it waits for room for an F1: then that rank is full and holds an F1
 * of an older micro-batch; that one is finished but for its W, and W can always run. Patterns have
 * no such rule: they are tried. */
#include "schedule/slots.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/orders.h"
#include "schedule/timetable.h"

enum { PERIOD = 6, NEVER = UINT32_MAX };

typedef struct rank_state {
    uint32_t next[TRI_NUM_STREAMS];  /* micro-batch that each stream comes to next */
    uint32_t turn;                   /* slot of the timetable that comes next */
    uint32_t ahead[TRI_NUM_STREAMS]; /* actions that have run before their turn */
    uint32_t num_w;                  /* done; they run in the order of the I */
    uint32_t live[2];                /* activations of the two chunks */
    uint32_t begin, end;             /* slots; busy until end */
    uint32_t peak;
} rank_state;

typedef struct slots {
    tri_schedule *schedule;
    const tri_slots_plan *plan;
    uint32_t p, m, chunks; /* chunks: of all ranks */
    bool two;              /* chunks on a rank */
    uint32_t now;
    rank_state *ranks;
    uint32_t *end_f, *end_i; /* [chunk][micro-batch]: slot after the action; NEVER */
    uint8_t *gradients;      /* [rank][2m]: the chunk (0, 1) of each I in turn, for the W */
    uint32_t *w_next;        /* [rank][2]: micro-batch of the next W of each chunk */
    tri_timetable table;     /* of a pattern */
    bool record;
} slots;

static bool is_forward(tri_slot_stream s)
{
    return s == TRI_STREAM_F0 || s == TRI_STREAM_F1;
}

static uint32_t local_of(tri_slot_stream s)
{
    return s == TRI_STREAM_F1 || s == TRI_STREAM_I1;
}

static uint32_t chunk_of(const slots *x, uint32_t rank, uint32_t local)
{
    return local ? 2 * x->p - 1 - rank : rank;
}

/* Whether a forward may take memory. What stands in a pattern needs a free place only. */
static bool room_for(const slots *x, uint32_t rank, tri_slot_stream s)
{
    const rank_state *state = &x->ranks[rank];
    const tri_slots_plan *plan = x->plan;
    uint32_t live = state->live[0] + state->live[1];
    if (live >= plan->limit)
        return false;
    if (!x->two)
        return state->next[TRI_STREAM_F0] - state->next[TRI_STREAM_I0] <
               1 + plan->slope * (x->p - 1 - rank);
    if (s == TRI_STREAM_F1 || plan->pattern)
        return true;
    return live + 1 < plan->limit || state->live[1] > 0;
}

static bool is_ready(const slots *x, uint32_t rank, tri_slot_stream s)
{
    const rank_state *state = &x->ranks[rank];
    uint32_t m = state->next[s], chunk = chunk_of(x, rank, local_of(s));
    if (m >= x->m)
        return false;
    if (is_forward(s))
        return (chunk == 0 || x->end_f[(size_t)(chunk - 1) * x->m + m] <= x->now) &&
               room_for(x, rank, s);
    if (x->end_f[(size_t)chunk * x->m + m] > x->now)
        return false;
    return chunk + 1 == x->chunks || x->end_i[(size_t)(chunk + 1) * x->m + m] <= x->now;
}

static bool has_w(const slots *x, uint32_t rank)
{
    const rank_state *state = &x->ranks[rank];
    uint32_t num_i = state->next[TRI_STREAM_I0] + (x->two ? state->next[TRI_STREAM_I1] : 0);
    return !x->plan->whole && state->num_w < num_i;
}

/* By ideal time; of two at once, the one whose micro-batch is older. */
static bool comes_before(const rank_state *state, const uint64_t *time, tri_slot_stream a,
                         tri_slot_stream b)
{
    return time[a] != time[b] ? time[a] < time[b] : state->next[a] < state->next[b];
}

/* The streams that are not through, by the ideal time of their next action. */
static int by_ideal_time(const slots *x, uint32_t rank, tri_slot_stream out[TRI_NUM_STREAMS])
{
    const rank_state *state = &x->ranks[rank];
    uint64_t time[TRI_NUM_STREAMS];
    int num = 0;
    for (tri_slot_stream s = TRI_STREAM_F0; s <= TRI_STREAM_I0; s++) {
        if (state->next[s] >= x->m)
            continue;
        time[s] = x->table.ideal[rank][s] + (uint64_t)PERIOD * state->next[s];
        int at = num++;
        for (; at > 0 && comes_before(state, time, s, out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = s;
    }
    return num;
}

/* Whose turn it is in the timetable; W have none, they come when nothing else can. */
static bool next_turn(const slots *x, uint32_t rank, tri_slot_stream *next)
{
    rank_state *state = &x->ranks[rank];
    const int8_t *row = x->table.rows + (size_t)rank * x->table.num_slots;
    for (; state->turn < x->table.num_slots; state->turn++) {
        int what = row[state->turn];
        if (what < 0 || what >= TRI_NUM_STREAMS)
            continue;
        *next = (tri_slot_stream)what;
        if (state->ahead[what] == 0)
            return true;
        state->ahead[what]--;
    }
    return false;
}

static bool choose_by_pattern(const slots *x, uint32_t rank, tri_slot_stream *chosen)
{
    rank_state *state = &x->ranks[rank];
    tri_slot_stream order[TRI_NUM_STREAMS];
    if (!next_turn(x, rank, chosen))
        return false;
    if (is_ready(x, rank, *chosen)) {
        state->turn++;
        return true;
    }
    if (!x->plan->loose || state->next[TRI_STREAM_F0] < x->m)
        return false;
    int num = by_ideal_time(x, rank, order);
    for (int i = 0; i < num; i++) {
        *chosen = order[i];
        if (!is_ready(x, rank, order[i]))
            continue;
        state->ahead[order[i]]++;
        return true;
    }
    return false;
}

static bool choose(const slots *x, uint32_t rank, tri_slot_stream *chosen)
{
    const rank_state *state = &x->ranks[rank];
    if (x->plan->pattern)
        return choose_by_pattern(x, rank, chosen);
    if (x->plan->free_first && state->live[0] + state->live[1] >= x->plan->limit && has_w(x, rank))
        return false;
    for (int i = 0; i < TRI_NUM_STREAMS; i++) {
        *chosen = x->plan->prefer[i];
        if ((x->two || !local_of(*chosen)) && is_ready(x, rank, *chosen))
            return true;
    }
    return false;
}

static tri_action take(slots *x, uint32_t rank, tri_slot_stream s)
{
    rank_state *state = &x->ranks[rank];
    uint32_t local = local_of(s), chunk = chunk_of(x, rank, local), m = state->next[s]++;
    size_t cell = (size_t)chunk * x->m + m;
    if (is_forward(s)) {
        x->end_f[cell] = x->now + 1;
        state->live[local]++;
        if (state->live[0] + state->live[1] > state->peak)
            state->peak = state->live[0] + state->live[1];
        return tri_action_of(TRI_ACTION_F, chunk, m);
    }
    uint32_t num_i = state->next[TRI_STREAM_I0] + state->next[TRI_STREAM_I1] - 1;
    x->end_i[cell] = x->now + (x->plan->whole ? 2 : 1);
    if (x->plan->whole) {
        state->live[local]--;
        return tri_action_of(TRI_ACTION_B, chunk, m);
    }
    x->gradients[(size_t)rank * 2 * x->m + num_i] = (uint8_t)local;
    return tri_action_of(TRI_ACTION_I, chunk, m);
}

static tri_action take_w(slots *x, uint32_t rank)
{
    rank_state *state = &x->ranks[rank];
    uint32_t local = x->gradients[(size_t)rank * 2 * x->m + state->num_w++];
    state->live[local]--;
    return tri_action_of(TRI_ACTION_W, chunk_of(x, rank, local), x->w_next[2 * rank + local]++);
}

/* One slot of all ranks. What a rank does now is seen by the others in the next slot only. */
static tr_status one_slot(slots *x, uint64_t *left, bool *moved, tr_error *err)
{
    *moved = false;
    for (uint32_t r = 0; r < x->p; r++) {
        rank_state *state = &x->ranks[r];
        tri_slot_stream s;
        tri_action action;
        *moved = *moved || state->end > x->now;
        if (state->end > x->now)
            continue;
        if (choose(x, r, &s))
            action = take(x, r, s);
        else if (has_w(x, r))
            action = take_w(x, r);
        else
            continue;
        if (x->record)
            TRI_TRY(tri_schedule_add(x->schedule, r, action, err));
        if (state->begin == NEVER)
            state->begin = x->now;
        state->end = x->now + (action.kind == TRI_ACTION_B ? 2 : 1);
        *moved = true;
        --*left;
    }
    x->now++;
    return TR_OK;
}

static tr_status prepare(slots *x, bool *fits, tr_error *err)
{
    size_t cells = (size_t)x->chunks * x->m;
    x->ranks = calloc(x->p, sizeof *x->ranks);
    x->end_f = malloc(cells * sizeof *x->end_f);
    x->end_i = malloc(cells * sizeof *x->end_i);
    x->gradients = calloc((size_t)x->p * 2, x->m);
    x->w_next = calloc((size_t)x->p * 2, sizeof *x->w_next);
    if (!x->ranks || !x->end_f || !x->end_i || !x->gradients || !x->w_next)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    memset(x->end_f, 0xff, cells * sizeof *x->end_f);
    memset(x->end_i, 0xff, cells * sizeof *x->end_i);
    for (uint32_t r = 0; r < x->p; r++)
        x->ranks[r].begin = NEVER;
    *fits = true;
    if (x->plan->pattern)
        return tri_timetable_make(x->plan, x->p, x->m, &x->table, fits, err);
    return TR_OK;
}

static void summarize(const slots *x, tri_slots_result *result)
{
    *result = (tri_slots_result){0};
    for (uint32_t r = 0; r < x->p; r++) {
        const rank_state *state = &x->ranks[r];
        uint32_t span = state->end - state->begin;
        result->makespan = state->end > result->makespan ? state->end : result->makespan;
        result->span = span > result->span ? span : result->span;
        result->peak = state->peak > result->peak ? state->peak : result->peak;
    }
}

/* Runs the plan for m micro-batches: those of the schedule, or fewer as a trial. Adds the actions
 * to the schedule when record is set. *finished is false when the plan got stuck on its way. */
static tr_status run_plan(tri_schedule *schedule, const tri_slots_plan *plan, uint32_t m,
                          bool record, tri_slots_result *result, bool *finished, tr_error *err)
{
    slots x = {.schedule = schedule, .plan = plan, .p = schedule->num_ranks, .m = m};
    x.chunks = schedule->num_chunks;
    x.two = x.chunks == 2 * x.p;
    x.record = record;
    bool moved = false;
    tr_status status = prepare(&x, &moved, err);
    uint64_t left = (uint64_t)x.chunks * m * (plan->whole ? 2 : 3);
    while (status == TR_OK && left > 0 && moved)
        status = one_slot(&x, &left, &moved, err);
    *finished = left == 0;
    if (status == TR_OK)
        summarize(&x, result);
    tri_timetable_fini(&x.table);
    free(x.ranks);
    free(x.end_f);
    free(x.end_i);
    free(x.gradients);
    free(x.w_next);
    return status;
}

static bool better(const tri_slots_result *a, const tri_slots_result *b)
{
    if (a->makespan != b->makespan)
        return a->makespan < b->makespan;
    return a->span != b->span ? a->span < b->span : a->peak < b->peak;
}

tr_status tri_slots_emit_best(tri_schedule *schedule, const tri_slots_plan *plans, size_t num_plans,
                              tr_error *err)
{
    /* After four rounds through the pipeline the steady state has shown what it costs. */
    uint32_t m = schedule->num_microbatches, trial = 4 * schedule->num_ranks;
    trial = m < trial ? m : trial;
    tri_slots_result best = {NEVER, NEVER, NEVER}, result;
    size_t chosen = 0;
    bool finished;
    for (size_t i = 0; i < num_plans && num_plans > 1; i++) {
        TRI_TRY(run_plan(schedule, &plans[i], trial, false, &result, &finished, err));
        if (!finished || !better(&result, &best))
            continue;
        best = result;
        chosen = i;
    }
    TRI_TRY(run_plan(schedule, &plans[chosen], m, true, &result, &finished, err));
    if (finished)
        return TR_OK;
    /* It finished a shorter run, so this is not expected; the first plan always ends. */
    for (uint32_t r = 0; r < schedule->num_ranks; r++)
        schedule->ranks[r].count = 0;
    TRI_TRY(run_plan(schedule, &plans[0], m, true, &result, &finished, err));
    if (!finished)
        return tri_fail(err, TR_ERROR_INTERNAL, "the builder of schedule %s got stuck",
                        schedule->order ? schedule->order->name : "?");
    return TR_OK;
}
