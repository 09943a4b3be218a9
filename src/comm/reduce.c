/* The combining loops are plain C over blocks of BLOCK elements: a constant trip count and no
 * aliasing, which gcc vectorises at -O2. One body is inlined into a function per instruction set;
 * the processor decides between them at run time. Conversions are free of branches for the same
 * reason. */
#include "comm/reduce.h"

#include <string.h>

#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK  64
#define INLINE static inline __attribute__((always_inline))

INLINE float apply_f32(tri_reduction reduction, float a, float b)
{
    switch (reduction) {
    case TRI_REDUCE_MIN:
        return a < b || a != a ? a : b;
    case TRI_REDUCE_MAX:
        return a > b || a != a ? a : b;
    case TRI_REDUCE_PROD:
        return a * b;
    default:
        return a + b;
    }
}

/* Unsigned arithmetic wraps around; comparisons are made as signed. */
INLINE uint32_t apply_i32(tri_reduction reduction, uint32_t a, uint32_t b)
{
    switch (reduction) {
    case TRI_REDUCE_MIN:
        return (int32_t)a < (int32_t)b ? a : b;
    case TRI_REDUCE_MAX:
        return (int32_t)a > (int32_t)b ? a : b;
    case TRI_REDUCE_PROD:
        return a * b;
    default:
        return a + b;
    }
}

INLINE uint64_t apply_i64(tri_reduction reduction, uint64_t a, uint64_t b)
{
    switch (reduction) {
    case TRI_REDUCE_MIN:
        return (int64_t)a < (int64_t)b ? a : b;
    case TRI_REDUCE_MAX:
        return (int64_t)a > (int64_t)b ? a : b;
    case TRI_REDUCE_PROD:
        return a * b;
    default:
        return a + b;
    }
}

/* n is BLOCK, a constant, everywhere but in the last block of a call. Buffers may lie at any
 * address, hence the copies through memcpy, which cost nothing once vectorised. */
INLINE void block_f32(tri_reduction r, char *restrict into, const char *restrict from, int n)
{
    for (int i = 0; i < n; i++) {
        float a, b;
        memcpy(&a, into + 4 * i, 4);
        memcpy(&b, from + 4 * i, 4);
        a = apply_f32(r, a, b);
        memcpy(into + 4 * i, &a, 4);
    }
}

INLINE void block_bf16(tri_reduction r, char *restrict into, const char *restrict from, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t a, b;
        memcpy(&a, into + 2 * i, 2);
        memcpy(&b, from + 2 * i, 2);
        a = tri_f32_to_bf16(apply_f32(r, tri_bf16_to_f32(a), tri_bf16_to_f32(b)));
        memcpy(into + 2 * i, &a, 2);
    }
}

INLINE void block_f16(tri_reduction r, char *restrict into, const char *restrict from, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t a, b;
        memcpy(&a, into + 2 * i, 2);
        memcpy(&b, from + 2 * i, 2);
        a = tri_f32_to_f16(apply_f32(r, tri_f16_to_f32(a), tri_f16_to_f32(b)));
        memcpy(into + 2 * i, &a, 2);
    }
}

INLINE void block_i32(tri_reduction r, char *restrict into, const char *restrict from, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, into + 4 * i, 4);
        memcpy(&b, from + 4 * i, 4);
        a = apply_i32(r, a, b);
        memcpy(into + 4 * i, &a, 4);
    }
}

INLINE void block_i64(tri_reduction r, char *restrict into, const char *restrict from, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t a, b;
        memcpy(&a, into + 8 * i, 8);
        memcpy(&b, from + 8 * i, 8);
        a = apply_i64(r, a, b);
        memcpy(into + 8 * i, &a, 8);
    }
}

INLINE void block_any(tri_dtype dtype, tri_reduction r, char *into, const char *from, int n)
{
    switch (dtype) {
    case TRI_F32:
        block_f32(r, into, from, n);
        break;
    case TRI_BF16:
        block_bf16(r, into, from, n);
        break;
    case TRI_F16:
        block_f16(r, into, from, n);
        break;
    case TRI_I32:
        block_i32(r, into, from, n);
        break;
    default:
        block_i64(r, into, from, n);
        break;
    }
}

INLINE void combine_typed(tri_dtype dtype, tri_reduction r, char *into, const char *from,
                          size_t count)
{
    size_t bytes = BLOCK * (dtype == TRI_I64 ? 8 : dtype == TRI_BF16 || dtype == TRI_F16 ? 2 : 4);
    for (; count >= BLOCK; count -= BLOCK, into += bytes, from += bytes)
        block_any(dtype, r, into, from, BLOCK);
    block_any(dtype, r, into, from, (int)count);
}

/* Makes the reduction a constant in each branch, so that no loop asks for it. */
INLINE void combine_reduced(tri_dtype dtype, tri_reduction r, char *into, const char *from,
                            size_t count)
{
    switch (r) {
    case TRI_REDUCE_MIN:
        combine_typed(dtype, TRI_REDUCE_MIN, into, from, count);
        break;
    case TRI_REDUCE_MAX:
        combine_typed(dtype, TRI_REDUCE_MAX, into, from, count);
        break;
    case TRI_REDUCE_PROD:
        combine_typed(dtype, TRI_REDUCE_PROD, into, from, count);
        break;
    default:
        combine_typed(dtype, TRI_REDUCE_SUM, into, from, count);
        break;
    }
}

INLINE void combine_any(tri_dtype dtype, tri_reduction r, char *into, const char *from,
                        size_t count)
{
    switch (dtype) {
    case TRI_F32:
        combine_reduced(TRI_F32, r, into, from, count);
        break;
    case TRI_BF16:
        combine_reduced(TRI_BF16, r, into, from, count);
        break;
    case TRI_F16:
        combine_reduced(TRI_F16, r, into, from, count);
        break;
    case TRI_I32:
        combine_reduced(TRI_I32, r, into, from, count);
        break;
    case TRI_I64:
        combine_reduced(TRI_I64, r, into, from, count);
        break;
    default:
        break; /* bytes have no reductions; refused by the caller */
    }
}

#if defined(__x86_64__)
INLINE __m256 __attribute__((target("avx2,f16c"))) apply_f32x8(tri_reduction r, __m256 a, __m256 b)
{
    __m256 a_is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    switch (r) {
    case TRI_REDUCE_MIN: /* gives b when either is NaN */
        return _mm256_blendv_ps(_mm256_min_ps(a, b), a, a_is_nan);
    case TRI_REDUCE_MAX:
        return _mm256_blendv_ps(_mm256_max_ps(a, b), a, a_is_nan);
    case TRI_REDUCE_PROD:
        return _mm256_mul_ps(a, b);
    default:
        return _mm256_add_ps(a, b);
    }
}

/* Halves by the processor's own conversions, three times as fast; the number of elements done. */
__attribute__((target("avx2,f16c"))) static size_t combine_f16c(tri_reduction r, char *into,
                                                                const char *from, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(into + 2 * i)));
        __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i)));
        __m128i c = _mm256_cvtps_ph(apply_f32x8(r, a, b), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(into + 2 * i), c);
    }
    return i;
}
#endif

static void combine_base(tri_dtype dtype, tri_reduction r, char *into, const char *from,
                         size_t count)
{
    combine_any(dtype, r, into, from, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void combine_avx2(tri_dtype dtype, tri_reduction r,
                                                         char *into, const char *from, size_t count)
{
    combine_any(dtype, r, into, from, count);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void
combine_avx512(tri_dtype dtype, tri_reduction r, char *into, const char *from, size_t count)
{
    combine_any(dtype, r, into, from, count);
}
#endif

void tri_combine(tri_dtype dtype, tri_reduction reduction, void *into, const void *from,
                 size_t count)
{
#if defined(__x86_64__)
    /* A processor that has both has f16c as well (x86-64-v3), a name that clang does not know. */
    if (dtype == TRI_F16 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        size_t done = combine_f16c(reduction, into, from, count);
        combine_base(dtype, reduction, (char *)into + 2 * done, (const char *)from + 2 * done,
                     count - done);
        return;
    }
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        combine_avx512(dtype, reduction, into, from, count);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        combine_avx2(dtype, reduction, into, from, count);
        return;
    }
#endif
    combine_base(dtype, reduction, into, from, count);
}

/* Runs once per element of a result, not once per element and rank: plain loops will do. */
void tri_divide(tri_dtype dtype, void *data, size_t count, int n)
{
    char *at = data;
    float scale = (float)n;
    for (size_t i = 0; i < count; i++) {
        float f;
        uint16_t h;
        int32_t w;
        int64_t l;
        switch (dtype) {
        case TRI_F32:
            memcpy(&f, at + 4 * i, 4);
            f /= scale;
            memcpy(at + 4 * i, &f, 4);
            break;
        case TRI_BF16:
        case TRI_F16:
            memcpy(&h, at + 2 * i, 2);
            h = dtype == TRI_BF16 ? tri_f32_to_bf16(tri_bf16_to_f32(h) / scale)
                                  : tri_f32_to_f16(tri_f16_to_f32(h) / scale);
            memcpy(at + 2 * i, &h, 2);
            break;
        case TRI_I32:
            memcpy(&w, at + 4 * i, 4);
            w /= n;
            memcpy(at + 4 * i, &w, 4);
            break;
        case TRI_I64:
            memcpy(&l, at + 8 * i, 8);
            l /= n;
            memcpy(at + 8 * i, &l, 8);
            break;
        default:
            break;
        }
    }
}

/* The thread sanitizer does not see stores around the cache, so it gets plain ones. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define HAVE_STREAM
/* Whole cache lines at aligned targets; the bytes that were copied. */
static size_t stream_base(char *to, const char *from, size_t num_bytes)
{
    size_t at = 0;
    for (; at + 64 <= num_bytes; at += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(from + at));
        __m128i b = _mm_loadu_si128((const __m128i *)(from + at + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(from + at + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(from + at + 48));
        _mm_stream_si128((__m128i *)(to + at), a);
        _mm_stream_si128((__m128i *)(to + at + 16), b);
        _mm_stream_si128((__m128i *)(to + at + 32), c);
        _mm_stream_si128((__m128i *)(to + at + 48), d);
    }
    return at;
}

__attribute__((target("avx512f"))) static size_t stream_avx512(char *to, const char *from,
                                                               size_t num_bytes)
{
    size_t at = 0;
    for (; at + 256 <= num_bytes; at += 256) {
        __m512i a = _mm512_loadu_si512(from + at);
        __m512i b = _mm512_loadu_si512(from + at + 64);
        __m512i c = _mm512_loadu_si512(from + at + 128);
        __m512i d = _mm512_loadu_si512(from + at + 192);
        _mm512_stream_si512((__m512i *)(to + at), a);
        _mm512_stream_si512((__m512i *)(to + at + 64), b);
        _mm512_stream_si512((__m512i *)(to + at + 128), c);
        _mm512_stream_si512((__m512i *)(to + at + 192), d);
    }
    return at;
}
#endif

void tri_copy_stream(void *to, const void *from, size_t num_bytes)
{
    size_t done = 0;
#if defined(HAVE_STREAM)
    if (num_bytes >= 512) {
        done = (size_t)(-(uintptr_t)to & 63);
        memcpy(to, from, done);
        char *t = (char *)to + done;
        const char *f = (const char *)from + done;
        done += __builtin_cpu_supports("avx512f") ? stream_avx512(t, f, num_bytes - done)
                                                  : stream_base(t, f, num_bytes - done);
    }
#endif
    memcpy((char *)to + done, (const char *)from + done, num_bytes - done);
}

void tri_stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
