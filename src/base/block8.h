/* Codes of 8 bits with a scale for each block of 256 numbers: one element at a time, for the host's
 * kernels and the GPU's alike.
 *
 * A block is 256 codes and its scale, an f32: the largest absolute value in it, or 0 where that is
 * too small to matter. A code is a float without most of its bits: an exponent and three bits of
 * the fraction, counted downwards from 1.0, which is the last code. So a decoded block has its
 * scale among its numbers, and encoding it again gives the same bytes: q8s   a sign and 127 numbers
 * from 2^-15.75 to 1; what is smaller is 0 q8u   255 numbers from 2^-31.75 to 1; what is smaller,
 * but not 0, is the first Neighbours are an eighth to a sixteenth apart. */
#ifndef TRI_BASE_BLOCK8_H
#define TRI_BASE_BLOCK8_H

#include "base/half.h"

enum { TRI_BLOCK8 = 256, TRI_BLOCK8_BYTES = TRI_BLOCK8 + 4 };

/* The fraction's bits that a code has not, and one half of its last bit: to the nearest. */
enum { TRI_BLOCK8_SHIFT = 20, TRI_BLOCK8_NEAREST = 1 << 19 };

/* The last code, and its difference to the upper bits of 1.0f. */
TRI_EVERYWHERE uint32_t tri_block8_last(bool is_signed)
{
    return is_signed ? 127 : 255;
}

TRI_EVERYWHERE uint32_t tri_block8_below(bool is_signed)
{
    return (0x3f800000u >> TRI_BLOCK8_SHIFT) - tri_block8_last(is_signed);
}

/* most: the bits of the largest absolute value, which are in order as whole numbers. */
TRI_EVERYWHERE float tri_block8_scale(uint32_t most)
{
    return most < 27u << 23 ? 0.0f : tri_f32_of(most); /* 2^-100: what is made of it stays normal */
}

TRI_EVERYWHERE float tri_block8_wide(bool is_signed, uint8_t code, float scale)
{
    uint32_t size = is_signed ? code & 127u : code, sign = is_signed ? (uint32_t)code >> 7 : 0;
    uint32_t bits = (size + tri_block8_below(is_signed)) << TRI_BLOCK8_SHIFT;
    return tri_f32_of((size ? bits : 0) | sign << 31) * scale;
}

/* add: what is added to the bits that are cut off, from 0 to 2^20 - 1: TRI_BLOCK8_NEAREST, or a
 * random number, which gives the right mean. x / scale is exactly 1 for the largest. */
TRI_EVERYWHERE uint8_t tri_block8_code(bool is_signed, float x, float scale, uint32_t add)
{
    uint32_t bits = tri_bits_of(scale > 0 ? x / scale : 0.0f), sign = bits >> 31;
    uint32_t below = tri_block8_below(is_signed), last = tri_block8_last(is_signed);
    bits &= 0x7fffffffu;
    uint32_t up = (bits + add) >> TRI_BLOCK8_SHIFT, size = up > below ? up - below : 0;
    size = size > last ? last : size; /* of what is no number */
    size = !is_signed && size == 0 && bits > 0 ? 1 : size;
    return (uint8_t)(size | (is_signed && size ? sign << 7 : 0));
}

/* A random number for tri_block8_code, from the number that is to be rounded and a key: it needs no
 * place in the tensor, so that it is the same however the tensor is divided. */
TRI_EVERYWHERE uint32_t tri_block8_random(float x, uint32_t key)
{
    uint32_t h = (tri_bits_of(x) ^ key) * 0x9e3779b1u;
    h = (h ^ h >> 15) * 0x85ebca77u;
    h = (h ^ h >> 13) * 0xc2b2ae3du;
    return h >> 12;
}

#endif
