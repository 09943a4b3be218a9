/* exp and GELU on whole vectors, written out, for the places where they are hot; exp is the
 * function of vecmath.h.
 *
 * A loop over the scalar functions becomes vector code too, but on the few columns of a tile its
 * start and its tail cost several times what its arithmetic does; and the compiler follows what
 * each clamped argument leads to, computes all of these paths and selects. Here a clamp is one
 * instruction and there is no loop. */
#ifndef TRI_DEVICE_CPU_FAST_VECFUN_H
#define TRI_DEVICE_CPU_FAST_VECFUN_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { FVEC_LANES = 16 };
#elif defined(__AVX2__)
enum { FVEC_LANES = 8 };
#else
enum { FVEC_LANES = 4 };
#endif

typedef float fvec __attribute__((vector_size(FVEC_LANES * sizeof(float))));
typedef uint32_t uvec __attribute__((vector_size(FVEC_LANES * sizeof(float))));

#define FVEC_INLINE static inline __attribute__((always_inline))

/* a > b ? a : b, and so b where either is NaN. */
FVEC_INLINE fvec fvec_max(fvec a, fvec b)
{
#if defined(__AVX512F__)
    return (fvec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (fvec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (fvec)_mm_max_ps((__m128)a, (__m128)b);
#else
    uvec first = (uvec)(a > b);
    return (fvec)(((uvec)a & first) | ((uvec)b & ~first));
#endif
}

/* a < b ? a : b, and so b where either is NaN. */
FVEC_INLINE fvec fvec_min(fvec a, fvec b)
{
#if defined(__AVX512F__)
    return (fvec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (fvec)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (fvec)_mm_min_ps((__m128)a, (__m128)b);
#else
    uvec first = (uvec)(a < b);
    return (fvec)(((uvec)a & first) | ((uvec)b & ~first));
#endif
}

FVEC_INLINE fvec fvec_all(float x)
{
    return (fvec){0} + x;
}

/* NaN passes. */
FVEC_INLINE fvec fvec_clamp(fvec x, float low, float high)
{
    return fvec_min(fvec_all(high), fvec_max(fvec_all(low), x));
}

/* tri_exp_reduce: x = n ln 2 + r, n as bits. */
FVEC_INLINE fvec fvec_exp_reduce(fvec x, uvec *n)
{
    const float magic = 12582912.0f;
    fvec t = x * 1.44269504f + magic;
    fvec n_float = t - magic;
    *n = (uvec)t - 0x4b400000u;
    return (x - n_float * 0.693359375f) + n_float * 2.12194440e-4f;
}

FVEC_INLINE fvec fvec_expm1_reduced(fvec r)
{
    fvec q = r * 1.388249802e-03f + 8.366647176e-03f;
    q = q * r + 4.166720435e-02f;
    q = q * r + 1.666654199e-01f;
    q = q * r + 4.999999702e-01f;
    return q * (r * r) + r;
}

/* tri_expf */
FVEC_INLINE fvec fvec_exp(fvec x)
{
    uvec n;
    fvec r = fvec_exp_reduce(fvec_clamp(x, -87.3f, 88.8f), &n);
    fvec half_scale = (fvec)((n + 126u) << 23);
    return (2.0f * fvec_expm1_reduced(r) + 2.0f) * half_scale;
}

/* exp_weight of fast.h: for arguments up to 80, exactly 0 below -88. */
FVEC_INLINE fvec fvec_exp_weight(fvec x)
{
    uvec n;
    fvec r = fvec_exp_reduce(fvec_max(fvec_all(-88.0f), x), &n);
    fvec scale = (fvec)((n + 127u) << 23);
    return scale * fvec_expm1_reduced(r) + scale;
}

#if defined(__AVX512F__)
/* 2^t, for t clamped to where nothing that GELU makes of it is denormal, which would take a hundred
 * times as long. The polynomial has the smallest relative error of its degree between -1/2 and 1/2,
 * 7.5e-8. */
FVEC_INLINE fvec fvec_exp2(fvec t)
{
    t = fvec_clamp(t, -100.0f, 100.0f);
    fvec n = (fvec)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT);
    fvec r = t - n;
    fvec q = r * 1.327647199e-03f + 9.675541334e-03f;
    q = q * r + 5.550713274e-02f;
    q = q * r + 2.402211972e-01f;
    q = q * r + 6.931469671e-01f;
    q = q * r + 1.000000072f;
    return (fvec)_mm512_scalef_ps((__m512)q, (__m512)n);
}
#endif

/* exp(-2u) of GELU, u = sqrt(2/pi) (x + 0.044715 x^3). */
FVEC_INLINE fvec fvec_gelu_exp(fvec x, fvec square)
{
#if defined(__AVX512F__)
    return fvec_exp2(x * (-2.3022081981f - 0.1029432396f * square));
#else
    return fvec_exp(x * (-1.5957691216f - 0.0713548163f * square));
#endif
}

/* a / b for a normal b with a normal inverse: an estimate of 14 bits and one step of Newton's,
 * where a division would take longer than all the rest of GELU. */
FVEC_INLINE fvec fvec_divide(fvec a, fvec b)
{
#if defined(__AVX512F__)
    fvec inverse = (fvec)_mm512_rcp14_ps((__m512)b);
    return a * (inverse + inverse * (1.0f - b * inverse));
#else
    return a / b;
#endif
}

/* GELU in its tanh form, 0.5 x (1 + tanh(u)), written as x / (1 + exp(-2u)), which is the same
 * function and keeps its relative accuracy where x < 0. */
FVEC_INLINE fvec fvec_gelu(fvec x)
{
#if defined(__AVX512F__)
    x = fvec_max(fvec_all(-20.0f), x); /* -1.6e-29 there, as fvec_exp2 ends at 2^100 */
#endif
    return fvec_divide(x, 1.0f + fvec_gelu_exp(x, x * x));
}

/* The derivative of fvec_gelu. With s = 1 / (1 + exp(-2u)): s + x s (1 - s) 2u'. Beyond 9.5 it is 0
 * or 1 to the last bit of float arithmetic, and nothing overflows inside: e * s is never inf * 0.
 */
FVEC_INLINE fvec fvec_gelu_grad(fvec x)
{
    x = fvec_clamp(x, -9.5f, 9.5f);
    fvec square = x * x;
    fvec e = fvec_gelu_exp(x, square);
    fvec s = fvec_divide(fvec_all(1.0f), 1.0f + e);
    fvec x_2du = x * (1.5957691216f + 0.2140644488f * square);
    return s + x_2du * s * (e * s); /* 1 - s = e s */
}

#endif
