/* Messages as records of the program: who takes part, which bytes, which counts.
 *
 * One file works them out (messages.c), when values have their addresses. The checker, the planner
 * of overlap, the executor, transports, the simulator and the printer read them, and look at no
 * attribute of an instruction that communicates. */
#ifndef TRI_PROGRAM_MESSAGE_H
#define TRI_PROGRAM_MESSAGE_H

#include "graph/op.h"
#include "mesh/rank_group.h"

/* What the members of the group do together. Send and receive are the halves of one message, each
 * with a peer. */
typedef enum tri_message_kind {
    TRI_MESSAGE_ALL_REDUCE,
    TRI_MESSAGE_ALL_GATHER,
    TRI_MESSAGE_REDUCE_SCATTER,
    TRI_MESSAGE_ALL_TO_ALL,
    TRI_MESSAGE_SHIFT,
    TRI_MESSAGE_BROADCAST,
    TRI_MESSAGE_SEND,
    TRI_MESSAGE_RECV,
    /* Between places of this rank's memory: nobody else takes part. */
    TRI_MESSAGE_FETCH,
    TRI_MESSAGE_STASH,
    TRI_NUM_MESSAGE_KINDS
} tri_message_kind;

const char *tri_message_kind_name(tri_message_kind kind); /* "all_reduce" */

/* How an end of a message is divided into blocks, one for each member. */
typedef enum tri_division_kind {
    TRI_DIVISION_NONE,  /* it is not: a vector, or this rank's own block */
    TRI_DIVISION_EVEN,  /* blocks of one size */
    TRI_DIVISION_CUT,   /* as a dim is cut */
    TRI_DIVISION_FLAT,  /* a bucket of tensors, without regard to where these begin */
    TRI_DIVISION_OWNED, /* a bucket whose tensors belong to one member each */
    TRI_DIVISION_ONE,   /* all of it is one member's (shift) */
    TRI_DIVISION_ROOM,  /* a room of one size for each, of which data says how much is used */
} tri_division_kind;

typedef struct tri_division {
    tri_division_kind kind;
    /* even, one, room: elements of a block; cut: elements for each of the dim's */
    uint64_t scale;
    union {
        tri_cut cut;
        tri_flat flat;  /* of the first tensor */
        uint32_t place; /* one: the member's */
        uint64_t row;   /* room: elements of what is counted */
    };
} tri_division;

/* Bytes of a space. space TRI_NONE: none. */
typedef struct tri_extent {
    uint32_t space;
    uint64_t offset, bytes;
} tri_extent;

typedef struct tri_message {
    tri_message_kind kind;
    uint8_t how;           /* all_reduce: in which way terms are joined (tri_partial_how) */
    uint32_t group;        /* of program->groups; TRI_NONE: fetch, stash */
    uint32_t lane;         /* those of one lane run in the order of starting (tri_message_behind) */
    uint32_t first, count; /* its instructions: one for each tensor that travels in it */
    tri_id value;          /* that it is named after: what the first one makes, or sends */
    tri_dtype dtype;
    uint64_t elements; /* of the whole vector, whoever has which part of it */
    /* send, recv: the other's place in the group; broadcast: the root's; shift: places on */
    uint32_t peer;
    bool border;                /* it crosses from one stage of a pipeline to the next */
    bool last_only, first_only; /* as its instructions */
    tri_extent send, recv;      /* what this rank hands over, and what it gets */
    tri_division send_parts, recv_parts;
    /* Rooms: rows that go to each member, and that come from it, i32. They are read when the
     * message is started, and not after that. */
    tri_extent counts[2];
    /* All that its tensors take, padding and gaps between them included: nobody writes to the first
     * or touches the second while it is under way. */
    tri_extent reads, writes;
    uint32_t flight; /* number of its first flight, from 1; 0: it has none */
} tri_message;

/* Whether it goes between places of this rank's memory. */
static inline bool tri_message_carries(const tri_message *message)
{
    return message->kind == TRI_MESSAGE_FETCH || message->kind == TRI_MESSAGE_STASH;
}

/* Bytes of the whole; and of the larger end, of this rank. */
static inline uint64_t tri_message_bytes(const tri_message *message)
{
    return message->elements * tri_dtype_bytes(message->dtype);
}
/* Whether what is sent lies within what is received, or the other way round. */
static inline bool tri_message_in_place(const tri_message *message)
{
    const tri_extent *a = &message->send, *b = &message->recv;
    return a->space != TRI_NONE && a->space == b->space && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}
static inline uint64_t tri_message_moved(const tri_message *message)
{
    return message->send.bytes > message->recv.bytes ? message->send.bytes : message->recv.bytes;
}

#endif
