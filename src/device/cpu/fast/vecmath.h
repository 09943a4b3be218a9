/* Scalar functions that the compiler can vectorise: exp, tanh and SiLU without branches or calls.
 *
 * A loop such as   for (i = 0; i < n; i++) y[i] = tri_silu(x[i]);   becomes vector code at -O3
 * -fno-math-errno -fno-trapping-math. Never build with -ffast-math or -fassociative-math: rounding
 * by a magic constant (below) would be optimised away.
 *
 * tests/device/test_gemm.c measures the errors quoted here against double precision. */
#ifndef TRI_DEVICE_CPU_FAST_VECMATH_H
#define TRI_DEVICE_CPU_FAST_VECMATH_H

#include <stdint.h>
#include <string.h>

static inline float tri_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t tri_bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Written as comparisons, not fminf/fmaxf: these map to one instruction each, and a NaN passes. */
static inline float tri_clampf(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* Splits x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves the rounded n in the low
 * bits of the sum, so that *n costs no conversion. Needs |x| < 2^21. */
static inline float tri_exp_reduce(float x, int32_t *n)
{
    const float magic = 12582912.0f;
    float t = x * 1.44269504f + magic;
    float n_float = t - magic;
    *n = (int32_t)(tri_bits_from_float(t) - 0x4b400000u);
    /* ln 2 in two parts; the first has so few bits that its product with n is exact. */
    return (x - n_float * 0.693359375f) + n_float * 2.12194440e-4f;
}

/* exp(r) - 1 for |r| <= ln 2 / 2, relative error 2e-8 before rounding (minimax). */
static inline float tri_expm1_reduced(float r)
{
    float q = 1.388249802e-03f;
    q = q * r + 8.366647176e-03f;
    q = q * r + 4.166720435e-02f;
    q = q * r + 1.666654199e-01f;
    q = q * r + 4.999999702e-01f;
    return q * (r * r) + r;
}

/* Relative error below 2e-7. Results under 1.7e-38 become 0 (exp(-inf) is 0), exp(> 88.73) is inf,
 * NaN stays NaN. */
static inline float tri_expf(float x)
{
    int32_t n;
    float r = tri_exp_reduce(tri_clampf(x, -87.3f, 88.8f), &n);
    /* 2^(n-1), so that n = 128 still has a representation; n = -126 gives the bits of zero. */
    float half_scale = tri_float_from_bits((uint32_t)(n + 126) << 23);
    return (2.0f * tri_expm1_reduced(r) + 2.0f) * half_scale;
}

/* Relative error below 4e-7, odd, exactly 1 from 9.02 on, NaN stays NaN. */
static inline float tri_tanhf(float x)
{
    uint32_t sign = tri_bits_from_float(x) & 0x80000000u;
    float magnitude = tri_float_from_bits(tri_bits_from_float(x) ^ sign);
    int32_t n;
    /* With e = exp(-2|x|) - 1, tanh|x| = -e / (e + 2): no cancellation near zero, no overflow. */
    float r = tri_exp_reduce(-2.0f * (magnitude > 10.0f ? 10.0f : magnitude), &n);
    float scale = tri_float_from_bits((uint32_t)(n + 127) << 23);
    float e = scale * tri_expm1_reduced(r) + (scale - 1.0f);
    float t = -e / (e + 2.0f);
    return tri_float_from_bits(tri_bits_from_float(t) | sign);
}

/* x / (1 + exp(-x)) */
static inline float tri_silu(float x)
{
    return x / (1.0f + tri_expf(-x));
}

/* The derivative of tri_silu, s (1 + x (1 - s)) with s = 1 / (1 + exp(-x)). */
static inline float tri_silu_grad(float x)
{
    x = tri_clampf(x, -80.0f, 80.0f); /* beyond, it is 0 or 1; and nothing overflows inside */
    float e = tri_expf(-x);
    float s = 1.0f / (1.0f + e);
    return s * (1.0f + x * (e * s)); /* 1 - s = e s */
}

/* The normal distribution up to x, erfc(-x / sqrt(2)) / 2, from the Chebyshev fit of erfc in
 * Numerical Recipes. Relative error below 1e-5 from -9 on, where it is 1e-19. */
static inline float tri_normal_below(float x)
{
    float z = (x < 0 ? -x : x) * 0.70710678f;
    float t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    float tail = 0.5f * t * tri_expf(p - z * z);
    return x < 0 ? tail : 1.0f - tail;
}

/* GELU in its exact form, and its derivative. */
static inline float tri_gelu_erf(float x)
{
    return x * tri_normal_below(x);
}

static inline float tri_gelu_erf_grad(float x)
{
    float near = tri_clampf(x, -20.0f, 20.0f); /* beyond, the second term is 0 */
    return tri_normal_below(x) + near * 0.39894228f * tri_expf(-0.5f * near * near);
}

#endif
