/* See timing.h. Every lane is a queue whose order the programs fix, so that times do not depend on
 * the order in which this code looks at the ranks. */
#include "sim/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"
#include "sim/timing_parts.h"

const char *tri_time_kind_name(tri_time_kind kind)
{
    static const char *const names[TRI_NUM_TIME_KINDS] = {"products", "attention", "memory",
                                                          "update"};
    return names[kind];
}

tri_time_kind tri_instr_time_kind(const tri_program *program, uint32_t i)
{
    const tri_instr *instr = &program->instrs[i];
    if (strncmp(tri_op_get(instr->op)->name, "attention", 9) == 0)
        return TRI_TIME_ATTENTION;
    return tri_op_multiplies(instr->op) ? TRI_TIME_PRODUCTS : TRI_TIME_MEMORY;
}

/* ---- one rank ---- */

/* Tells whoever watches what the rank does from now on, for so long. */
static void tell(const timing_run *run, uint32_t class, tri_timing_event event, double seconds)
{
    const timing_rank *rank = &run->ranks[class];
    const tri_timing_watch *watch = &run->c->watch;
    if (!watch->event || rank->now + seconds <= rank->now)
        return;
    event.class = class;
    event.start = rank->now;
    event.end = rank->now + seconds;
    event.call = rank->call + rank->steps->steps[rank->step].nth;
    watch->event(watch->context, &event);
}

/* Which entry of exposed and hidden a message counts for. */
static size_t bin_of(const tri_program *program, const tri_message *message)
{
    return message->group == TRI_NONE ? program->num_groups : message->group;
}

/* The rank goes on when a message ends: what it waited, as far as the transfer took it, is exposed;
 * the rest of the transfer ran beside the computation. */
static void arrive(timing_run *run, uint32_t class, uint32_t message, double end)
{
    timing_rank *rank = &run->ranks[class];
    tri_rank_timing *out = &run->out->ranks[class];
    size_t bin = bin_of(rank->program, &rank->program->messages[message]);
    double waited = fmax(0, end - rank->now), seconds = rank->message_seconds[message];
    double exposed = fmin(waited, seconds);
    out->exposed[bin] += exposed;
    out->hidden[bin] += seconds - exposed;
    out->idle += waited - exposed;
    double arrived = rank->now + waited;
    tell(run, class, (tri_timing_event){.what = TRI_DOES_IDLE, .message = message},
         waited - exposed);
    rank->now += waited - exposed;
    tell(run, class, (tri_timing_event){.what = TRI_DOES_WAIT, .message = message},
         arrived - rank->now);
    rank->now = arrived;
}

/* False: the rank has to wait for others. */
static bool run_message(timing_run *run, uint32_t class, uint32_t message)
{
    timing_rank *rank = &run->ranks[class];
    if (!rank->issued) {
        rank->issued = true;
        rank->run_end = -1;
        tri_timing_issue(run, class, message, TRI_NONE);
    }
    if (rank->run_end < 0)
        return false;
    rank->issued = false;
    arrive(run, class, message, rank->run_end);
    return true;
}

static bool land(timing_run *run, uint32_t class, uint32_t flight)
{
    timing_rank *rank = &run->ranks[class];
    const tri_program *program = rank->program;
    if (rank->flight_end[flight] < 0)
        return false;
    arrive(run, class, program->instrs[program->flights[flight].instr].message,
           rank->flight_end[flight]);
    return true;
}

/* One step; its computing is done when the rank comes to it first. */
static bool run_step(timing_run *run, uint32_t class, const timing_step *step)
{
    timing_rank *rank = &run->ranks[class];
    const tri_program *program = rank->program;
    if (!rank->computed) {
        tell(run, class,
             (tri_timing_event){.what = TRI_DOES_COMPUTE, .first = step->first, .last = step->last},
             step->seconds);
        rank->now += step->seconds;
    }
    rank->computed = true;
    bool done = true;
    if (step->kind == STEP_RUN)
        done = run_message(run, class, step->which);
    else if (step->kind == STEP_LAND)
        done = land(run, class, step->which);
    else if (step->kind == STEP_START)
        tri_timing_issue(run, class, program->instrs[program->flights[step->which].instr].message,
                         step->which);
    rank->computed = !done;
    return done;
}

/* The calls that ran as one have ended. */
static void end_calls(timing_run *run, uint32_t class)
{
    timing_rank *rank = &run->ranks[class];
    tri_rank_timing *out = &run->out->ranks[class];
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++) {
        out->time[k] += rank->steps->time[k];
        out->redone_of[k] += rank->steps->redone[k];
        out->redone += rank->steps->redone[k];
    }
    out->end = rank->now;
    rank->steps = NULL;
    if (rank->call >= rank->program->num_calls) {
        rank->done = true;
        return;
    }
    uint32_t num = tri_calls_at_once(rank->program, rank->call);
    for (uint32_t c = 0; c < num; c++) {
        out->call_start[rank->call + c] = rank->call_began;
        out->call_end[rank->call + c] = rank->now;
    }
    rank->call += num;
}

/* Until the rank waits, or has ended. */
static void run_rank(timing_run *run, uint32_t class)
{
    timing_rank *rank = &run->ranks[class];
    while (!rank->done && !run->no_memory) {
        if (!rank->steps) {
            rank->steps = tri_timing_steps(run, rank);
            rank->step = 0;
            rank->call_began = rank->now;
            run->no_memory |= !rank->steps;
            continue;
        }
        if (!run_step(run, class, &rank->steps->steps[rank->step]))
            return;
        if (++rank->step == rank->steps->count)
            end_calls(run, class);
    }
}

void tri_timing_wake(timing_run *run, uint32_t class)
{
    if (run->ranks[class].queued)
        return;
    run->ranks[class].queued = true;
    run->stack[run->depth++] = class;
}

/* ---- all of them ---- */

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to time the programs");
}

/* A class before this one that runs the same instructions, which take it as long; or NULL. */
static const timing_rank *priced_alike(const timing_run *run, const timing_rank *rank)
{
    for (const timing_rank *other = run->ranks; run->c->costs.by_instr && other < rank; other++)
        if (other->program->instrs == rank->program->instrs &&
            other->program->num_instrs == rank->program->num_instrs)
            return other;
    return NULL;
}

static void price(timing_run *run, timing_rank *rank)
{
    const tri_program *program = rank->program;
    const tri_cost_table *costs = &run->c->costs;
    const timing_rank *alike = priced_alike(run, rank);
    if (alike) {
        memcpy(rank->kind, alike->kind, program->num_instrs * sizeof *rank->kind);
        memcpy(rank->instr_seconds, alike->instr_seconds,
               program->num_instrs * sizeof *rank->instr_seconds);
    }
    for (uint32_t i = 0; i < program->num_instrs && !alike; i++) {
        rank->kind[i] = (uint8_t)tri_instr_time_kind(program, i);
        if (program->instrs[i].message == TRI_NONE)
            rank->instr_seconds[i] = costs->instr(costs->context, program, i);
    }
    for (size_t m = 0; m < program->num_messages; m++)
        rank->message_seconds[m] = costs->message(costs->context, program, &program->messages[m]);
}

static bool make_rank(timing_run *run, uint32_t class)
{
    timing_rank *rank = &run->ranks[class];
    tri_rank_timing *out = &run->out->ranks[class];
    const tri_program *program = rank->program = run->c->programs[class];
    rank->in_place = run->c->in_place;
    rank->brake = run->c->pace.brake ? run->c->pace.brake[class] : 1;
    rank->now = out->host = run->c->host_s;
    rank->instr_seconds = calloc(program->num_instrs + 1, sizeof *rank->instr_seconds);
    rank->kind = calloc(program->num_instrs + 1, sizeof *rank->kind);
    rank->message_seconds = calloc(program->num_messages + 1, sizeof *rank->message_seconds);
    rank->group = calloc(program->num_groups + 1, sizeof *rank->group);
    rank->lane = calloc(program->num_messages + 1, sizeof *rank->lane);
    rank->mate = calloc(program->num_messages + 1, sizeof *rank->mate);
    rank->flight_end = calloc(program->num_flights + 1, sizeof *rank->flight_end);
    rank->cached = calloc(4 * program->num_segments + 1, sizeof *rank->cached);
    out->exposed = calloc(program->num_groups + 1, sizeof *out->exposed);
    out->hidden = calloc(program->num_groups + 1, sizeof *out->hidden);
    out->call_start = calloc(program->num_calls + 1, sizeof *out->call_start);
    out->call_end = calloc(program->num_calls + 1, sizeof *out->call_end);
    if (!rank->instr_seconds || !rank->kind || !rank->message_seconds || !rank->group ||
        !rank->lane || !rank->mate || !rank->flight_end || !rank->cached || !out->exposed ||
        !out->hidden || !out->call_start || !out->call_end)
        return false;
    for (size_t f = 0; f < program->num_flights; f++)
        rank->flight_end[f] = -1;
    price(run, rank);
    return true;
}

static void free_rank(timing_rank *rank)
{
    for (size_t s = 0; rank->cached && s < 4 * rank->program->num_segments; s++)
        free(rank->cached[s].steps);
    for (uint32_t l = 0; rank->lanes && l < rank->num_lanes; l++)
        free(rank->lanes[l].issued);
    free(rank->own.steps);
    free(rank->cached);
    free(rank->lanes);
    free(rank->flight_end);
    free(rank->mate);
    free(rank->lane);
    free(rank->group);
    free(rank->message_seconds);
    free(rank->kind);
    free(rank->instr_seconds);
}

static tr_status make_ranks(timing_run *run, tr_error *err)
{
    uint32_t num = run->c->num_classes;
    run->ranks = calloc(num + 1, sizeof *run->ranks);
    run->stack = calloc(num + 1, sizeof *run->stack);
    run->out->ranks = calloc(num + 1, sizeof *run->out->ranks);
    if (!run->ranks || !run->stack || !run->out->ranks)
        return no_memory(err);
    run->out->num_classes = num;
    for (uint32_t k = 0; k < num; k++)
        if (!make_rank(run, k))
            return no_memory(err);
    return tri_timing_find_lanes(run, err);
}

static tr_status run_all(timing_run *run, tr_error *err)
{
    for (uint32_t k = run->c->num_classes; k-- > 0;)
        tri_timing_wake(run, k);
    while (run->depth > 0 && !run->no_memory) {
        uint32_t class = run->stack[--run->depth];
        run->ranks[class].queued = false;
        tri_timing_settle(run, class);
        run_rank(run, class);
    }
    for (uint32_t k = 0; k < run->c->num_classes && !run->no_memory; k++) {
        run->out->seconds = fmax(run->out->seconds, run->out->ranks[k].end);
        if (!run->ranks[k].done)
            return tri_fail(err, TR_ERROR_INTERNAL,
                            "the programs wait for each other: class %u stands at call %u", k,
                            run->ranks[k].call);
    }
    return run->no_memory ? no_memory(err) : TR_OK;
}

tr_status tri_timing_run(const tri_timing_case *c, tri_timing *timing, tr_error *err)
{
    timing_run run = {.c = c, .out = timing};
    *timing = (tri_timing){0};
    tr_status status = make_ranks(&run, err);
    if (status == TR_OK)
        status = run_all(&run, err);
    for (uint32_t k = 0; run.ranks && k < c->num_classes; k++)
        if (run.ranks[k].program)
            free_rank(&run.ranks[k]);
    free(run.ranks);
    free(run.groups);
    free(run.members);
    free(run.stack);
    if (status != TR_OK)
        tri_timing_fini(timing);
    return status;
}

void tri_timing_fini(tri_timing *timing)
{
    for (uint32_t k = 0; timing->ranks && k < timing->num_classes; k++) {
        free(timing->ranks[k].exposed);
        free(timing->ranks[k].hidden);
        free(timing->ranks[k].call_start);
        free(timing->ranks[k].call_end);
    }
    free(timing->ranks);
    *timing = (tri_timing){0};
}
