#include "comm/control/control_hello.h"

#include <string.h>

enum { MOST_SAID = 1024 };

static bool read_bytes(tri_wire_frame *frame, unsigned char bytes[TRI_AUTH_BYTES])
{
    size_t length = 0;
    const void *at = tri_wire_bytes(frame, &length);
    if (at == NULL || length != TRI_AUTH_BYTES) {
        frame->failed = true;
        return false;
    }
    memcpy(bytes, at, TRI_AUTH_BYTES);
    return true;
}

void tri_challenge_write(tri_wire_out *out, const unsigned char nonce[TRI_AUTH_BYTES])
{
    tri_wire_begin(out, TRI_WIRE_CHALLENGE);
    tri_wire_add_bytes(out, nonce, TRI_AUTH_BYTES);
    tri_wire_end(out);
}

bool tri_challenge_read(tri_wire_frame *frame, unsigned char nonce[TRI_AUTH_BYTES])
{
    return frame->type == TRI_WIRE_CHALLENGE && read_bytes(frame, nonce) && tri_wire_whole(frame);
}

/* The code of a hello: over the server's nonce and all that the rank says. */
static bool hello_code(const char *token, const unsigned char challenge[TRI_AUTH_BYTES],
                       const unsigned char *said, size_t num_bytes,
                       unsigned char code[TRI_AUTH_BYTES])
{
    unsigned char text[TRI_AUTH_BYTES + MOST_SAID];
    if (num_bytes > MOST_SAID)
        return false;
    memcpy(text, challenge, TRI_AUTH_BYTES);
    memcpy(text + TRI_AUTH_BYTES, said, num_bytes);
    return tri_auth_code(token, "rank", text, TRI_AUTH_BYTES + num_bytes, code);
}

bool tri_hello_write(tri_wire_out *out, const tri_hello *hello, const char *token,
                     const unsigned char challenge[TRI_AUTH_BYTES])
{
    unsigned char code[TRI_AUTH_BYTES];
    tri_wire_begin(out, TRI_WIRE_HELLO);
    tri_wire_add_bytes(out, hello->nonce, TRI_AUTH_BYTES);
    tri_wire_add_u32(out, hello->rank);
    tri_wire_add_u32(out, hello->size);
    tri_wire_add_u64(out, (uint64_t)hello->pid);
    tri_wire_add_text(out, hello->host);
    tri_wire_add_text(out, hello->host_id);
    if (out->failed)
        return false;
    const unsigned char *said = out->bytes + out->frame + TRI_WIRE_HEADER_BYTES;
    if (!hello_code(token, challenge, said, (size_t)(out->bytes + out->used - said), code))
        return false;
    tri_wire_add_bytes(out, code, TRI_AUTH_BYTES);
    tri_wire_end(out);
    return !out->failed;
}

const char *tri_hello_read(tri_wire_frame *frame, tri_hello *hello, const char *token,
                           const unsigned char challenge[TRI_AUTH_BYTES])
{
    const unsigned char *said = frame->at;
    unsigned char given[TRI_AUTH_BYTES], right[TRI_AUTH_BYTES];
    *hello = (tri_hello){0};
    read_bytes(frame, hello->nonce);
    hello->rank = tri_wire_u32(frame);
    hello->size = tri_wire_u32(frame);
    hello->pid = (int64_t)tri_wire_u64(frame);
    tri_wire_text(frame, hello->host, sizeof hello->host);
    tri_wire_text(frame, hello->host_id, sizeof hello->host_id);
    size_t num_said = (size_t)(frame->at - said);
    if (!read_bytes(frame, given) || !tri_wire_whole(frame))
        return "a frame that is not well formed";
    if (!hello_code(token, challenge, said, num_said, right) || !tri_auth_same(given, right))
        return "its token is not the job's";
    return NULL;
}

static bool proof_code(const tri_hello *hello, const char *token,
                       const unsigned char challenge[TRI_AUTH_BYTES],
                       unsigned char code[TRI_AUTH_BYTES])
{
    unsigned char both[2 * TRI_AUTH_BYTES];
    memcpy(both, hello->nonce, TRI_AUTH_BYTES);
    memcpy(both + TRI_AUTH_BYTES, challenge, TRI_AUTH_BYTES);
    return tri_auth_code(token, "server", both, sizeof both, code);
}

bool tri_proof_write(tri_wire_out *out, const tri_hello *hello, const char *token,
                     const unsigned char challenge[TRI_AUTH_BYTES])
{
    unsigned char code[TRI_AUTH_BYTES];
    if (!proof_code(hello, token, challenge, code))
        return false;
    tri_wire_begin(out, TRI_WIRE_PROOF);
    tri_wire_add_bytes(out, code, TRI_AUTH_BYTES);
    tri_wire_end(out);
    return !out->failed;
}

bool tri_proof_read(tri_wire_frame *frame, const tri_hello *hello, const char *token,
                    const unsigned char challenge[TRI_AUTH_BYTES])
{
    unsigned char given[TRI_AUTH_BYTES], right[TRI_AUTH_BYTES];
    return frame->type == TRI_WIRE_PROOF && read_bytes(frame, given) && tri_wire_whole(frame) &&
           proof_code(hello, token, challenge, right) && tri_auth_same(given, right);
}

void tri_welcome_write(tri_wire_out *out, const tri_welcome *welcome)
{
    tri_wire_begin(out, TRI_WIRE_WELCOME);
    tri_wire_add_u64(out, (uint64_t)(welcome->deadline_s * 1e9));
    tri_wire_add_u32(out, (uint32_t)welcome->local_rank);
    tri_wire_add_u32(out, (uint32_t)welcome->local_size);
    tri_wire_add_bytes(out, welcome->session, TRI_AUTH_BYTES);
    tri_wire_end(out);
}

bool tri_welcome_read(tri_wire_frame *frame, int size, tri_welcome *welcome)
{
    const uint64_t longest_ns = (uint64_t)TRI_CONTROL_MOST_SECONDS * 1000000000u;
    uint64_t deadline_ns = tri_wire_u64(frame);
    uint32_t local_rank = tri_wire_u32(frame), local_size = tri_wire_u32(frame);
    bool whole = read_bytes(frame, welcome->session) && tri_wire_whole(frame);
    if (!whole || deadline_ns > longest_ns || local_size < 1 || local_size > (uint32_t)size ||
        local_rank >= local_size)
        return false;
    welcome->deadline_s = 1e-9 * (double)deadline_ns;
    welcome->local_rank = (int)local_rank;
    welcome->local_size = (int)local_size;
    return true;
}
