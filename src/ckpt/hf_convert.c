/* Elements of files to fp32. Tensors lie at any address, so they are read with memcpy. */
#include <string.h>

#include "ckpt/hf_parts.h"

bool tri_hf_can_widen(tri_dtype dtype)
{
    return dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float widen_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
    if (exponent == 31) /* infinity, or not a number */
        return from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { /* zero, or below the normal numbers: a multiple of 2^-24 */
        float value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static float element(tri_dtype dtype, const unsigned char *from, size_t i)
{
    float value;
    uint16_t half;
    if (dtype == TRI_F32) {
        memcpy(&value, from + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, from + i * sizeof half, sizeof half);
    return dtype == TRI_F16 ? widen_half(half) : from_bits((uint32_t)half << 16);
}

void tri_hf_widen(tri_dtype dtype, const void *from, float *to, size_t count)
{
    if (dtype == TRI_F32 && count > 0)
        memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; dtype != TRI_F32 && i < count; i++)
        to[i] = element(dtype, from, i);
}

void tri_hf_widen_transposed(tri_dtype dtype, const void *from, float *to, size_t rows, size_t cols)
{
    enum { BLOCK = 64 }; /* rows whose lines stay in the cache while they are filled */
    for (size_t first = 0; first < rows; first += BLOCK) {
        size_t end = first + BLOCK < rows ? first + BLOCK : rows;
        for (size_t c = 0; c < cols; c++)
            for (size_t r = first; r < end; r++)
                to[r * cols + c] = element(dtype, from, c * rows + r);
    }
}
