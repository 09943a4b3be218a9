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

static const tri_fault faults[] = {
    {"missing-member", "a message lacks a rank of its group", missing_member},
    {"other-bytes", "a message sends other bytes than its instructions", other_bytes},
    {"wrong-counts", "a rank has more of a message than its instructions say", wrong_counts},
    {"other-join", "a message joins terms in another way than its instructions", other_join},
    {"wrong-distance", "a shift goes to another rank than its instruction says", wrong_distance},
    {"wrong-source", "a shift comes from another rank than its distance says", wrong_source},
};

const tri_fault *tri_message_fault_at(size_t i)
{
    return i < sizeof faults / sizeof *faults ? &faults[i] : NULL;
}
