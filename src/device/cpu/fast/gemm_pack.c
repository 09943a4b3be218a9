/* Packing: copies a block of a matrix into panels that the micro kernel reads front to back. All
 * transposition happens here, and what is missing at the edges becomes zero. */
#include "device/cpu/fast/gemm_kernel.h"
#include "device/cpu/fast/gemm_tile.h"

void TRI_ISA_NAME(tri_gemm_pack_a)(float *out, int64_t panel, const float *a, int64_t lda,
                                   bool trans_a, int64_t rows, int64_t depth);
void TRI_ISA_NAME(tri_gemm_pack_b)(float *out, int64_t panel, const float *b, int64_t ldb,
                                   bool trans_b, int64_t depth, int64_t cols);

static inline vec4 load4(const float *p)
{
    vec4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Turns 4 rows of 4 floats (ld apart) into 4 columns, each of which is stored at out + p * stride.
 */
static inline void transpose4(float *out, int64_t stride, const float *in, int64_t ld)
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
    for (int p = 0; p < 4; p++)
        memcpy(out + p * stride, &column[p], sizeof column[p]);
}

#if defined(__AVX2__)
/* The same for 8 rows. Row i and row i + 4 are loaded into the two halves of one register; what
 * remains is to transpose 4 x 4 within each half. */
static inline __m256 load_rows8(const float *in, int64_t ld)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(in)), _mm_loadu_ps(in + 4 * ld),
                                1);
}

static inline void transpose8(float *out, int64_t stride, const float *in, int64_t ld)
{
    __m256 r0 = load_rows8(in, ld), r1 = load_rows8(in + ld, ld);
    __m256 r2 = load_rows8(in + 2 * ld, ld), r3 = load_rows8(in + 3 * ld, ld);
    __m256 low01 = _mm256_unpacklo_ps(r0, r1), high01 = _mm256_unpackhi_ps(r0, r1);
    __m256 low23 = _mm256_unpacklo_ps(r2, r3), high23 = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(out, _mm256_shuffle_ps(low01, low23, 0x44));
    _mm256_storeu_ps(out + stride, _mm256_shuffle_ps(low01, low23, 0xee));
    _mm256_storeu_ps(out + 2 * stride, _mm256_shuffle_ps(high01, high23, 0x44));
    _mm256_storeu_ps(out + 3 * stride, _mm256_shuffle_ps(high01, high23, 0xee));
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

static inline void transpose16(float *out, int64_t stride, const float *in, int64_t ld)
{
    __m512 r0 = load_rows16(in, ld), r1 = load_rows16(in + ld, ld);
    __m512 r2 = load_rows16(in + 2 * ld, ld), r3 = load_rows16(in + 3 * ld, ld);
    __m512 low01 = _mm512_unpacklo_ps(r0, r1), high01 = _mm512_unpackhi_ps(r0, r1);
    __m512 low23 = _mm512_unpacklo_ps(r2, r3), high23 = _mm512_unpackhi_ps(r2, r3);
    _mm512_storeu_ps(out, _mm512_shuffle_ps(low01, low23, 0x44));
    _mm512_storeu_ps(out + stride, _mm512_shuffle_ps(low01, low23, 0xee));
    _mm512_storeu_ps(out + 2 * stride, _mm512_shuffle_ps(high01, high23, 0x44));
    _mm512_storeu_ps(out + 3 * stride, _mm512_shuffle_ps(high01, high23, 0xee));
}
#endif

/* out[p * stride + i] = in[i * ld + p] for `rows` rows that fill a whole number of 4-row groups as
 * far as possible; a tail of rows or of depth goes element by element. */
static void transpose_rows(float *restrict out, int64_t stride, const float *restrict in,
                           int64_t ld, int64_t rows, int64_t depth)
{
    int64_t whole_depth = depth / 4 * 4;
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= rows; i += 16) {
        for (int64_t p = 0; p < whole_depth; p += 4)
            transpose16(out + i + p * stride, stride, in + i * ld + p, ld);
    }
#endif
#if defined(__AVX2__)
    for (; i + 8 <= rows; i += 8) {
        for (int64_t p = 0; p < whole_depth; p += 4)
            transpose8(out + i + p * stride, stride, in + i * ld + p, ld);
    }
#endif
    for (; i + 4 <= rows; i += 4) {
        for (int64_t p = 0; p < whole_depth; p += 4)
            transpose4(out + i + p * stride, stride, in + i * ld + p, ld);
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t p = r < i ? whole_depth : 0; p < depth; p++)
            out[p * stride + r] = in[r * ld + p];
    }
}

/* out[p * stride + i] = in[p * ld + i], for a whole panel (size is a constant) or a partial one. */
static inline void copy_rows(float *restrict out, int64_t stride, const float *restrict in,
                             int64_t ld, int64_t depth, int64_t size)
{
    for (int64_t p = 0; p < depth; p++)
        memcpy(out + p * stride, in + p * ld, (size_t)size * sizeof(float));
}

static void zero_missing(float *out, int64_t stride, int64_t depth, int64_t present, int64_t size)
{
    if (present == size)
        return;
    for (int64_t p = 0; p < depth; p++)
        memset(out + p * stride + present, 0, (size_t)(size - present) * sizeof(float));
}

void TRI_ISA_NAME(tri_gemm_pack_a)(float *out, int64_t panel, const float *a, int64_t lda,
                                   bool trans_a, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i += MR, out += panel) {
        int64_t present = min_i64(MR, rows - i);
        if (!trans_a)
            transpose_rows(out, MR, a + i * lda, lda, present, depth);
        else if (present == MR)
            copy_rows(out, MR, a + i, lda, depth, MR);
        else
            copy_rows(out, MR, a + i, lda, depth, present);
        zero_missing(out, MR, depth, present, MR);
    }
}

void TRI_ISA_NAME(tri_gemm_pack_b)(float *out, int64_t panel, const float *b, int64_t ldb,
                                   bool trans_b, int64_t depth, int64_t cols)
{
    int64_t present;
    for (int64_t j = 0; j < cols; j += present, out += panel) {
        present = panel_cols(cols - j);
        if (trans_b)
            transpose_rows(out, NR, b + j * ldb, ldb, present, depth);
        else if (present == NR)
            copy_rows(out, NR, b + j, ldb, depth, NR);
        else
            copy_rows(out, NR, b + j, ldb, depth, present);
        zero_missing(out, NR, depth, present, NR);
    }
}
