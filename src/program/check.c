/* The checker: proves a program by running it on names instead of numbers.
 *
 * It keeps, for every byte of every space, which value of which micro-batch lies there, and walks
 * the timeline. The memory plan is not trusted: only what was written where, and when. What it
 * proves, each with an error of its own:
 *   1  operands lie inside their space and are aligned
 *   2  a read finds exactly the value, of exactly the micro-batch, that the graph wants
 *   3  inputs are only read
 *   4  an output lies on an input only where the operator works in place
 *   5  accumulators are overwritten by the first contribution of a step and by no other, and hold
 *      the contributions of all micro-batches when they are read
 *   6  an update replaces the newest version of a state, in its own place; nobody reads the old one
 *   7  frames are used between their birth and their end, by one micro-batch at a time
 *   8  shapes and types fit the operator table, and no operand is missing
 *   9  every micro-batch that runs a segment of a chunk runs all of them, each once (without a
 *      pipeline: every micro-batch); every parameter with a gradient is updated
 *  10  what the host reads has been written
 *  11  nothing touches the memory of a message under way (check_overlap.c)
 *  12  what is made once for all micro-batches depends on none of them
 *  13  the records of messages say what their instructions do (check_messages.c)
 *  14  instructions compute on memory of their own place, fetch and stash go one place on
 *  15  messages of varying counts keep to their rooms, and an update that follows rows without room
 *      writes nothing (check_rooms.c)
 *  16  the list of a pair has every instruction of its calls once, those of each half in order */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/check_parts.h"
#include "program/messages.h"
#include "program/overlap.h"

tr_status tri_checker_complain(const tri_checker *c, const char *format, ...)
{
    char reason[640];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!c->call)
        return tri_fail(c->err, TR_ERROR_INPUT, "%s", reason);
    const tri_segment *segment = &c->program->segments[c->call->segment];
    char action[24];
    tri_segment_text(c->program, segment, action);
    if (!c->instr)
        return tri_fail(c->err, TR_ERROR_INPUT, "call %td, segment %s, micro-batch %u: %s",
                        c->call - c->program->calls, action, c->call->microbatch, reason);
    tri_id out = tri_instr_value(c->instr);
    return tri_fail(c->err, TR_ERROR_INPUT,
                    "segment %s, instruction %td (%s -> %s), micro-batch %u: %s", action,
                    c->instr - c->program->instrs, tri_op_get(c->instr->op)->name,
                    out < c->program->num_values ? c->program->values[out].name : "?",
                    c->call->microbatch, reason);
}

size_t tri_checker_find(const tri_check_region *r, uint64_t address)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->pieces[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

tr_status tri_checker_put(const tri_checker *c, tri_check_region *r, tri_check_piece new_piece)
{
    size_t from = tri_checker_find(r, new_piece.begin), to = from;
    if (new_piece.begin == new_piece.end) /* this rank's piece of a dim is empty */
        return TR_OK;
    while (to < r->count && r->pieces[to].begin < new_piece.end)
        to++;
    if (to == from) {
        tri_check_piece *grown = tri_array_grow(r->pieces, r->count, &r->capacity, sizeof *grown);
        if (!grown)
            return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
        r->pieces = grown;
    }
    memmove(r->pieces + from + 1, r->pieces + to, (r->count - to) * sizeof *r->pieces);
    r->count += 1 - (to - from);
    r->pieces[from] = new_piece;
    return TR_OK;
}

static tri_id first_version(const tri_program *program, tri_id value)
{
    for (size_t v = 0; v < program->num_values; v++)
        if (program->values[v].state == program->values[value].state &&
            program->values[v].producer == TRI_NONE)
            return (tri_id)v;
    return value;
}

/* How many contributions an accumulator must hold when it is read: all that the timeline makes,
 * gradients with several updates in a step their share. 0 for states that are not accumulators. */
static void find_contributions(tri_checker *c)
{
    const tri_program *program = c->program;
    for (size_t n = 0; n < program->num_calls; n++) {
        if (program->calls[n].segment >= program->num_segments)
            continue; /* found when it is its turn */
        const tri_segment *segment = &program->segments[program->calls[n].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            for (int k = 0; k < program->instrs[i].num_out; k++) {
                tri_id value = program->instrs[i].out[k].value;
                tri_write write = program->instrs[i].write[k];
                if (value >= program->num_values || program->values[value].state == TRI_NONE ||
                    (write != TRI_WRITE_START && write != TRI_WRITE_ADD))
                    continue;
                c->contributions[program->values[value].state]++;
                c->sums[value] = true;
            }
    }
    for (size_t s = 0; s < program->num_states && program->num_updates > 1; s++)
        if (program->states[s].kind == TRI_STATE_GRAD)
            c->contributions[s] /= program->num_updates;
}

static uint32_t last_use(const tri_checker *c, size_t space, uint32_t microbatch)
{
    return c->last_use[space * c->program->num_microbatches + microbatch];
}

/* Takes and gives back the frames of a call. */
static tr_status change_frames(const tri_checker *c, bool before)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (space->kind != TRI_SPACE_FRAME || !space->users[c->call->segment] ||
            (before ? space->born != c->call->segment
                    : last_use(c, s, c->call->microbatch) != (size_t)(c->call - program->calls)))
            continue;
        uint32_t instance = c->call->frame[s];
        if (instance >= space->num_instances)
            return tri_checker_complain(c, "uses %s number %u, but there are %u", space->name,
                                        instance, space->num_instances);
        tri_check_region *r = &c->regions[s][instance];
        if (before && r->holder != TRI_NONE)
            return tri_checker_complain(c, "takes %s number %u, which micro-batch %u still holds",
                                        space->name, instance, r->holder);
        r->holder = before ? c->call->microbatch : TRI_NONE;
        r->count = 0;
    }
    return TR_OK;
}

/* Asynchronous pipelines: the parameters that a call works on may be a copy of others. */
static tr_status copy_version(const tri_checker *c)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces && c->call->copy_from != TRI_NONE; s++) {
        const tri_space *space = &program->spaces[s];
        if (space->kind != TRI_SPACE_PARAM && space->kind != TRI_SPACE_COPY)
            continue;
        uint32_t from = c->call->copy_from, to = c->call->frame[s];
        if (from >= space->num_instances || to >= space->num_instances)
            return tri_checker_complain(c, "copies parameters between instances that do not exist");
        c->regions[s][to].count = 0;
        for (size_t i = 0; i < c->regions[s][from].count; i++)
            TRI_TRY(tri_checker_put(c, &c->regions[s][to], c->regions[s][from].pieces[i]));
    }
    return TR_OK;
}

/* ... and what an update made is what the calls after it find in the place of the old version. */
static void renew_versions(const tri_checker *c)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces; s++) {
        tri_space_kind kind = program->spaces[s].kind;
        if (kind != TRI_SPACE_PARAM && kind != TRI_SPACE_COPY && kind != TRI_SPACE_OPTIM)
            continue;
        tri_check_region *r = &c->regions[s][kind == TRI_SPACE_OPTIM ? 0 : c->call->frame[s]];
        for (size_t i = 0; i < r->count; i++)
            r->pieces[i].value = first_version(program, r->pieces[i].value);
    }
}

/* The calls of a pair stand together, and its list has all that they do, in order. */
static tr_status check_pair(const tri_checker *c)
{
    const tri_program *program = c->program;
    const tri_pair *pair = &program->pairs[c->call->pair - 1];
    size_t left = (size_t)(program->calls + program->num_calls - c->call);
    uint32_t next[TRI_MOST_PAIRED], half = 0;
    for (uint32_t n = 0; n < pair->num_calls; n++) {
        if (n >= left || c->call[n].pair != c->call->pair || c->call[n].nth != n ||
            c->call[n].segment != pair->segment[n])
            return tri_checker_complain(c, "the calls of its pair do not stand side by side");
        next[n] = program->segments[pair->segment[n]].first;
    }
    for (uint32_t k = 0; k < pair->num_turns; k++) {
        const tri_turn *s = &pair->list[k];
        const tri_segment *own = &program->segments[pair->segment[s->call]];
        if (s->first != next[s->call] || s->end < s->first || s->end > own->first + own->count)
            return tri_checker_complain(c,
                                        "the list of its pair goes on with instruction %u, not "
                                        "with %u",
                                        s->first, next[s->call]);
        if (s->end < own->first + own->count && !tri_instr_leads(program, s->end))
            return tri_checker_complain(c,
                                        "the list of its pair cuts the message of instruction "
                                        "%u in two",
                                        s->end);
        next[s->call] = s->end;
        if (s->call > 0 && s->call < half)
            return tri_checker_complain(c, "the list of its pair has calls of its backward in the "
                                           "wrong order");
        half = s->call > half ? s->call : half;
    }
    for (uint32_t n = 0; n < pair->num_calls; n++)
        if (next[n] !=
            program->segments[pair->segment[n]].first + program->segments[pair->segment[n]].count)
            return tri_checker_complain(c, "the list of its pair lacks instruction %u", next[n]);
    return TR_OK;
}

static tr_status check_turn(tri_checker *c, const tri_turn *s)
{
    c->call = &c->program->calls[s->call];
    for (uint32_t i = s->first; i < s->end; i++) {
        c->instr = &c->program->instrs[i];
        if (tri_call_runs(c->call, c->instr))
            TRI_TRY(tri_checker_instr(c));
    }
    c->instr = NULL;
    return TR_OK;
}

/* Of a call, or of all those of a pair: their frames are taken before, and given back after. */
static tr_status change_all_frames(tri_checker *c, const tri_call *first, uint32_t num, bool before)
{
    for (uint32_t n = 0; n < num; n++) {
        c->call = first + n;
        TRI_TRY(change_frames(c, before));
    }
    c->call = first;
    return TR_OK;
}

static tr_status check_calls(tri_checker *c)
{
    const tri_program *program = c->program;
    const tri_call *first = c->call;
    uint32_t num = tri_calls_at_once(program, (size_t)(first - program->calls));
    if (first->segment >= program->num_segments)
        return tri_fail(c->err, TR_ERROR_INPUT, "call %td names a segment that does not exist",
                        first - program->calls);
    if (first->pair)
        TRI_TRY(check_pair(c));
    for (uint32_t n = 0; n < num; n++) {
        c->call = first + n;
        if (c->call->microbatch >= program->num_microbatches)
            return tri_checker_complain(c, "there are only %u micro-batches",
                                        program->num_microbatches);
    }
    TRI_TRY(change_all_frames(c, first, num, true));
    TRI_TRY(copy_version(c));
    tri_turn s;
    for (uint32_t n = 0; tri_timeline_turn(program, (size_t)(first - program->calls), n, &s); n++)
        TRI_TRY(check_turn(c, &s));
    c->call = first;
    const tri_call *next = first + num;
    if (program->num_updates > 0 && program->segments[first->segment].action == TRI_ACTION_U) {
        c->updated = true;
        if (next < program->calls + program->num_calls &&
            program->segments[next->segment].action != TRI_ACTION_U)
            renew_versions(c);
    }
    return change_all_frames(c, first, num, false);
}

static uint32_t count_calls(const tri_checker *c, uint32_t segment, uint32_t microbatch)
{
    return c->runs[segment * c->program->num_microbatches + microbatch];
}

/* Every segment runs once for every micro-batch; the update once. In a pipeline a chunk need not
 * see every micro-batch (some take another route), but runs its segments for the same ones. */
static tr_status check_coverage(const tri_checker *c)
{
    const tri_program *program = c->program;
    for (uint32_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        bool once = segment->action == TRI_ACTION_U;
        char name[24];
        if (once && program->num_updates > 0)
            continue; /* as often as the schedule has updates */
        uint32_t leader = s;
        for (uint32_t o = 0; o < s && program->num_chunks > 1 && !once; o++)
            if (program->segments[o].chunk == segment->chunk && leader == s)
                leader = o;
        for (uint32_t m = 0; m < (once ? 1 : program->num_microbatches); m++) {
            uint32_t calls = count_calls(c, s, m), wanted = 1;
            if (program->num_chunks > 1 && !once)
                wanted = leader == s ? calls > 0 : count_calls(c, leader, m);
            if (calls != wanted)
                return tri_checker_complain(c,
                                            "segment %s runs %u times for micro-batch %u, not %s",
                                            tri_segment_text(program, segment, name), calls, m,
                                            wanted == 1 ? "once" : "never");
        }
    }
    return TR_OK;
}

static tr_status check_end(tri_checker *c)
{
    const tri_program *program = c->program;
    c->call = NULL;
    TRI_TRY(check_coverage(c));
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        const tri_operand *home = &program->home[v];
        bool last_param = value->state != TRI_NONE &&
                          (program->states[value->state].kind == TRI_STATE_PARAM ||
                           program->states[value->state].kind == TRI_STATE_COPY) &&
                          program->states[value->state].latest == v;
        if (home->space == TRI_NONE || !(value->output || last_param) ||
            tri_value_bytes(value) == 0)
            continue;
        const tri_check_region *r = &c->regions[home->space][0];
        size_t i = tri_checker_find(r, home->offset);
        if (i == r->count || r->pieces[i].value != v)
            return tri_checker_complain(c,
                                        last_param
                                            ? "%s is never updated, though it has a gradient"
                                            : "%s is never written, though the host reads it",
                                        value->name);
    }
    return TR_OK;
}

/* What lies in memory when a step begins: inputs, parameters, moments and caches. */
static tr_status put_initial(tri_checker *c)
{
    const tri_program *program = c->program;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        const tri_operand *home = &program->home[v];
        bool kept =
            value->state != TRI_NONE && (program->states[value->state].kind == TRI_STATE_PARAM ||
                                         program->states[value->state].kind == TRI_STATE_COPY ||
                                         program->states[value->state].kind == TRI_STATE_OPTIM ||
                                         program->states[value->state].kind == TRI_STATE_CACHE);
        if (home->space >= program->num_spaces || value->producer != TRI_NONE ||
            !(value->kind == TRI_VALUE_INPUT || kept))
            continue;
        uint32_t num = kept ? 1 : program->spaces[home->space].num_instances;
        for (uint32_t m = 0; tri_value_bytes(value) > 0 && m < num; m++)
            TRI_TRY(tri_checker_put(c, &c->regions[home->space][m],
                                    (tri_check_piece){.begin = home->offset,
                                                      .end = home->offset + tri_value_bytes(value),
                                                      .value = (tri_id)v,
                                                      .microbatch = m}));
    }
    return TR_OK;
}

/* When each micro-batch is done with each frame, and how often it runs each segment. */
static void note_calls(tri_checker *c)
{
    const tri_program *program = c->program;
    uint32_t num = program->num_microbatches;
    for (uint32_t n = 0; n < program->num_calls; n++) {
        const tri_call *call = &program->calls[n];
        if (call->segment >= program->num_segments || call->microbatch >= num)
            continue; /* found when it is its turn */
        c->runs[call->segment * num + call->microbatch]++;
        for (size_t s = 0; s < program->num_spaces; s++)
            if (program->spaces[s].kind == TRI_SPACE_FRAME &&
                program->spaces[s].users[call->segment])
                c->last_use[s * num + call->microbatch] = n;
    }
}

static tr_status walk(tri_checker *c)
{
    const tri_program *program = c->program;
    size_t num = program->num_microbatches;
    c->last_use = calloc(program->num_spaces * num + 1, sizeof *c->last_use);
    c->runs = calloc(program->num_segments * num + 1, sizeof *c->runs);
    c->contributions = calloc(program->num_states + 1, sizeof *c->contributions);
    c->sums = calloc(program->num_values + 1, sizeof *c->sums);
    c->regions = calloc(program->num_spaces + 1, sizeof(tri_check_region *));
    c->bytes = calloc(program->num_values + 1, sizeof *c->bytes);
    c->fits = calloc(program->num_instrs + 1, sizeof *c->fits);
    if (!c->contributions || !c->sums || !c->regions || !c->last_use || !c->runs || !c->bytes ||
        !c->fits)
        return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
    for (size_t v = 0; v < program->num_values; v++)
        c->bytes[v] = tri_value_bytes(&program->values[v]);
    find_contributions(c);
    note_calls(c);
    for (size_t s = 0; s < program->num_spaces; s++) {
        uint32_t num = program->spaces[s].num_instances;
        c->regions[s] = calloc(num + 1, sizeof *c->regions[s]);
        if (!c->regions[s])
            return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
        for (uint32_t i = 0; i < num; i++)
            c->regions[s][i].holder = TRI_NONE;
    }
    TRI_TRY(put_initial(c));
    for (size_t i = 0; i < program->num_calls; i += tri_calls_at_once(program, i)) {
        c->call = &program->calls[i];
        TRI_TRY(check_calls(c));
    }
    return check_end(c);
}

tr_status tri_program_check(const tri_program *program, tr_error *err)
{
    tri_checker c = {.program = program, .err = err};
    tr_status status = walk(&c);
    for (size_t s = 0; c.regions && s < program->num_spaces; s++) {
        for (uint32_t i = 0; c.regions[s] && i < program->spaces[s].num_instances; i++)
            free(c.regions[s][i].pieces);
        free(c.regions[s]);
    }
    free(c.contributions);
    free(c.sums);
    free(c.bytes);
    free(c.fits);
    free(c.last_use);
    free(c.runs);
    free(c.regions);
    TRI_TRY(status);
    TRI_TRY(tri_check_messages(program, err));
    TRI_TRY(tri_check_rooms(program, err));
    return tri_check_overlap(program, err);
}
