/* Philox for several counters at once: tri_philox of base/rng.h, lane by lane. */
#ifndef TRI_DEVICE_CPU_FAST_PHILOX_H
#define TRI_DEVICE_CPU_FAST_PHILOX_H

#include "base/rng.h"
#include "device/cpu/fast/fast.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A counter word sits in the low half of a 64-bit lane, because that is what the multiply
 * instruction takes and what it gives: the product's high half comes by a shift, its low half by
 * doing nothing (invariant: the high half of a lane is never looked at). */
typedef uint64_t vec_wide __attribute__((vector_size(VEC_LANES * 4), may_alias));
typedef uint32_t vec_narrow __attribute__((vector_size(VEC_LANES * 2)));

enum { WIDE_LANES = VEC_LANES / 2 };

/* What stays the same over a tensor. */
typedef struct philox_key {
    uint64_t seed;
    uint32_t step, stream;
} philox_key;

/* Low half times low half. */
static inline __attribute__((always_inline)) vec_wide multiply_low(vec_wide a, vec_wide b)
{
#if defined(__AVX512F__)
    return (vec_wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vec_wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
    return (vec_wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* 0, 1, 2 ... times step. */
static inline __attribute__((always_inline)) vec_wide lane_steps(uint64_t step)
{
    vec_wide lanes;
    for (int l = 0; l < WIDE_LANES; l++)
        lanes[l] = (uint64_t)l * step;
    return lanes;
}

/* word[w], in each lane: word w of the block with that lane's number. */
static inline __attribute__((always_inline)) void philox_wide(const philox_key *key, vec_wide block,
                                                              vec_wide word[4])
{
    const vec_wide zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    vec_wide c0 = block, c1 = block >> 32, c2 = zero + key->step, c3 = zero + key->stream;
    vec_wide k0 = zero + (uint32_t)key->seed, k1 = zero + (key->seed >> 32);
    for (int round = 0; round < 10; round++) {
        vec_wide p0 = multiply_low(c0, m0), p1 = multiply_low(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u; /* may carry into the high half, which nobody reads */
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* The low halves of all lanes. */
static inline __attribute__((always_inline)) void store_narrow(uint32_t *to, vec_wide word)
{
    vec_narrow low = __builtin_convertvector(word, vec_narrow);
    memcpy(to, &low, sizeof low);
}

/* The words of each lane's block one after the other: 4 * WIDE_LANES numbers. */
static inline __attribute__((always_inline)) void store_in_order(uint32_t *to,
                                                                 const vec_wide word[4])
{
    vec_wide a = (word[0] & 0xffffffffu) | word[1] << 32;
    vec_wide b = (word[2] & 0xffffffffu) | word[3] << 32;
#if defined(__AVX512F__)
    vec_wide low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    vec_wide high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX__)
    vec_wide low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    vec_wide high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
    vec_wide low = __builtin_shufflevector(a, b, 0, 2);
    vec_wide high = __builtin_shufflevector(a, b, 1, 3);
#endif
    memcpy(to, &low, sizeof low);
    memcpy(to + 2 * WIDE_LANES, &high, sizeof high);
}

#endif
