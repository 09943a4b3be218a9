/* Calls as steps: so much computing, then something with a message. A call that starts no flight
 * and awaits none is the same every time, so its steps are kept. */
#include <stdlib.h>
#include <string.h>

#include "sim/timing_parts.h"

static void add_step(timing_steps *s, step_kind kind, uint32_t which)
{
    timing_step *steps = tri_array_grow(s->steps, s->count, &s->capacity, sizeof *steps);
    s->failed |= !steps;
    if (!steps)
        return;
    s->steps = steps;
    steps[s->count++] = (timing_step){.seconds = s->pending,
                                      .kind = kind,
                                      .which = which,
                                      .nth = s->nth,
                                      .first = s->first,
                                      .last = s->last};
    s->pending = 0;
    s->first = s->last = 0;
}

static void begin(timing_steps *s)
{
    timing_step *steps = s->steps;
    size_t capacity = s->capacity;
    *s = (timing_steps){.steps = steps, .capacity = capacity};
}

static void take(timing_steps *s, tri_time_kind kind, double seconds)
{
    s->time[kind] += seconds;
    s->pending += seconds;
    s->own += seconds;
}

/* As the executor keeps it (run/executor_own.c): behind each product, and for the rest at the end.
 */
static void begin_pace(timing_steps *s, const timing_run *run, const timing_rank *rank)
{
    if (run->c->pace.least)
        s->least = tri_calls_pace(rank->program, rank->call, run->c->pace.least, &s->num_products);
}

static void pace_product(timing_steps *s, const timing_rank *rank, uint32_t i)
{
    if (!(s->least > 0) || !tri_op_multiplies(rank->program->instrs[i].op))
        return;
    double wanted = s->least * rank->brake * ++s->products_done / s->num_products;
    if (wanted > s->own)
        take(s, TRI_TIME_MEMORY, wanted - s->own);
}

static void end_pace(timing_steps *s, const timing_rank *rank)
{
    const tri_call *call = &rank->program->calls[rank->call];
    double wanted = (s->own > s->least ? s->own : s->least) * rank->brake;
    if (s->products_done > 0) /* it was braked behind each product */
        wanted = s->least * rank->brake;
    if (wanted > s->own && tri_action_computes(rank->program->segments[call->segment].action))
        take(s, TRI_TIME_MEMORY, wanted - s->own);
}

static void compute(timing_steps *s, const timing_rank *rank, uint32_t i, bool update)
{
    const tri_program *program = rank->program;
    double seconds = rank->instr_seconds[i];
    tri_time_kind kind = update ? TRI_TIME_UPDATE : (tri_time_kind)rank->kind[i];
    take(s, kind, seconds);
    s->redone[kind] += program->instrs[i].redone ? seconds : 0;
    pace_product(s, rank, i);
    s->first = s->last > 0 ? s->first : i;
    s->last = i + 1;
}

/* Where the timeline has arrived. */
typedef struct timeline_place {
    uint32_t call, instr;
} timeline_place;

static void land(timing_steps *s, timing_rank *rank, timeline_place at)
{
    const tri_program *program = rank->program;
    while (rank->num_landed < program->num_flights) {
        const tri_landing *landing = &program->landings[rank->num_landed];
        if (landing->call != at.call || landing->instr != at.instr)
            return;
        rank->num_landed++;
        add_step(s, STEP_LAND, landing->flight);
    }
}

/* Receives that begin before their place. */
static void start_early(timing_steps *s, timing_rank *rank, timeline_place at)
{
    const tri_program *program = rank->program;
    for (; rank->num_started < program->num_flights; rank->num_started++) {
        const tri_flight *flight = &program->flights[rank->num_started];
        if (flight->from_call != at.call || flight->from_instr != at.instr ||
            flight->call == at.call)
            return;
        if (!rank->in_place)
            add_step(s, STEP_START, (uint32_t)rank->num_started);
    }
}

/* The message of this very place, when it is a flight; true also when that has begun. */
static bool take_off(timing_steps *s, timing_rank *rank, timeline_place at)
{
    const tri_program *program = rank->program;
    start_early(s, rank, at);
    const tri_landing *reached = &program->early[rank->num_reached];
    if (rank->num_reached < program->num_early && reached->call == at.call &&
        reached->instr == at.instr) {
        rank->num_reached++;
        if (rank->in_place)
            add_step(s, STEP_START, reached->flight);
        return true;
    }
    const tri_flight *flight = &program->flights[rank->num_started];
    if (rank->num_started == program->num_flights || flight->call != at.call ||
        flight->instr != at.instr)
        return false;
    add_step(s, STEP_START, (uint32_t)rank->num_started++);
    return true;
}

static void walk_turn(timing_steps *s, timing_rank *rank, const tri_turn *turn)
{
    const tri_program *program = rank->program;
    const tri_call *call = &program->calls[turn->call];
    bool update = program->segments[call->segment].action == TRI_ACTION_U;
    for (uint32_t i = turn->first; i < turn->end; i++) {
        const tri_instr *instr = &program->instrs[i];
        if (!tri_instr_leads(program, i) || !tri_call_runs(call, instr))
            continue;
        timeline_place at = {turn->call, i};
        land(s, rank, at);
        bool flies = program->num_flights > 0 && take_off(s, rank, at);
        if (instr->message == TRI_NONE)
            compute(s, rank, i, update);
        else if (!flies)
            add_step(s, STEP_RUN, instr->message);
    }
}

/* Whether a flight begins or lands within these calls. */
static bool has_flights(const timing_rank *rank, uint32_t end)
{
    const tri_program *p = rank->program;
    return (rank->num_landed < p->num_flights && p->landings[rank->num_landed].call < end) ||
           (rank->num_started < p->num_flights && p->flights[rank->num_started].from_call < end) ||
           (rank->num_reached < p->num_early && p->early[rank->num_reached].call < end);
}

static void walk_calls(timing_steps *s, const timing_run *run, timing_rank *rank)
{
    const tri_program *program = rank->program;
    tri_turn turn;
    begin(s);
    if (program->calls[rank->call].copy_from != TRI_NONE) {
        double bytes = 0;
        for (size_t k = 0; k < program->num_spaces; k++)
            bytes +=
                program->spaces[k].kind == TRI_SPACE_PARAM ? (double)program->spaces[k].bytes : 0;
        s->pending = run->c->costs.copy(run->c->costs.context, bytes);
        s->time[TRI_TIME_UPDATE] += s->pending;
    }
    begin_pace(s, run, rank);
    bool parted = run->c->watch.event && program->calls[rank->call].pair;
    for (uint32_t n = 0; tri_timeline_turn(program, rank->call, n, &turn); n++) {
        s->nth = turn.call - rank->call;
        walk_turn(s, rank, &turn);
        if (parted)
            add_step(s, STEP_TURN, 0);
    }
    end_pace(s, rank);
    add_step(s, STEP_END, 0);
    s->ready = true;
}

const timing_steps *tri_timing_steps(const timing_run *run, timing_rank *rank)
{
    const tri_program *program = rank->program;
    if (rank->call >= program->num_calls) { /* what is still under way */
        begin(&rank->own);
        land(&rank->own, rank, (timeline_place){(uint32_t)program->num_calls, 0});
        add_step(&rank->own, STEP_END, 0);
        return rank->own.failed ? NULL : &rank->own;
    }
    const tri_call *call = &program->calls[rank->call];
    bool plain = !call->pair && call->copy_from == TRI_NONE && !has_flights(rank, rank->call + 1);
    timing_steps *s =
        plain ? &rank->cached[4 * call->segment + 2 * call->first + call->last] : &rank->own;
    if (!plain || !s->ready)
        walk_calls(s, run, rank);
    return s->failed ? NULL : s;
}
