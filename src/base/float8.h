/* 8-bit floats: storage types of the operands of products. Conversions round to the nearest, ties
 * to even, and saturate: what is too large becomes the largest number, never an infinity. A NaN
 * stays one. Like those of half.h they are free of branches.
 *
 *            sign exponent fraction   largest   smallest normal   smallest
 *     e4m3      1        4        3       448             2^-6       2^-9    no infinity
 *     e5m2      1        5        2     57344            2^-14      2^-16    half of an f16 */
#ifndef TRI_BASE_FLOAT8_H
#define TRI_BASE_FLOAT8_H

#include "base/half.h"

#define TRI_E4M3_MAX 448.0f
#define TRI_E5M2_MAX 57344.0f

TRI_EVERYWHERE float tri_e4m3_to_f32(uint8_t value)
{
    uint32_t low = value & 0x7fu;
    uint32_t small = tri_bits_of((float)low * 0x1p-9f);
    uint32_t bits = low == 0x7f ? 0x7fc00000u : low < 8 ? small : (low << 20) + (120u << 23);
    return tri_f32_of(bits | (uint32_t)(value & 0x80) << 24);
}

/* Small ones are rounded by adding a number whose last bit is worth the last bit of a subnormal. */
TRI_EVERYWHERE uint8_t tri_f32_to_e4m3(float value)
{
    uint32_t bits = tri_bits_of(value), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    uint32_t small = tri_bits_of(tri_f32_of(bits) + 0x1p14f) - tri_bits_of(0x1p14f);
    uint32_t normal = ((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120u << 3);
    normal = normal > 0x7e ? 0x7e : normal;
    uint32_t narrow = bits > 0x7f800000u ? 0x7f : bits < 121u << 23 ? small : normal;
    return (uint8_t)(narrow | sign);
}

TRI_EVERYWHERE float tri_e5m2_to_f32(uint8_t value)
{
    return tri_f16_to_f32((uint16_t)((uint32_t)value << 8));
}

TRI_EVERYWHERE uint8_t tri_f32_to_e5m2(float value)
{
    uint32_t bits = tri_bits_of(value), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    uint32_t small = tri_bits_of(tri_f32_of(bits) + 0x1p7f) - tri_bits_of(0x1p7f);
    uint32_t normal = ((bits + 0xfffffu + (bits >> 21 & 1)) >> 21) - (112u << 2);
    normal = normal > 0x7b ? 0x7b : normal;
    uint32_t narrow = bits > 0x7f800000u ? 0x7f : bits < 113u << 23 ? small : normal;
    return (uint8_t)(narrow | sign);
}

/* The power of two by which numbers up to amax are divided so that they reach the end of a format
 * that goes up to `most`, and not past it. Powers of two leave the digits of a number alone: what
 * it becomes depends on the largest of its tensor only where it is tiny. Below 2^-100 there is
 * nothing worth keeping; an infinity gives one, so that the products of such a tensor are not
 * finite. */
TRI_EVERYWHERE float tri_scale8(float amax, float most)
{
    float scale = tri_f32_of((tri_bits_of(amax / most) + 0x7fffffu) & 0x7f800000u);
    return scale < 0x1p-100f ? 0x1p-100f : scale;
}

#endif
