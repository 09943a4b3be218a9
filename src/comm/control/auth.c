#include "comm/control/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

tr_status tri_auth_nonce(unsigned char nonce[TRI_AUTH_BYTES], tr_error *err)
{
    return getrandom(nonce, TRI_AUTH_BYTES, 0) == TRI_AUTH_BYTES
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME,
                          "the system gives no random numbers, without which ranks cannot tell "
                          "each other from strangers");
}

static void write_digits(const unsigned char bytes[TRI_AUTH_BYTES], char text[TRI_AUTH_TEXT])
{
    for (int i = 0; i < TRI_AUTH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

tr_status tri_auth_token(char token[TRI_AUTH_TEXT], tr_error *err)
{
    unsigned char random[TRI_AUTH_BYTES];
    TRI_TRY(tri_auth_nonce(random, err));
    write_digits(random, token);
    return TR_OK;
}

bool tri_auth_code(const char *token, const char *role, const void *data, size_t num_bytes,
                   unsigned char code[TRI_AUTH_BYTES])
{
    enum { MOST_ROLE = 32, MOST_DATA = 2048 };
    unsigned char text[MOST_ROLE + MOST_DATA] = {0};
    unsigned length = 0;
    memset(code, 0, TRI_AUTH_BYTES);
    if (num_bytes > MOST_DATA)
        return false;
    snprintf((char *)text, MOST_ROLE, "trireme 2 %s", role); /* filled up with zeros */
    memcpy(text + MOST_ROLE, data, num_bytes);
    return HMAC(EVP_sha256(), token, (int)strlen(token), text, MOST_ROLE + num_bytes, code,
                &length) != NULL &&
           length == TRI_AUTH_BYTES;
}

bool tri_auth_same(const unsigned char a[TRI_AUTH_BYTES], const unsigned char b[TRI_AUTH_BYTES])
{
    return CRYPTO_memcmp(a, b, TRI_AUTH_BYTES) == 0;
}

bool tri_auth_session(const char *token, const unsigned char nonce[TRI_AUTH_BYTES],
                      char session[TRI_AUTH_TEXT])
{
    unsigned char key[TRI_AUTH_BYTES];
    bool made = tri_auth_code(token, "session", nonce, TRI_AUTH_BYTES, key);
    write_digits(key, session);
    return made;
}
