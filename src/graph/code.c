#include "graph/code.h"

#include <string.h>

#include "base/block8.h"

static void encode8(bool is_signed, const float *from, int64_t count, uint8_t *to)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t size = tri_bits_of(from[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    float scale = tri_block8_scale(most);
    memset(to, 0, TRI_BLOCK8);
    for (int64_t i = 0; i < count; i++)
        to[i] = tri_block8_code(is_signed, from[i], scale, TRI_BLOCK8_NEAREST);
    memcpy(to + TRI_BLOCK8, &scale, sizeof scale);
}

static void decode8(bool is_signed, const uint8_t *from, int64_t count, float *to)
{
    float scale;
    memcpy(&scale, from + TRI_BLOCK8, sizeof scale);
    for (int64_t i = 0; i < count; i++)
        to[i] = tri_block8_wide(is_signed, from[i], scale);
}

static void encode_q8s(const float *from, int64_t count, void *to)
{
    encode8(true, from, count, to);
}

static void decode_q8s(const void *from, int64_t count, float *to)
{
    decode8(true, from, count, to);
}

static void encode_q8u(const float *from, int64_t count, void *to)
{
    encode8(false, from, count, to);
}

static void decode_q8u(const void *from, int64_t count, float *to)
{
    decode8(false, from, count, to);
}

static const tri_code codes[] = {
    {TRI_Q8S, TRI_BLOCK8, TRI_BLOCK8_BYTES, encode_q8s, decode_q8s},
    {TRI_Q8U, TRI_BLOCK8, TRI_BLOCK8_BYTES, encode_q8u, decode_q8u},
};

const tri_code *tri_dtype_code(tri_dtype dtype)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].dtype == dtype)
            return &codes[i];
    return NULL;
}
