/* The frames of the control plane, as both of its ends read and write them.
 *
 * A frame is a header of 12 bytes (magic, version, type, length of what follows) and a payload of
 * at most TRI_WIRE_MAX_BYTES. Numbers are little-endian; a text or a block of bytes is a 32-bit
 * length and its bytes. What arrives was perhaps sent by a stranger, so
 *   1. a header is judged as soon as its bytes are there, before any payload is stored;
 *   2. a reader that runs past its frame yields zeros and remembers it: check `failed` once. */
#ifndef TRI_COMM_CONTROL_CONTROL_WIRE_H
#define TRI_COMM_CONTROL_CONTROL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "comm/control/control.h"

enum {
    TRI_WIRE_HEADER_BYTES = 12,
    TRI_WIRE_VERSION = 2,
    TRI_WIRE_MAX_BYTES = 1 << 20,
    TRI_WIRE_MAX_STRANGER_BYTES = 1024, /* of a HELLO, the only frame a stranger may send */
    TRI_WIRE_MAX_KEY = 255
};

typedef enum tri_wire_type {
    TRI_WIRE_HELLO = 1, /* to the server: see control_hello.h, as for the next */
    TRI_WIRE_WELCOME,   /* to a rank: all are here */
    TRI_WIRE_REFUSED,   /* to a rank: message; the connection is closed */
    TRI_WIRE_PUT,       /* to the server: key, value */
    TRI_WIRE_GET,       /* to the server: key */
    TRI_WIRE_VALUE,     /* to a rank: key, value */
    TRI_WIRE_BEAT,      /* to the server: a tri_rank_where */
    TRI_WIRE_GOODBYE,   /* to the server: a clean end */
    TRI_WIRE_FAILED,    /* to the server: message */
    TRI_WIRE_STOP,      /* to a rank: reason */
    TRI_WIRE_CHALLENGE, /* to a stranger */
    TRI_WIRE_PROOF,     /* to a rank */
    TRI_WIRE_NUM_TYPES
} tri_wire_type;

struct addrinfo;
/* Addresses of a name or a number; freeaddrinfo gives them back. */
tr_status tri_wire_resolve(const char *address, int port, bool passive, struct addrinfo **found,
                           tr_error *err);
/* A listening socket that does not wait, and the port it got. */
tr_status tri_wire_listen(const char *address, int port, int *fd, int *bound, tr_error *err);

/* Frames on their way out. */
typedef struct tri_wire_out {
    unsigned char *bytes;
    size_t used, sent, capacity;
    size_t frame; /* where the frame being written begins */
    bool failed;  /* memory ran out: the connection is of no use any more */
} tri_wire_out;

void tri_wire_out_fini(tri_wire_out *out);
void tri_wire_begin(tri_wire_out *out, tri_wire_type type);
void tri_wire_end(tri_wire_out *out);
void tri_wire_add_u32(tri_wire_out *out, uint32_t value);
void tri_wire_add_u64(tri_wire_out *out, uint64_t value);
void tri_wire_add_bytes(tri_wire_out *out, const void *data, size_t num_bytes);
void tri_wire_add_text(tri_wire_out *out, const char *text);
/* A frame that holds one text. */
void tri_wire_add_message(tri_wire_out *out, tri_wire_type type, const char *text);
void tri_wire_add_where(tri_wire_out *out, const tri_rank_where *where);
/* Sends what the socket takes without waiting. False when the connection is gone. */
bool tri_wire_send(tri_wire_out *out, int fd);
static inline bool tri_wire_pending(const tri_wire_out *out)
{
    return out->sent < out->used;
}

/* What arrived and was not yet looked at. */
typedef struct tri_wire_in {
    unsigned char *bytes;
    size_t used, taken, capacity;
} tri_wire_in;

void tri_wire_in_fini(tri_wire_in *in);
/* Reads once what is there without waiting: false when the other end closed or is gone. */
bool tri_wire_receive(tri_wire_in *in, int fd);

/* The payload of a frame; it points into a tri_wire_in and is valid until the next receive. */
typedef struct tri_wire_frame {
    tri_wire_type type;
    const unsigned char *at;
    size_t left;
    bool failed;
} tri_wire_frame;

/* The next frame: 1 taken, 0 not complete yet, -1 nonsense, and *wrong says in what way. */
int tri_wire_take(tri_wire_in *in, size_t max_bytes, tri_wire_frame *frame, const char **wrong);
uint32_t tri_wire_u32(tri_wire_frame *frame);
uint64_t tri_wire_u64(tri_wire_frame *frame);
const void *tri_wire_bytes(tri_wire_frame *frame, size_t *num_bytes);
/* Into the caller's array, cut to fit; one line: ends of lines become blanks, and other control
 * characters are spelt out, for texts end up in logs and on terminals. */
void tri_wire_text(tri_wire_frame *frame, char *text, size_t capacity);
void tri_wire_where(tri_wire_frame *frame, tri_rank_where *where);
/* Nothing missing and nothing left over. */
static inline bool tri_wire_whole(const tri_wire_frame *frame)
{
    return !frame->failed && frame->left == 0;
}

#endif
