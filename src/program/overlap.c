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
#include "program/overlap.h"

/* One flight while the timeline is walked. The memory of a message is the hull of its operands. */
typedef struct airborne {
    uint32_t flight;
    const tri_message *message;
    tri_range read, write;
    double work; /* done before it was started */
    uint32_t wait_call;
} airborne;

typedef struct planner {
    tri_program *program;
    const tri_overlap *how;
    airborne *air;
    size_t num_air, air_capacity;
    airborne *landed; /* that ended in one of the last calls */
    size_t num_landed, landed_capacity;
    double *call_work;       /* of each call: done before it */
    uint32_t last_recv_call; /* no receive is started before it: they keep their order */
    bool *made;              /* of each flight: it is worth while */
    size_t flights_capacity, made_capacity;
    bool no_memory;
    double work; /* done so far: floating-point operations, and bytes as so many of them */
    tr_error *err;
} planner;

/* A byte that moves takes about as long as this many operations. */
enum { FLOPS_OF_BYTE = 4 };

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

bool tri_ranges_meet(const tri_range *a, const tri_range *b)
{
    return a->space != TRI_NONE && a->space == b->space && a->instance == b->instance &&
           a->begin < b->end && b->begin < a->end;
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

static bool touches(const planner *p, const tri_call *call, const tri_instr *instr,
                    const airborne *a)
{
    uint32_t span = instr->message == TRI_NONE ? 1 : p->program->messages[instr->message].count;
    tri_range scratch = tri_scratch_range(instr);
    if (tri_ranges_meet(&scratch, &a->write) || tri_ranges_meet(&scratch, &a->read))
        return true;
    for (uint32_t n = 0; n < span; n++) {
        for (int j = 0; j < instr[n].num_in; j++) {
            tri_range in = tri_operand_range(p->program, call, &instr[n].in[j]);
            if (tri_ranges_meet(&in, &a->write))
                return true;
        }
        for (int k = 0; k < instr[n].num_out; k++) {
            tri_range out = tri_operand_range(p->program, call, &instr[n].out[k]);
            if (tri_ranges_meet(&out, &a->write) || tri_ranges_meet(&out, &a->read))
                return true;
        }
    }
    return false;
}

/* Whether a message reads its counts where one under way writes. Its rows may be behind that one in
 * its lane; the counts are wanted now. */
static bool counts_touch(const planner *p, const tri_call *call, const tri_message *message,
                         const airborne *a)
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
static void note_landed(planner *p, const airborne *a, uint32_t call)
{
    size_t kept = 0;
    for (size_t n = 0; n < p->num_landed; n++)
        if (p->landed[n].wait_call + most_ahead(p->program) >= call)
            p->landed[kept++] = p->landed[n];
    p->num_landed = kept;
    airborne *landed =
        tri_array_grow(p->landed, p->num_landed, &p->landed_capacity, sizeof *landed);
    p->no_memory |= !landed;
    if (!landed)
        return;
    p->landed = landed;
    landed[p->num_landed] = *a;
    landed[p->num_landed++].wait_call = call;
}

/* Ends a flight before this instruction; one that had nothing to hide behind is not made. */
static void land(planner *p, size_t n, uint32_t call, uint32_t instr)
{
    airborne *a = &p->air[n];
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
static bool worth_a_lane(const planner *p, const tri_message *message)
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
static bool call_touches(const planner *p, uint32_t c, uint32_t end, const airborne *a)
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
static uint32_t call_ahead(const planner *p, uint32_t c, uint32_t i, const airborne *a)
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

static tr_status take_off(planner *p, uint32_t c, uint32_t i)
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
    airborne *air = tri_array_grow(p->air, p->num_air, &p->air_capacity, sizeof *air);
    if (air)
        p->air = air;
    if (!flights || !made || !air)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    airborne *a = &p->air[p->num_air++];
    *a = (airborne){.flight = (uint32_t)program->num_flights, .message = m, .work = p->work};
    a->read = tri_extent_range(program, &program->calls[c], &m->reads);
    a->write = tri_extent_range(program, &program->calls[c], &m->writes);
    uint32_t from = c, from_instr = i;
    if (m->border && m->kind == TRI_MESSAGE_RECV) {
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

static tr_status walk_turn(planner *p, const tri_turn *s)
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
            bool behind = message && tri_message_behind(p->air[n].message, message);
            if (behind ? counts_touch(p, call, message, &p->air[n])
                       : touches(p, call, instr, &p->air[n]))
                land(p, n, s->call, i);
        }
        if (message && worth_a_lane(p, message))
            TRI_TRY(take_off(p, s->call, i));
        else if (!message)
            p->work += instr->cost.flops + FLOPS_OF_BYTE * instr->cost.bytes;
    }
    return TR_OK;
}

/* A call, or those of a pair. */
static tr_status walk_calls(planner *p, uint32_t c)
{
    const tri_program *program = p->program;
    const tri_call *call = &program->calls[c];
    tri_turn s;
    p->call_work[c] = p->work;
    for (size_t n = p->num_air; n-- > 0 && call->copy_from != TRI_NONE;)
        if (tri_range_of_params(program, &p->air[n].read) ||
            tri_range_of_params(program, &p->air[n].write))
            land(p, n, c, program->segments[call->segment].first); /* copied before it */
    for (uint32_t n = 0; tri_timeline_turn(program, c, n, &s); n++)
        TRI_TRY(walk_turn(p, &s));
    return TR_OK;
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

static void sort(const tri_program *program, tri_landing *landings, size_t num)
{
    for (size_t n = 0; n < num; n++)
        landings[n].place = tri_timeline_place(program, landings[n].call, landings[n].instr);
    qsort(landings, num, sizeof *landings, earlier);
}

void tri_sort_landings(tri_program *program)
{
    sort(program, program->landings, program->num_flights);
}

/* Flights that were not made go; what is left is also listed in the order of waiting. */
static tr_status list_landings(planner *p)
{
    tri_program *program = p->program;
    size_t kept = 0;
    for (size_t f = 0; f < program->num_flights; f++)
        if (p->made[f])
            program->flights[kept++] = program->flights[f];
    program->num_flights = kept;
    if (kept > 0)
        qsort(program->flights, kept, sizeof *program->flights, started_earlier);
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
    return TR_OK;
}

tr_status tri_plan_overlap(tri_program *program, const tri_overlap *how, tr_error *err)
{
    planner p = {.program = program, .how = how, .err = err};
    p.call_work = calloc(program->num_calls + 1, sizeof *p.call_work);
    tr_status status =
        p.call_work ? TR_OK
                    : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    for (uint32_t c = 0; c < program->num_calls && status == TR_OK;
         c += tri_calls_at_once(program, c))
        status = walk_calls(&p, c);
    while (p.num_air > 0)
        land(&p, p.num_air - 1, (uint32_t)program->num_calls, 0);
    if (status == TR_OK)
        status = list_landings(&p);
    free(p.air);
    free(p.landed);
    free(p.call_work);
    free(p.made);
    return status;
}
