/* Deliberate faults of messages; faults.c has the others. */
#include "program/messages.h"

/* The last rank of a group is left out. */
static bool missing_member(tri_program *program)
{
    if (program->num_groups == 0)
        return false;
    program->groups[0].size--;
    program->groups[0].level[0].size--;
    return true;
}

/* The first message reads and sends what lies behind its operands. */
static bool other_bytes(tri_program *program)
{
    for (size_t m = 0; m < program->num_messages; m++) {
        tri_message *message = &program->messages[m];
        if (message->send.space == TRI_NONE)
            continue;
        message->send.offset += TRI_PROGRAM_ALIGN;
        message->reads.offset += TRI_PROGRAM_ALIGN;
        return true;
    }
    return false;
}

/* A member of a message has more than its instructions say. */
static bool wrong_counts(tri_program *program)
{
    if (program->num_messages == 0)
        return false;
    tri_message *message = &program->messages[0];
    bool gathers = message->recv_parts.kind != TRI_DIVISION_NONE;
    tri_division *parts = gathers ? &message->recv_parts : &message->send_parts;
    if (parts->kind == TRI_DIVISION_FLAT)
        parts->flat.total += tri_flat_unit(&parts->flat);
    else if (parts->kind == TRI_DIVISION_CUT || parts->kind == TRI_DIVISION_EVEN)
        parts->scale++;
    else
        message->elements++;
    return true;
}

static tri_message *message_of(tri_program *program, tri_message_kind kind)
{
    for (size_t m = 0; m < program->num_messages; m++)
        if (program->messages[m].kind == kind)
            return &program->messages[m];
    return NULL;
}

/* This rank sends to another than the one that waits for it. */
static bool wrong_distance(tri_program *program)
{
    tri_message *message = message_of(program, TRI_MESSAGE_SHIFT);
    if (message)
        message->peer++;
    return message != NULL;
}

/* Of what it receives, the rank names another sender than the ring does. */
static bool wrong_source(tri_program *program)
{
    tri_message *message = message_of(program, TRI_MESSAGE_SHIFT);
    if (!message || program->groups[message->group].size < 3)
        return false;
    message->recv_parts.place = message->send_parts.place;
    return true;
}

/* The first sum of a message becomes the largest of its terms. */
static bool other_join(tri_program *program)
{
    tri_message *message = message_of(program, TRI_MESSAGE_ALL_REDUCE);
    if (message)
        message->how = message->how == TRI_PARTIAL_MAX ? TRI_PARTIAL_SUM : TRI_PARTIAL_MAX;
    return message != NULL;
}

static tri_message *varying_message(tri_program *program)
{
    for (size_t m = 0; m < program->num_messages; m++)
        if (tri_message_varies(&program->messages[m]))
            return &program->messages[m];
    return NULL;
}

/* The rooms of the message are larger than those of its buffers. */
static bool small_room(tri_program *program)
{
    tri_message *message = varying_message(program);
    if (message)
        message->send_parts.scale += message->send_parts.row;
    return message != NULL;
}

static tri_instr *instr_of(tri_program *program, tri_op op)
{
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].op == op)
            return &program->instrs[i];
    return NULL;
}

/* More rows are let through than there is room for. */
static bool loose_counts(tri_program *program)
{
    tri_instr *fit = varying_message(program) ? instr_of(program, TRI_OP_FIT_ROOMS) : NULL;
    if (fit)
        fit->attr.message.room.rows++;
    return fit != NULL;
}

/* The host promises too little of the counts that it plans. */
static bool loose_plan(tri_program *program)
{
    const tri_message *message = varying_message(program);
    tri_id counts = message ? program->instrs[message->first].in[1].value : TRI_NONE;
    if (counts == TRI_NONE || program->values[counts].most == 0)
        return false;
    program->values[counts].most++;
    return true;
}

/* The message reads the counts as they were before they were fitted. */
static bool unfitted_counts(tri_program *program)
{
    tri_message *message = varying_message(program);
    tri_instr *fit = message ? instr_of(program, TRI_OP_FIT_ROOMS) : NULL;
    if (!fit)
        return false;
    program->instrs[message->first].in[1] = fit->in[0];
    message->counts[0] = tri_operand_extent(program, &fit->in[0]);
    return true;
}

static bool unread_overflow(tri_program *program)
{
    tri_instr *finish = varying_message(program) ? instr_of(program, TRI_OP_FINISH) : NULL;
    if (finish)
        finish->attr.finish.stops = 0;
    return finish != NULL;
}

/* A half of a pair has two turns in the wrong order. */
static bool swap_turns(tri_program *program)
{
    for (size_t p = 0; p < program->num_pairs; p++) {
        tri_pair *pair = &program->pairs[p];
        for (uint32_t n = 0; n + 2 < pair->num_turns; n++) {
            tri_turn first = pair->list[n];
            if (pair->list[n + 2].call != first.call)
                continue;
            pair->list[n] = pair->list[n + 2];
            pair->list[n + 2] = first;
            return true;
        }
    }
    return false;
}

/* All that the backward of a pair has in `work` lies where its forward has its own. */
static bool halves_in_one_place(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs && program->pair_floor > 0; i++)
        for (int o = 0; o < program->instrs[i].num_in + program->instrs[i].num_out; o++) {
            tri_instr *instr = &program->instrs[i];
            tri_operand *at = o < instr->num_in ? &instr->in[o] : &instr->out[o - instr->num_in];
            if (instr->message == TRI_NONE && at->value != TRI_NONE &&
                at->space == TRI_SPACE_WORK && at->offset >= program->pair_floor)
                at->offset -= program->pair_floor;
        }
    return program->pair_floor > 0;
}

static const tri_fault faults[] = {
    {"missing-member", "a message lacks a rank of its group", missing_member},
    {"other-bytes", "a message sends other bytes than its instructions", other_bytes},
    {"wrong-counts", "a rank has more of a message than its instructions say", wrong_counts},
    {"other-join", "a message joins terms in another way than its instructions", other_join},
    {"wrong-distance", "a shift goes to another rank than its instruction says", wrong_distance},
    {"wrong-source", "a shift comes from another rank than its distance says", wrong_source},
    {"small-room", "a message has larger rooms than its buffers", small_room},
    {"swapped-turns", "a half of a pair of calls runs in another order than it has alone",
     swap_turns},
    {"shared-work", "both halves of a pair of calls compute in the same memory",
     halves_in_one_place},
    {"loose-plan", "the host may plan more rows than a message has room for", loose_plan},
};

/* Of counts that ranks find out while they compute, which no layout has yet. */
static const tri_fault exchange_faults[] = {
    {"loose-counts", "more rows are let through than a message has room for", loose_counts},
    {"unfitted-counts", "a message goes by counts that were not fitted to its rooms",
     unfitted_counts},
    {"unread-overflow", "the update does not learn that rows found no room", unread_overflow},
};

const tri_fault *tri_message_fault_at(size_t i)
{
    return i < sizeof faults / sizeof *faults ? &faults[i] : NULL;
}

const tri_fault *tri_exchange_fault_at(size_t i)
{
    return i < sizeof exchange_faults / sizeof *exchange_faults ? &exchange_faults[i] : NULL;
}
