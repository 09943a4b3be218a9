/* Proof that somebody knows the job's token, without the token ever travelling: each side names a
 * number that was never used before (a nonce), and the other answers with a code (HMAC-SHA256) that
 * only the token can make of it. The role is part of what the code is made of, so that an answer
 * sent back is no answer. This keeps strangers out; it hides nothing from those who can read the
 * network, and does not stop those who can change what passes on it. */
#ifndef TRI_COMM_CONTROL_AUTH_H
#define TRI_COMM_CONTROL_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum {
    TRI_AUTH_BYTES = 32,                   /* of a nonce, and of a code */
    TRI_AUTH_TEXT = 2 * TRI_AUTH_BYTES + 1 /* of a token that was made here */
};

tr_status tri_auth_nonce(unsigned char nonce[TRI_AUTH_BYTES], tr_error *err);
/* A token of random digits. */
tr_status tri_auth_token(char token[TRI_AUTH_TEXT], tr_error *err);
/* The code of who says data in a role. False without memory: then it equals no other. */
bool tri_auth_code(const char *token, const char *role, const void *data, size_t num_bytes,
                   unsigned char code[TRI_AUTH_BYTES]);
/* In a time that does not tell how much of it was right. */
bool tri_auth_same(const unsigned char a[TRI_AUTH_BYTES], const unsigned char b[TRI_AUTH_BYTES]);
/* A token of one session's own, of the job's and something that was random in that session. */
bool tri_auth_session(const char *token, const unsigned char nonce[TRI_AUTH_BYTES],
                      char session[TRI_AUTH_TEXT]);

#endif
