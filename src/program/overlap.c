/* Messages beside the computation: which may be under way while instructions run, and until when.
 *
 * A message is started where it stands, and waited for before the first later instruction, of this
 * or any later call, that touches its memory: reads what the message writes, or writes what it
 * reads or writes; at the latest at the end of the timeline. Which one that is follows from spaces,
 * instances and offsets, so it is decided here, once, and nothing is compared during a step.
 *
 * Receives of a pipeline are started ahead of their place, as early as their memory is free, but no
 * more than one action: then a message that comes early does not wait for its receiver.
 *
 * A message needs no wait for an earlier one of the same group: these have one lane, which keeps
 * their order. Messages that are small, or have little computation to hide behind, are not worth a
 * lane and stay where they stand: they have no flight. Sends between ranks of a pipeline always
 * have one: the computation never waits for a receiver. */
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"
#include "program/overlap_parts.h"

tri_range tri_operand_range(const tri_program *program, const tri_call *call,
                            const tri_operand *operand)
{
    tri_extent extent = tri_operand_extent(program, operand);
    return tri_extent_range(program, call, &extent);
}

tri_range tri_scratch_range(const tri_instr *instr)
{
    uint64_t begin = instr->scratch_offset;
    return (tri_range){instr->scratch_bytes ? TRI_SPACE_WORK : TRI_NONE, 0, begin,
                       begin + instr->scratch_bytes};
}

tri_range tri_extent_range(const tri_program *program, const tri_call *call,
                           const tri_extent *extent)
{
    if (extent->space == TRI_NONE)
        return (tri_range){.space = TRI_NONE};
    const tri_space *space = &program->spaces[extent->space];
    uint32_t instance =
        space->kind == TRI_SPACE_BATCH ? call->microbatch : call->frame[extent->space];
    return (tri_range){extent->space, instance, extent->offset, extent->offset + extent->bytes};
}

/* Whether these bytes are those of a message, as far as it writes (and reads). */
static bool meets(const overlap_planner *p, const tri_call *call, const tri_extent *extent,
                  const overlap_airborne *a, bool reads_too)
{
    bool possible =
        extent->space == a->write.space || (reads_too && extent->space == a->read.space);
    if (!possible || extent->space == TRI_NONE)
        return false;
    tri_range range = tri_extent_range(p->program, call, extent);
    return tri_ranges_meet(&range, &a->write) || (reads_too && tri_ranges_meet(&range, &a->read));
}

static bool touches(const overlap_planner *p, const tri_call *call, const tri_instr *instr,
                    const overlap_airborne *a)
{
    uint32_t span = instr->message == TRI_NONE ? 1 : p->program->messages[instr->message].count;
    tri_range scratch = tri_scratch_range(instr);
    if (tri_ranges_meet(&scratch, &a->write) || tri_ranges_meet(&scratch, &a->read))
        return true;
    for (uint32_t n = 0; n < span; n++) {
        const tri_extent *in = p->extents + p->first_extent[instr + n - p->program->instrs];
        const tri_extent *out = in + instr[n].num_in;
        for (int j = 0; j < instr[n].num_in; j++)
            if (meets(p, call, &in[j], a, false))
                return true;
        for (int k = 0; k < instr[n].num_out; k++)
            if (meets(p, call, &out[k], a, true))
                return true;
    }
    return false;
}

/* Whether a message reads its counts where one under way writes. Its rows may be behind that one in
 * its lane; the counts are wanted now. */
static bool counts_touch(const overlap_planner *p, const tri_call *call, const tri_message *message,
                         const overlap_airborne *a)
{
    for (int k = 0; k < 2; k++) {
        tri_range counts = tri_extent_range(p->program, call, &message->counts[k]);
        if (tri_ranges_meet(&counts, &a->write))
            return true;
    }
    return false;
}

/* Calls that a receive may be started ahead. A pair is several. */
enum { MOST_AHEAD = 4 };

static uint32_t most_ahead(const tri_program *program)
{
    return MOST_AHEAD + (program->num_pairs > 0 ? TRI_MOST_PAIRED : 0);
}

/* What ended recently: a receive must not be started before that where they share memory. */
static void note_landed(overlap_planner *p, const overlap_airborne *a, uint32_t call)
{
    size_t kept = 0;
    if (p->how->in_place) /* nobody asks */
        return;
    for (size_t n = 0; n < p->num_landed; n++)
        if (p->landed[n].wait_call + most_ahead(p->program) >= call)
            p->landed[kept++] = p->landed[n];
    p->num_landed = kept;
    overlap_airborne *landed =
        tri_array_grow(p->landed, p->num_landed, &p->landed_capacity, sizeof *landed);
    p->no_memory |= !landed;
    if (!landed)
        return;
    p->landed = landed;
    landed[p->num_landed] = *a;
    landed[p->num_landed++].wait_call = call;
}

/* Ends a flight before this instruction; one that had nothing to hide behind is not made. */
void tri_overlap_land(overlap_planner *p, size_t n, uint32_t call, uint32_t instr)
{
    overlap_airborne *a = &p->air[n];
    tri_flight *flight = &p->program->flights[a->flight];
    bool border = a->message->border, sends = a->message->kind == TRI_MESSAGE_SEND;
    double least = border ? 0 : (double)p->how->min_bytes * TRI_OVERLAP_FLOPS_OF_BYTE;
    double work = p->work - a->work;
    note_landed(p, a, call);
    flight->wait_call = call;
    flight->wait_instr = instr;
    bool early = flight->from_call < flight->call;
    p->made[a->flight] = (border && sends) || early || (work > 0 && work >= least);
    memmove(a, a + 1, (p->num_air - n - 1) * sizeof *a);
    p->num_air--;
}

/* Small ones are, too, where they would have to wait for larger ones before them. */
static bool worth_a_lane(const overlap_planner *p, const tri_message *message)
{
    bool behind = message->border;
    if (p->how->files_only && !(tri_message_carries(message) &&
                                tri_message_carry_lane(p->program, message) == TRI_CARRY_FILE))
        return false;
    for (size_t n = 0; n < p->num_air; n++)
        behind |= tri_message_behind(p->air[n].message, message);
    return behind || tri_message_bytes(message) >= p->how->min_bytes;
}

/* Whether an instruction of a call before `end` touches the memory of a message. */
static bool call_touches(const overlap_planner *p, uint32_t c, uint32_t end,
                         const overlap_airborne *a)
{
    const tri_call *call = &p->program->calls[c];
    for (uint32_t i = p->program->segments[call->segment].first; i < end; i++) {
        const tri_instr *instr = &p->program->instrs[i];
        if (tri_instr_leads(p->program, i) && tri_call_runs(call, instr) &&
            touches(p, call, instr, a))
            return true;
    }
    return false;
}

/* The first instruction that runs of a call or pair, and its call; or TRI_NONE. */
static uint32_t first_running(const tri_program *program, uint32_t c, uint32_t *call)
{
    tri_turn s;
    for (uint32_t n = 0; tri_timeline_turn(program, c, n, &s); n++)
        for (uint32_t i = s.first; i < s.end; i++)
            if (tri_instr_leads(program, i) &&
                tri_call_runs(&program->calls[s.call], &program->instrs[i])) {
                *call = s.call;
                return i;
            }
    return TRI_NONE;
}

/* The earliest call before which a receive can be started: its own, or the action before it. */
static uint32_t call_ahead(const overlap_planner *p, uint32_t c, uint32_t i,
                           const overlap_airborne *a)
{
    const tri_program *program = p->program;
    uint32_t best = c, most = most_ahead(program), least = c > most ? c - most : 0;
    least = p->last_recv_call > least ? p->last_recv_call : least;
    for (uint32_t k = c; k-- > least && !call_touches(p, c, i, a);) {
        const tri_segment *segment = &program->segments[program->calls[k].segment];
        if (segment->action == TRI_ACTION_U ||
            call_touches(p, k, segment->first + segment->count, a))
            break;
        if (program->calls[k].nth > 0)
            continue; /* before a pair, or not at all */
        uint32_t call;
        if (first_running(program, k, &call) != TRI_NONE)
            best = k;
        if (tri_action_computes(segment->action))
            break;
    }
    for (size_t n = 0; n < p->num_landed && best < c; n++)
        if (p->landed[n].wait_call >= best && (tri_ranges_meet(&p->landed[n].read, &a->write) ||
                                               tri_ranges_meet(&p->landed[n].write, &a->write)))
            best = c;
    for (size_t n = 0; n < p->num_air && best < c; n++)
        if (&p->air[n] != a && (tri_ranges_meet(&p->air[n].read, &a->write) ||
                                tri_ranges_meet(&p->air[n].write, &a->write)))
            best = c;
    return best;
}

tr_status tri_overlap_take_off(overlap_planner *p, uint32_t c, uint32_t i)
{
    tri_program *program = p->program;
    const tri_message *m = &program->messages[program->instrs[i].message];
    tri_flight *flights = tri_array_grow(program->flights, program->num_flights,
                                         &p->flights_capacity, sizeof *flights);
    if (flights)
        program->flights = flights;
    bool *made = tri_array_grow(p->made, program->num_flights, &p->made_capacity, sizeof *made);
    if (made)
        p->made = made;
    overlap_airborne *air = tri_array_grow(p->air, p->num_air, &p->air_capacity, sizeof *air);
    if (air)
        p->air = air;
    if (!flights || !made || !air)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    overlap_airborne *a = &p->air[p->num_air++];
    *a =
        (overlap_airborne){.flight = (uint32_t)program->num_flights, .message = m, .work = p->work};
    a->read = tri_extent_range(program, &program->calls[c], &m->reads);
    a->write = tri_extent_range(program, &program->calls[c], &m->writes);
    a->spaces = tri_space_bit(a->read.space) | tri_space_bit(a->write.space);
    uint32_t from = c, from_instr = i;
    if (m->border && m->kind == TRI_MESSAGE_RECV && !p->how->in_place) {
        uint32_t ahead = call_ahead(p, c, i, a);
        p->last_recv_call = ahead < c ? ahead : c + 1;
        from_instr = ahead < c ? first_running(program, ahead, &from) : i;
        a->work = ahead < c ? p->call_work[ahead] : a->work;
    }
    flights[program->num_flights++] =
        (tri_flight){.call = c,
                     .instr = i,
                     .from_call = from,
                     .from_instr = from_instr,
                     .place = tri_timeline_place(program, c, i),
                     .from_place = tri_timeline_place(program, from, from_instr)};
    return TR_OK;
}

bool tri_range_of_params(const tri_program *program, const tri_range *range)
{
    if (range->space == TRI_NONE)
        return false;
    tri_space_kind kind = program->spaces[range->space].kind;
    return kind == TRI_SPACE_PARAM || kind == TRI_SPACE_COPY;
}

bool tri_overlap_same_instance(const tri_program *program, const tri_call *call,
                               const tri_range *range)
{
    if (range->space == TRI_NONE)
        return false;
    bool batch = program->spaces[range->space].kind == TRI_SPACE_BATCH;
    return range->instance == (batch ? call->microbatch : call->frame[range->space]);
}

/* Whether a call's segment has anything where a message is under way. */
bool tri_overlap_may_touch(const overlap_planner *p, const tri_call *call,
                           const overlap_airborne *a)
{
    return (a->spaces & p->spaces[call->segment]) &&
           (tri_overlap_same_instance(p->program, call, &a->read) ||
            tri_overlap_same_instance(p->program, call, &a->write));
}

static tr_status walk_turn(overlap_planner *p, const tri_turn *s)
{
    const tri_program *program = p->program;
    const tri_call *call = &program->calls[s->call];
    for (uint32_t i = s->first; i < s->end; i++) {
        const tri_instr *instr = &program->instrs[i];
        const tri_message *message =
            instr->message == TRI_NONE ? NULL : &program->messages[instr->message];
        if (!tri_call_runs(call, instr) || !tri_instr_leads(program, i))
            continue;
        for (size_t n = p->num_air; n-- > 0;) {
            if (!(p->instr_spaces[i] & p->air[n].spaces) ||
                !tri_overlap_may_touch(p, call, &p->air[n]))
                continue;
            bool behind = message && tri_message_behind(p->air[n].message, message);
            if (behind ? counts_touch(p, call, message, &p->air[n])
                       : touches(p, call, instr, &p->air[n]))
                tri_overlap_land(p, n, s->call, i);
        }
        if (message && worth_a_lane(p, message))
            TRI_TRY(tri_overlap_take_off(p, s->call, i));
        else if (!message)
            p->work += tri_overlap_work(instr);
    }
    return TR_OK;
}

/* A call, or those of a pair. */
static tr_status walk_calls(overlap_planner *p, uint32_t c)
{
    const tri_program *program = p->program;
    const tri_call *call = &program->calls[c];
    tri_turn s;
    p->call_work[c] = p->work;
    size_t before = p->program->num_flights;
    tr_status status;
    if (tri_overlap_repeat(p, c, &status))
        return status;
    for (size_t n = p->num_air; n-- > 0 && call->copy_from != TRI_NONE;)
        if (tri_range_of_params(program, &p->air[n].read) ||
            tri_range_of_params(program, &p->air[n].write))
            tri_overlap_land(p, n, c,
                             program->segments[call->segment].first); /* copied before it */
    for (uint32_t n = 0; tri_timeline_turn(program, c, n, &s); n++)
        TRI_TRY(walk_turn(p, &s));
    return tri_overlap_note(p, c, before);
}

static int started_earlier(const void *a, const void *b)
{
    const tri_flight *x = a, *y = b;
    if (x->from_place != y->from_place)
        return x->from_place < y->from_place ? -1 : 1;
    bool x_early = x->call != x->from_call, y_early = y->call != y->from_call;
    if (x_early != y_early)
        return x_early ? -1 : 1; /* before the one that stands there */
    return x->place < y->place ? -1 : x->place > y->place;
}

static int earlier(const void *a, const void *b)
{
    const tri_landing *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->flight < y->flight ? -1 : x->flight > y->flight;
}

/* Sorts what is in order but for a few items that come a few places too late, as lists along the
 * timeline are; of others it is quick to find that they are not. */
static void sort_nearly(void *items, size_t num, size_t size,
                        int (*compare)(const void *, const void *))
{
    char *first = items, held[sizeof(tri_flight)];
    size_t moves = 0, most = 16 * num;
    for (size_t n = 1; n < num; n++) {
        size_t to = n;
        while (to > 0 && compare(first + (to - 1) * size, first + n * size) > 0)
            to--;
        moves += n - to;
        if (moves > most) {
            qsort(items, num, size, compare);
            return;
        }
        if (to == n)
            continue;
        memcpy(held, first + n * size, size);
        memmove(first + (to + 1) * size, first + to * size, (n - to) * size);
        memcpy(first + to * size, held, size);
    }
}

static void sort(const tri_program *program, tri_landing *landings, size_t num)
{
    for (size_t n = 0; n < num; n++)
        landings[n].place = tri_timeline_place(program, landings[n].call, landings[n].instr);
    sort_nearly(landings, num, sizeof *landings, earlier);
}

void tri_sort_landings(tri_program *program)
{
    sort(program, program->landings, program->num_flights);
}

/* Programs of thousands of calls have long lists, and stages of a pipeline one each. */
static void give_back(tri_program *program, size_t kept)
{
    tri_flight *flights = realloc(program->flights, (kept + 1) * sizeof *flights);
    tri_landing *early = realloc(program->early, (program->num_early + 1) * sizeof *early);
    program->flights = flights ? flights : program->flights;
    program->early = early ? early : program->early;
}

/* Flights that were not made go; what is left is also listed in the order of waiting. */
static tr_status list_landings(overlap_planner *p)
{
    tri_program *program = p->program;
    size_t kept = 0;
    for (size_t f = 0; f < program->num_flights; f++)
        if (p->made[f])
            program->flights[kept++] = program->flights[f];
    program->num_flights = kept;
    sort_nearly(program->flights, kept, sizeof *program->flights, started_earlier);
    program->landings = calloc(kept + 1, sizeof *program->landings);
    program->early = calloc(kept + 1, sizeof *program->early);
    if (!program->landings || !program->early || p->no_memory)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    for (uint32_t f = 0; f < kept; f++) {
        const tri_flight *flight = &program->flights[f];
        tri_message *message = &program->messages[program->instrs[flight->instr].message];
        program->landings[f] =
            (tri_landing){.call = flight->wait_call, .instr = flight->wait_instr, .flight = f};
        if (flight->from_call < flight->call)
            program->early[program->num_early++] =
                (tri_landing){.call = flight->call, .instr = flight->instr, .flight = f};
        if (!message->flight)
            message->flight = f + 1;
    }
    sort(program, program->early, program->num_early);
    tri_sort_landings(program);
    give_back(program, kept);
    return TR_OK;
}

/* Which spaces the operands, the scratch and the counts of messages of each instruction are in; of
 * the first of a message those of all, and so those of each segment. */
static bool note_spaces(overlap_planner *p)
{
    const tri_program *program = p->program;
    p->spaces = calloc(program->num_segments + 1, sizeof *p->spaces);
    p->instr_spaces = calloc(program->num_instrs + 1, sizeof *p->instr_spaces);
    if (!p->spaces || !p->instr_spaces)
        return false;
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        uint64_t *own = &p->instr_spaces[i];
        *own = tri_space_bit(tri_scratch_range(instr).space);
        for (int k = 0; k < instr->num_in + instr->num_out; k++)
            *own |= tri_space_bit(p->extents[p->first_extent[i] + (size_t)k].space);
        for (int k = 0; k < 2 && instr->message != TRI_NONE; k++)
            *own |= tri_space_bit(program->messages[instr->message].counts[k].space);
    }
    for (size_t i = program->num_instrs; i-- > 1;)
        if (!tri_instr_leads(program, (uint32_t)i))
            p->instr_spaces[i - 1] |= p->instr_spaces[i];
    for (size_t s = 0; s < program->num_segments; s++)
        for (uint32_t n = 0; n < program->segments[s].count; n++)
            p->spaces[s] |= p->instr_spaces[program->segments[s].first + n];
    return true;
}

/* Operands are looked at many times: as often as their segment is called, for each message. */
static bool note_extents(overlap_planner *p)
{
    const tri_program *program = p->program;
    size_t num = 0;
    p->first_extent = calloc(program->num_instrs + 1, sizeof *p->first_extent);
    for (size_t i = 0; i < program->num_instrs; i++)
        num += (size_t)program->instrs[i].num_in + program->instrs[i].num_out;
    p->extents = calloc(num + 1, sizeof *p->extents);
    num = 0;
    for (size_t i = 0; p->first_extent && p->extents && i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        p->first_extent[i] = num;
        for (int j = 0; j < instr->num_in; j++)
            p->extents[num++] = tri_operand_extent(program, &instr->in[j]);
        for (int k = 0; k < instr->num_out; k++)
            p->extents[num++] = tri_operand_extent(program, &instr->out[k]);
    }
    return p->first_extent && p->extents;
}

tr_status tri_plan_overlap(tri_program *program, const tri_overlap *how, tr_error *err)
{
    overlap_planner p = {.program = program, .how = how, .err = err};
    p.call_work = calloc(program->num_calls + 1, sizeof *p.call_work);
    tr_status status =
        p.call_work && note_extents(&p) && note_spaces(&p) && tri_overlap_repeats_init(&p)
            ? TR_OK
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    for (uint32_t c = 0; c < program->num_calls && status == TR_OK;
         c += tri_calls_at_once(program, c))
        status = walk_calls(&p, c);
    while (p.num_air > 0)
        tri_overlap_land(&p, p.num_air - 1, (uint32_t)program->num_calls, 0);
    if (status == TR_OK)
        status = list_landings(&p);
    free(p.air);
    free(p.landed);
    free(p.spaces);
    free(p.instr_spaces);
    free(p.extents);
    free(p.first_extent);
    free(p.call_work);
    free(p.made);
    tri_overlap_repeats_fini(&p);
    return status;
}
