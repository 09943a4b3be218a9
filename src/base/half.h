/* 16-bit floats: storage types that are widened for arithmetic. The conversions are free of
 * branches, so that loops over them vectorise. */
#ifndef TRI_BASE_HALF_H
#define TRI_BASE_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/everywhere.h"

TRI_EVERYWHERE float tri_f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

TRI_EVERYWHERE uint32_t tri_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

TRI_EVERYWHERE float tri_bf16_to_f32(uint16_t value)
{
    return tri_f32_of((uint32_t)value << 16);
}

/* To nearest, ties to even; a NaN stays one (its top bits are kept and made quiet). */
TRI_EVERYWHERE uint16_t tri_f32_to_bf16(float value)
{
    uint32_t bits = tri_bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* A weight's 16-bit copy: to nearest, ties away from zero. So the f32 weight is the copy's bits
 * followed by 16 zeros, plus an int16, exactly; rounding to even would leave +0x8000 at some ties.
 * Infinity and overflow are as above; a NaN stays one. */
TRI_EVERYWHERE uint16_t tri_weight_to_bf16(float value)
{
    uint32_t bits = tri_bits_of(value);
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : (bits + 0x8000u) >> 16);
}

/* Exponent and fraction move into place and the bias is corrected; infinity gets another
 * correction, and a subnormal is made normal by a subtraction. */
TRI_EVERYWHERE float tri_f16_to_f32(uint16_t value)
{
    uint32_t shifted = (uint32_t)(value & 0x7fff) << 13;
    uint32_t exponent = shifted & 0x0f800000u;
    uint32_t normal = shifted + (112u << 23);
    uint32_t special = shifted + (224u << 23);
    uint32_t small = tri_bits_of(tri_f32_of(shifted + (113u << 23)) - tri_f32_of(113u << 23));
    uint32_t bits = exponent == 0x0f800000u ? special : exponent == 0 ? small : normal;
    return tri_f32_of(bits | (uint32_t)(value & 0x8000) << 16);
}

/* To nearest, ties to even: large values become infinity, small ones subnormal by adding a number
 * whose last bit is worth one half's last bit. */
TRI_EVERYWHERE uint16_t tri_f32_to_f16(float value)
{
    uint32_t bits = tri_bits_of(value);
    uint32_t sign = bits & 0x80000000u;
    bits ^= sign;
    uint32_t special = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t small = tri_bits_of(tri_f32_of(bits) + tri_f32_of(126u << 23)) - (126u << 23);
    uint32_t normal = (bits + 0xc8000fffu + (bits >> 13 & 1)) >> 13;
    uint32_t half = bits >= 143u << 23 ? special : bits < 113u << 23 ? small : normal;
    return (uint16_t)(half | sign >> 16);
}

#endif
