/* Transposition of small groups through registers: what packing in products and attention is made
 * of. */
#ifndef TRI_DEVICE_CPU_FAST_TRANSPOSE_H
#define TRI_DEVICE_CPU_FAST_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float vec4 __attribute__((vector_size(16)));

static inline vec4 load4(const float *p)
{
    vec4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Turns 4 rows of 4 floats (ld apart) into 4 columns, each of which is stored, times scale, at
 * out + p * stride. */
static inline void transpose4(float *out, int64_t stride, const float *in, int64_t ld, float scale)
{
    vec4 r0 = load4(in), r1 = load4(in + ld), r2 = load4(in + 2 * ld), r3 = load4(in + 3 * ld);
    vec4 low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
    vec4 high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    vec4 low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
    vec4 high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    vec4 column[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                      __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                      __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                      __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (int p = 0; p < 4; p++) {
        column[p] *= scale;
        memcpy(out + p * stride, &column[p], sizeof column[p]);
    }
}

#if defined(__AVX2__)
/* The same for 8 rows. Row i and row i + 4 are loaded into the two halves of one register; what
 * remains is to transpose 4 x 4 within each half. */
static inline __m256 load_rows8(const float *in, int64_t ld)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(in)), _mm_loadu_ps(in + 4 * ld),
                                1);
}

static inline void transpose8(float *out, int64_t stride, const float *in, int64_t ld, float scale)
{
    __m256 times = _mm256_set1_ps(scale);
    __m256 r0 = load_rows8(in, ld), r1 = load_rows8(in + ld, ld);
    __m256 r2 = load_rows8(in + 2 * ld, ld), r3 = load_rows8(in + 3 * ld, ld);
    __m256 low01 = _mm256_unpacklo_ps(r0, r1), high01 = _mm256_unpackhi_ps(r0, r1);
    __m256 low23 = _mm256_unpacklo_ps(r2, r3), high23 = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(out, _mm256_mul_ps(times, _mm256_shuffle_ps(low01, low23, 0x44)));
    _mm256_storeu_ps(out + stride, _mm256_mul_ps(times, _mm256_shuffle_ps(low01, low23, 0xee)));
    _mm256_storeu_ps(out + 2 * stride,
                     _mm256_mul_ps(times, _mm256_shuffle_ps(high01, high23, 0x44)));
    _mm256_storeu_ps(out + 3 * stride,
                     _mm256_mul_ps(times, _mm256_shuffle_ps(high01, high23, 0xee)));
}
#endif

#if defined(__AVX512F__)
/* And for 16: rows i, i + 4, i + 8 and i + 12 share a register. */
static inline __m512 load_rows16(const float *in, int64_t ld)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(in));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(in + 4 * ld), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(in + 8 * ld), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(in + 12 * ld), 3);
}

static inline void transpose16(float *out, int64_t stride, const float *in, int64_t ld, float scale)
{
    __m512 times = _mm512_set1_ps(scale);
    __m512 r0 = load_rows16(in, ld), r1 = load_rows16(in + ld, ld);
    __m512 r2 = load_rows16(in + 2 * ld, ld), r3 = load_rows16(in + 3 * ld, ld);
    __m512 low01 = _mm512_unpacklo_ps(r0, r1), high01 = _mm512_unpackhi_ps(r0, r1);
    __m512 low23 = _mm512_unpacklo_ps(r2, r3), high23 = _mm512_unpackhi_ps(r2, r3);
    _mm512_storeu_ps(out, _mm512_mul_ps(times, _mm512_shuffle_ps(low01, low23, 0x44)));
    _mm512_storeu_ps(out + stride, _mm512_mul_ps(times, _mm512_shuffle_ps(low01, low23, 0xee)));
    _mm512_storeu_ps(out + 2 * stride,
                     _mm512_mul_ps(times, _mm512_shuffle_ps(high01, high23, 0x44)));
    _mm512_storeu_ps(out + 3 * stride,
                     _mm512_mul_ps(times, _mm512_shuffle_ps(high01, high23, 0xee)));
}
#endif

/* Columns p .. p + 3 of a group of rows: the largest transposition that this instruction set has
 * for `rows`, which is a constant. */
static inline void transpose_group(const int rows, float *out, int64_t stride, const float *in,
                                   int64_t ld, float scale)
{
#if defined(__AVX512F__)
    if (rows == 16) {
        transpose16(out, stride, in, ld, scale);
        return;
    }
#endif
#if defined(__AVX2__)
    if (rows == 8) {
        transpose8(out, stride, in, ld, scale);
        return;
    }
#endif
    for (int i = 0; i < rows; i += 4)
        transpose4(out + i, stride, in + i * ld, ld, scale);
}

#endif
