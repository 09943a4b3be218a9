#include "comm/transport/tcp_hello.h"

#include <stdio.h>
#include <string.h>

static const char magic[8] = "TRITCP2";

tr_status tri_tcp_hello_make(tri_tcp_hello *hello, const char *key, int from, int to, bool sums,
                             tr_error *err)
{
    *hello = (tri_tcp_hello){.from = from, .to = to, .wants_sums = sums};
    memcpy(hello->magic, magic, sizeof magic);
    snprintf(hello->key, sizeof hello->key, "%s", key);
    return tri_auth_nonce(hello->nonce, err);
}

bool tri_tcp_hello_fits(const tri_tcp_hello *hello, const char *key, int to)
{
    char want[sizeof hello->key] = {0};
    snprintf(want, sizeof want, "%s", key);
    return memcmp(hello->magic, magic, sizeof magic) == 0 && hello->to == to &&
           hello->wants_sums <= 1 && memcmp(hello->key, want, sizeof want) == 0;
}

/* Over all that either said. */
static bool code_of(const char *token, const char *role, const tri_tcp_hello *hello,
                    const tri_tcp_answer *answer, unsigned char code[TRI_AUTH_BYTES])
{
    unsigned char text[sizeof *hello + offsetof(tri_tcp_answer, code)];
    memcpy(text, hello, sizeof *hello);
    memcpy(text + sizeof *hello, answer, offsetof(tri_tcp_answer, code));
    return tri_auth_code(token, role, text, sizeof text, code);
}

bool tri_tcp_answer_make(tri_tcp_answer *answer, const tri_tcp_hello *hello, const char *token,
                         bool sums)
{
    *answer = (tri_tcp_answer){.wants_sums = sums};
    memcpy(answer->magic, magic, sizeof magic);
    return tri_auth_nonce(answer->nonce, NULL) == TR_OK &&
           code_of(token, "tcp accepts", hello, answer, answer->code);
}

bool tri_tcp_answer_right(const tri_tcp_answer *answer, const tri_tcp_hello *hello,
                          const char *token)
{
    unsigned char right[TRI_AUTH_BYTES];
    return memcmp(answer->magic, magic, sizeof magic) == 0 && answer->wants_sums <= 1 &&
           code_of(token, "tcp accepts", hello, answer, right) &&
           tri_auth_same(answer->code, right);
}

bool tri_tcp_proof_make(tri_tcp_proof *proof, const tri_tcp_hello *hello,
                        const tri_tcp_answer *answer, const char *token)
{
    return code_of(token, "tcp connects", hello, answer, proof->code);
}

bool tri_tcp_proof_right(const tri_tcp_proof *proof, const tri_tcp_hello *hello,
                         const tri_tcp_answer *answer, const char *token)
{
    unsigned char right[TRI_AUTH_BYTES];
    return code_of(token, "tcp connects", hello, answer, right) &&
           tri_auth_same(proof->code, right);
}
