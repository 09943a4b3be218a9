/* How two ranks come to trust a connection of the tcp transport, as bytes and nothing else: no
 * sockets, so that tests and fuzzers can hand in any bytes.
 *
 *     who connects   hello    who speaks to whom in which set, and a nonce
 *     who accepts    answer   a nonce, and a code over both
 *     who connects   proof    a code over both in the other role
 *
 * Codes are made with the token of the session (control.h), which no stranger has. */
#ifndef TRI_COMM_TRANSPORT_TCP_HELLO_H
#define TRI_COMM_TRANSPORT_TCP_HELLO_H

#include <stdint.h>

#include "comm/control/auth.h"

typedef struct tri_tcp_hello {
    char magic[8]; /* with the version of the protocol */
    char key[96];  /* of the set */
    int32_t from, to;
    uint32_t wants_sums; /* 1: messages are to carry checksums; they do when either end wants it */
    unsigned char nonce[TRI_AUTH_BYTES];
} tri_tcp_hello;

typedef struct tri_tcp_answer {
    char magic[8];
    uint32_t wants_sums;
    unsigned char nonce[TRI_AUTH_BYTES], code[TRI_AUTH_BYTES];
} tri_tcp_answer;

typedef struct tri_tcp_proof {
    unsigned char code[TRI_AUTH_BYTES];
} tri_tcp_proof;

tr_status tri_tcp_hello_make(tri_tcp_hello *hello, const char *key, int from, int to, bool sums,
                             tr_error *err);
/* Is it for this rank, of this set? Who it is from is to be proved yet. */
bool tri_tcp_hello_fits(const tri_tcp_hello *hello, const char *key, int to);
bool tri_tcp_answer_make(tri_tcp_answer *answer, const tri_tcp_hello *hello, const char *token,
                         bool sums);
bool tri_tcp_answer_right(const tri_tcp_answer *answer, const tri_tcp_hello *hello,
                          const char *token);
bool tri_tcp_proof_make(tri_tcp_proof *proof, const tri_tcp_hello *hello,
                        const tri_tcp_answer *answer, const char *token);
bool tri_tcp_proof_right(const tri_tcp_proof *proof, const tri_tcp_hello *hello,
                         const tri_tcp_answer *answer, const char *token);

#endif
