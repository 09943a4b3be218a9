/* How a rank and the control server come to trust each other, as frames and nothing else: no
 * sockets, so that tests and fuzzers can hand in any bytes.
 *
 *     server   CHALLENGE   a nonce
 *     rank     HELLO       a nonce, who it is, and a code over all of it and the server's nonce
 *     server   PROOF       a code over both nonces: it, too, knows the token
 *     server   WELCOME     when all are there; or REFUSED, with the reason
 *
 * The rank proves itself first: whoever merely connects gets nothing but a random number. */
#ifndef TRI_COMM_CONTROL_CONTROL_HELLO_H
#define TRI_COMM_CONTROL_CONTROL_HELLO_H

#include "comm/control/auth.h"
#include "comm/control/control_wire.h"

typedef struct tri_hello {
    unsigned char nonce[TRI_AUTH_BYTES]; /* the rank's */
    uint32_t rank, size;
    int64_t pid;
    char host[64];    /* for people */
    char host_id[64]; /* the same for ranks on one machine */
} tri_hello;

/* What a rank is told when all are there. */
typedef struct tri_welcome {
    double deadline_s;
    int local_rank, local_size;
    unsigned char session[TRI_AUTH_BYTES]; /* random, of this world */
} tri_welcome;

void tri_challenge_write(tri_wire_out *out, const unsigned char nonce[TRI_AUTH_BYTES]);
bool tri_challenge_read(tri_wire_frame *frame, unsigned char nonce[TRI_AUTH_BYTES]);

/* False without memory. */
bool tri_hello_write(tri_wire_out *out, const tri_hello *hello, const char *token,
                     const unsigned char challenge[TRI_AUTH_BYTES]);
/* NULL, or what is wrong with it. Nothing of a hello counts before this said NULL. */
const char *tri_hello_read(tri_wire_frame *frame, tri_hello *hello, const char *token,
                           const unsigned char challenge[TRI_AUTH_BYTES]);

bool tri_proof_write(tri_wire_out *out, const tri_hello *hello, const char *token,
                     const unsigned char challenge[TRI_AUTH_BYTES]);
bool tri_proof_read(tri_wire_frame *frame, const tri_hello *hello, const char *token,
                    const unsigned char challenge[TRI_AUTH_BYTES]);

void tri_welcome_write(tri_wire_out *out, const tri_welcome *welcome);
/* False for what cannot be true in a world of this size. */
bool tri_welcome_read(tri_wire_frame *frame, int size, tri_welcome *welcome);

#endif
