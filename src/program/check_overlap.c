/* The last proof of the checker: no instruction touches the memory of a message under way.
 *
 * It walks the timeline as the executor does, with what is in the air, and looks at every operand
 * of every instruction. How the waits were found (overlap.c) it does not ask; that the records say
 * of the memory of messages what their instructions do is proven before (check_messages.c). */
#include <stdio.h>
#include <stdlib.h>

#include "program/messages.h"
#include "program/overlap.h"

/* A flight under way, and the memory that it is about. */
typedef struct message_aloft {
    uint32_t flight;
    tri_range reads, writes;
    uint64_t spaces; /* of these two, as bits */
} message_aloft;

typedef struct checker {
    const tri_program *program;
    uint64_t *spaces; /* that each instruction touches, as bits: most messages are elsewhere */
    message_aloft *air;
    size_t num_air;
    size_t next_flight, next_landing, next_early;
    tr_error *err;
} checker;

static const char *name_of(const tri_program *program, uint32_t instr)
{
    return program->values[tri_instr_value(&program->instrs[instr])].name;
}

static tr_status complain(const checker *c, uint32_t call, uint32_t instr, uint32_t flight,
                          const char *what)
{
    const tri_program *program = c->program;
    const tri_flight *f = &program->flights[flight];
    const tri_segment *segment = &program->segments[program->calls[call].segment];
    char where[24];
    return tri_fail(c->err, TR_ERROR_INPUT,
                    "segment %s, instruction %u (%s -> %s), micro-batch %u: %s the %s of %s that "
                    "instruction %u of call %u started, which is still under way",
                    tri_segment_text(program, segment, where), instr,
                    tri_op_get(program->instrs[instr].op)->name, name_of(program, instr),
                    program->calls[call].microbatch, what,
                    tri_op_get(program->instrs[f->instr].op)->name, name_of(program, f->instr),
                    f->instr, f->call);
}

static const tri_message *message_of(const tri_program *program, const message_aloft *a)
{
    return &program->messages[program->instrs[program->flights[a->flight].instr].message];
}

static void take_off(checker *c)
{
    const tri_program *program = c->program;
    message_aloft *a = &c->air[c->num_air++];
    a->flight = (uint32_t)c->next_flight++;
    const tri_call *call = &program->calls[program->flights[a->flight].call];
    const tri_message *message = message_of(program, a);
    a->reads = tri_extent_range(program, call, &message->reads);
    a->writes = tri_extent_range(program, call, &message->writes);
    a->spaces = tri_space_bit(a->reads.space) | tri_space_bit(a->writes.space);
}

/* Whether an operand lies on what a message writes, or, if it is written itself, reads. */
static bool meets(const tri_range *range, const message_aloft *a, bool writes)
{
    return tri_ranges_meet(range, &a->writes) || (writes && tri_ranges_meet(range, &a->reads));
}

/* Where each instruction may meet anything at all. */
static bool note_spaces(checker *c)
{
    const tri_program *program = c->program;
    c->spaces = calloc(program->num_instrs + 1, sizeof *c->spaces);
    for (size_t n = 0; c->spaces && n < program->num_instrs; n++) {
        const tri_instr *i = &program->instrs[n];
        c->spaces[n] = tri_space_bit(tri_scratch_range(i).space);
        for (int j = 0; j < i->num_in; j++)
            c->spaces[n] |= tri_space_bit(i->in[j].space);
        for (int k = 0; k < i->num_out; k++)
            c->spaces[n] |= tri_space_bit(i->out[k].space);
        for (int k = 0; k < 2 && i->message != TRI_NONE; k++)
            c->spaces[n] |= tri_space_bit(program->messages[i->message].counts[k].space);
    }
    return c->spaces != NULL;
}

static bool may_meet(const checker *c, uint32_t instr)
{
    for (size_t n = 0; n < c->num_air; n++)
        if (c->spaces[instr] & c->air[n].spaces)
            return true;
    return false;
}

static tr_status check_instr(const checker *c, uint32_t call, uint32_t instr)
{
    const tri_program *program = c->program;
    const tri_instr *i = &program->instrs[instr];
    tri_range in[TRI_MAX_IN], out[TRI_MAX_OUT], scratch = tri_scratch_range(i);
    if (!may_meet(c, instr))
        return TR_OK;
    for (int j = 0; j < i->num_in; j++)
        in[j] = tri_operand_range(program, &program->calls[call], &i->in[j]);
    for (int k = 0; k < i->num_out; k++)
        out[k] = tri_operand_range(program, &program->calls[call], &i->out[k]);
    for (size_t n = 0; n < c->num_air; n++) {
        if (!(c->spaces[instr] & c->air[n].spaces))
            continue;
        if (i->message != TRI_NONE &&
            tri_message_behind(&program->messages[i->message], message_of(program, &c->air[n]))) {
            /* behind it in its lane, but for its counts */
            const tri_message *own = &program->messages[i->message];
            for (int k = 0; k < 2; k++) {
                tri_range counts =
                    tri_extent_range(program, &program->calls[call], &own->counts[k]);
                if (meets(&counts, &c->air[n], false))
                    return complain(c, call, instr, c->air[n].flight, "reads its counts from");
            }
            continue;
        }
        for (int j = 0; j < i->num_in; j++)
            if (meets(&in[j], &c->air[n], false))
                return complain(c, call, instr, c->air[n].flight, "reads what belongs to");
        if (meets(&scratch, &c->air[n], true))
            return complain(c, call, instr, c->air[n].flight, "has its scratch on");
        for (int k = 0; k < i->num_out; k++)
            if (meets(&out[k], &c->air[n], true))
                return complain(c, call, instr, c->air[n].flight, "writes over");
    }
    return TR_OK;
}

/* Ends what is waited for before this instruction. */
static tr_status land(checker *c, uint32_t call, uint32_t instr)
{
    const tri_program *program = c->program;
    while (c->next_landing < program->num_flights) {
        const tri_landing *landing = &program->landings[c->next_landing];
        if (landing->call != call || landing->instr != instr)
            break;
        size_t n = 0;
        while (n < c->num_air && c->air[n].flight != landing->flight)
            n++;
        if (n == c->num_air)
            return tri_fail(c->err, TR_ERROR_INPUT,
                            "call %u waits before instruction %u for a message that has not been "
                            "started",
                            call, instr);
        c->air[n] = c->air[--c->num_air];
        c->next_landing++;
    }
    return TR_OK;
}

/* Parameters that a call begins with copying are at rest. */
static tr_status check_copy(checker *c, uint32_t call)
{
    const tri_program *program = c->program;
    uint32_t first = program->segments[program->calls[call].segment].first;
    if (program->calls[call].copy_from == TRI_NONE)
        return TR_OK;
    TRI_TRY(land(c, call, first));
    for (size_t n = 0; n < c->num_air; n++) {
        const message_aloft *a = &c->air[n];
        if (tri_range_of_params(program, &a->reads) || tri_range_of_params(program, &a->writes))
            return complain(c, call, first, c->air[n].flight,
                            "begins with copying what belongs to");
    }
    return TR_OK;
}

/* Receives that are started before this instruction, ahead of their place. */
static tr_status start_early(checker *c, uint32_t call, uint32_t instr)
{
    const tri_program *program = c->program;
    while (c->next_flight < program->num_flights) {
        const tri_flight *flight = &program->flights[c->next_flight];
        if (flight->from_call != call || flight->from_instr != instr || flight->call == call)
            break;
        TRI_TRY(check_instr(c, flight->call, flight->instr));
        take_off(c);
    }
    return TR_OK;
}

static tr_status check_turn(checker *c, const tri_turn *s)
{
    const tri_program *program = c->program;
    uint32_t call = s->call;
    for (uint32_t i = s->first; i < s->end; i++) {
        const tri_instr *instr = &program->instrs[i];
        bool leads = tri_instr_leads(program, i);
        if (!tri_call_runs(&program->calls[call], instr))
            continue;
        if (leads) {
            TRI_TRY(land(c, call, i));
            TRI_TRY(start_early(c, call, i));
        }
        const tri_landing *early = &program->early[c->next_early];
        if (c->next_early < program->num_early && early->call == call && early->instr == i) {
            c->next_early++; /* under way since long */
            continue;
        }
        TRI_TRY(check_instr(c, call, i));
        if (c->next_flight == program->num_flights)
            continue;
        const tri_flight *flight = &program->flights[c->next_flight];
        if (flight->call == call && flight->instr == i && instr->message != TRI_NONE && leads)
            take_off(c);
    }
    return TR_OK;
}

/* A call, or those of a pair. */
static tr_status check_calls(checker *c, uint32_t call)
{
    tri_turn s;
    TRI_TRY(check_copy(c, call));
    for (uint32_t n = 0; tri_timeline_turn(c->program, call, n, &s); n++)
        TRI_TRY(check_turn(c, &s));
    return TR_OK;
}

tr_status tri_check_overlap(const tri_program *program, tr_error *err)
{
    if (program->num_flights == 0)
        return TR_OK;
    checker c = {.program = program, .err = err};
    c.air = calloc(program->num_flights, sizeof *c.air);
    tr_status status = note_spaces(&c) && c.air
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the checker");
    for (uint32_t call = 0; call < program->num_calls && status == TR_OK;
         call += tri_calls_at_once(program, call))
        status = check_calls(&c, call);
    if (status == TR_OK)
        status = land(&c, (uint32_t)program->num_calls, 0);
    if (status == TR_OK && c.next_flight < program->num_flights)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "message %zu is to be started by instruction %u of call %u, which does "
                          "not run",
                          c.next_flight, program->flights[c.next_flight].instr,
                          program->flights[c.next_flight].call);
    if (status == TR_OK && c.next_early < program->num_early)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "the place of a message that is started early, "
                          "instruction %u of call %u, is never reached",
                          program->early[c.next_early].instr, program->early[c.next_early].call);
    if (status == TR_OK && c.num_air > 0)
        status = tri_fail(err, TR_ERROR_INPUT, "the %s of instruction %u is never waited for",
                          name_of(program, program->flights[c.air[0].flight].instr),
                          program->flights[c.air[0].flight].instr);
    free(c.air);
    free(c.spaces);
    return status;
}
