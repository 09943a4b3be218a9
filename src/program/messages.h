/* What messages.c works out, and what the readers of its records (message.h) ask it. */
#ifndef TRI_PROGRAM_MESSAGES_H
#define TRI_PROGRAM_MESSAGES_H

#include "program/program.h"

/* Fills in messages and groups; values have their addresses. */
tr_status tri_make_messages(tri_program *program, tr_error *err);

/* For the memory plan: whether the tensors of two nodes may be one message, so that it is well that
 * they are neighbours. */
bool tri_may_travel_together(const tri_node *a, const tri_node *b);

/* Elements of a member's block of an end that is divided so (send_parts, recv_parts); and those of
 * all members. */
uint64_t tri_message_part(const tri_program *program, const tri_message *message,
                          const tri_division *parts, uint32_t member);
void tri_message_counts(const tri_program *program, const tri_message *message,
                        const tri_division *parts, uint64_t *counts);

/* Of all_to_all and shift: elements that all members have together. */
uint64_t tri_message_whole(const tri_program *program, const tri_message *message);
/* Of a shift: the place in the group that this rank sends to, or receives from. */
uint32_t tri_shift_place(const tri_program *program, const tri_message *message, bool sends);

/* Between two members, of which each has its half. */
static inline bool tri_message_pairwise(const tri_message *message)
{
    return message->kind == TRI_MESSAGE_SEND || message->kind == TRI_MESSAGE_RECV;
}

/* The lanes of fetch and stash: to the device, from it, and whatever has an end in a file. */
typedef enum tri_carry_lane {
    TRI_CARRY_IN,
    TRI_CARRY_OUT,
    TRI_CARRY_FILE,
    TRI_NUM_CARRY_LANES
} tri_carry_lane;
tri_carry_lane tri_message_carry_lane(const tri_program *program, const tri_message *message);
/* Bytes that a fetch or stash moves: those of its value, of a file in whole blocks. */
uint64_t tri_carry_bytes(const tri_program *program, const tri_message *message);
/* "over dp", "lane in" */
void tri_message_lane_text(const tri_program *program, const tri_message *message, char *out,
                           size_t size);

/* Whether how much travels is known only when it does. */
static inline bool tri_message_varies(const tri_message *message)
{
    return message->send_parts.kind == TRI_DIVISION_ROOM;
}

/* Whether two messages run one after the other in the order of starting. */
bool tri_message_behind(const tri_message *a, const tri_message *b);

/* The bytes of an operand. */
tri_extent tri_operand_extent(const tri_program *program, const tri_operand *operand);

/* For the checker: what the instructions themselves say. */
tri_message_kind tri_message_kind_of(tri_op op);
tri_rank_group tri_message_group_of(const tri_program *program, const tri_attr *attr);
bool tri_same_ranks(const tri_attr *a, const tri_attr *b);
/* Proves that the records say what their instructions do; part of tri_program_check. */
tr_status tri_check_messages(const tri_program *program, tr_error *err);
/* Proves that messages of varying counts keep to their rooms, and that no update runs when rows
 * found none; part of tri_program_check, after tri_check_messages. */
tr_status tri_check_rooms(const tri_program *program, tr_error *err);
/* Deliberate faults of messages, at the end of tri_fault_at's. */
const tri_fault *tri_message_fault_at(size_t i);

#endif
