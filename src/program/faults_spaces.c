/* Deliberate faults of programs whose states rest elsewhere than on the device: the counterpart of
 * faults.c for fetch and stash. */
#include "program/messages.h"
#include "program/overlap.h"

static bool carries(const tri_instr *instr)
{
    return instr->op == TRI_OP_FETCH || instr->op == TRI_OP_STASH;
}

/* What a kernel of the device reads is not fetched: it gets the address on the host. */
static bool read_far_memory(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *fetch = &program->instrs[i];
        if (fetch->op != TRI_OP_FETCH || program->spaces[fetch->out[0].space].where ||
            program->spaces[fetch->in[0].space].where != TRI_WHERE_HOST)
            continue;
        for (size_t n = i + 1; n < program->num_instrs; n++)
            for (int j = 0; j < program->instrs[n].num_in; j++)
                if (!carries(&program->instrs[n]) &&
                    program->instrs[n].in[j].value == fetch->out[0].value) {
                    program->instrs[n].in[j] = fetch->in[0];
                    return true;
                }
    }
    return false;
}

/* The waits before this instruction move to the end: of all flights of the operator, since those of
 * a lane end in their order, and the wait for one is a wait for those before it. */
static void wait_at_end(tri_program *program, tri_op op, tri_landing before)
{
    for (size_t n = 0; n < program->num_flights; n++) {
        tri_landing *landing = &program->landings[n];
        if (landing->call != before.call || landing->instr != before.instr ||
            program->instrs[program->flights[landing->flight].instr].op != op)
            continue;
        landing->call = (uint32_t)program->num_calls;
        landing->instr = 0;
    }
    tri_sort_landings(program);
}

static bool reads_result(const tri_instr *reader, const tri_instr *message)
{
    for (int j = 0; j < reader->num_in; j++)
        if (reader->in[j].value == message->out[0].value)
            return true;
    return false;
}

/* The last instruction that waits for a flight of this operator: to read its result, or to have
 * the memory that it reads. */
static bool forget_wait(tri_program *program, tri_op op, bool for_result)
{
    for (size_t n = program->num_flights; n-- > 0;) {
        const tri_landing *landing = &program->landings[n];
        const tri_instr *message = &program->instrs[program->flights[landing->flight].instr];
        if (message->op != op || landing->call == program->num_calls ||
            reads_result(&program->instrs[landing->instr], message) != for_result)
            continue;
        wait_at_end(program, op, *landing);
        return true;
    }
    return false;
}

static bool unwaited_fetch(tri_program *program)
{
    return forget_wait(program, TRI_OP_FETCH, true);
}

static bool overwritten_stash(tri_program *program)
{
    return forget_wait(program, TRI_OP_STASH, false);
}

/* All that has to do with a state goes to another place in its space. */
static void move_state(tri_program *program, tri_id state, uint64_t offset)
{
    for (size_t v = 0; v < program->num_values; v++)
        if (program->values[v].state == state)
            program->home[v].offset = offset;
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        for (int o = 0; o < instr->num_in + instr->num_out; o++) {
            tri_operand *operand =
                o < instr->num_in ? &instr->in[o] : &instr->out[o - instr->num_in];
            if (operand->value != TRI_NONE && program->values[operand->value].state == state)
                operand->offset = offset;
        }
    }
}

/* The first state that lies elsewhere, after this one; TRI_NONE: no more. */
static tri_id next_elsewhere(const tri_program *program, tri_id after)
{
    for (tri_id s = after == TRI_NONE ? 0 : after + 1; s < program->num_states; s++)
        if (program->states[s].where != TRI_WHERE_DEVICE)
            return s;
    return TRI_NONE;
}

static bool pieces_overlap(tri_program *program)
{
    tri_id a = next_elsewhere(program, TRI_NONE);
    tri_id b = a == TRI_NONE ? TRI_NONE : next_elsewhere(program, a);
    if (b == TRI_NONE)
        return false;
    move_state(program, b, program->home[program->states[a].latest].offset);
    return true;
}

static bool no_whole_block(tri_program *program)
{
    tri_id state = next_elsewhere(program, TRI_NONE);
    if (state == TRI_NONE)
        return false;
    move_state(program, state, TRI_PROGRAM_ALIGN);
    return true;
}

/* A fetch is taken for a stash. */
static bool wrong_way(tri_program *program)
{
    for (size_t m = 0; m < program->num_messages; m++)
        if (program->messages[m].kind == TRI_MESSAGE_FETCH) {
            program->messages[m].kind = TRI_MESSAGE_STASH;
            program->instrs[program->messages[m].first].op = TRI_OP_STASH;
            return true;
        }
    return false;
}

static const tri_fault faults[] = {
    {"far-memory", "a kernel of the device reads an address on the host", read_far_memory},
    {"unwaited-fetch", "what is fetched is read while it is still on its way", unwaited_fetch},
    {"overwritten-stash", "what is stashed is overwritten while it is still on its way",
     overwritten_stash},
    {"shared-piece", "two states rest in the same piece of a file", pieces_overlap},
    {"part-of-a-block", "a state in a file does not begin with a block", no_whole_block},
    {"wrong-way", "a fetch goes away from the device", wrong_way},
};

const tri_fault *tri_space_fault_at(size_t i)
{
    return i < sizeof faults / sizeof *faults ? &faults[i] : NULL;
}
