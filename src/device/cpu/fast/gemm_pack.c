/* Packing: copies a block of a matrix into panels that the micro kernel reads front to back. All
 * transposition happens here, and what is missing at the edges becomes zero.
 *
 * And products with few rows, which transpose a few values at a time on their way to the arithmetic
 * instead of packing them. */
#include "device/cpu/fast/gemm_kernel.h"
#include "device/cpu/fast/gemm_tile.h"
#include "device/cpu/fast/transpose.h"

/* Rows that a copy fetches ahead of itself. */
#define COPY_AHEAD 12
/* Rows of a product that are computed together when there are few. */
#define FEW_ROWS 8

void TRI_ISA_NAME(tri_gemm_pack_a)(float *out, int64_t panel, const float *a, int64_t lda,
                                   bool trans_a, int64_t rows, int64_t depth);
void TRI_ISA_NAME(tri_gemm_pack_b)(float *out, int64_t panel, const float *b, int64_t ldb,
                                   bool trans_b, int64_t depth, int64_t cols);

void TRI_ISA_NAME(tri_gemm_few)(const tri_gemm_block *block, int64_t pass);

typedef float column_a __attribute__((vector_size(MR * sizeof(float))));

/* A group of rows, as far as depth is a multiple of 4.
 *
 * Rows are far apart in memory and each is short, so the processor's own prefetching starts anew,
 * too late, with each. While one group is transposed, the lines of the next are fetched: a quarter
 * of its rows with every 4 of 16 values. */
static inline void transpose_group_rows(const int rows, float *restrict out, int64_t stride,
                                        const float *restrict in, int64_t ld, int64_t depth)
{
    const float *next = in + rows * ld;
    int64_t p = 0;
    for (; p + 16 <= depth; p += 16) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
#pragma GCC unroll 4
            for (int i = 0; i < rows / 4; i++)
                __builtin_prefetch(next + (q * (rows / 4) + i) * ld + p);
            transpose_group(rows, out + (p + 4 * q) * stride, stride, in + p + 4 * q, ld, 1);
        }
    }
    for (; p + 4 <= depth; p += 4)
        transpose_group(rows, out + p * stride, stride, in + p, ld, 1);
}

/* out[p * stride + i] = in[i * ld + p]. Whole groups of rows and of 4 values go through registers,
 * the rest element by element. */
static void transpose_rows(float *restrict out, int64_t stride, const float *restrict in,
                           int64_t ld, int64_t rows, int64_t depth)
{
    int64_t i = 0;
    for (; WIDTH >= 16 && i + 16 <= rows; i += 16)
        transpose_group_rows(16, out + i, stride, in + i * ld, ld, depth);
    for (; WIDTH >= 8 && i + 8 <= rows; i += 8)
        transpose_group_rows(8, out + i, stride, in + i * ld, ld, depth);
    for (; i + 4 <= rows; i += 4)
        transpose_group_rows(4, out + i, stride, in + i * ld, ld, depth);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t p = r < i ? depth / 4 * 4 : 0; p < depth; p++)
            out[p * stride + r] = in[r * ld + p];
    }
}

/* Panel t, element (p, i): out[t * panel + p * MR + i] = in[p * ld + t * MR + i]. All panels
 * advance together, so that each row is read from end to end. */
static void copy_panels_a(float *restrict out, int64_t panel, const float *restrict in, int64_t ld,
                          int64_t depth, int64_t num_panels)
{
    for (int64_t p = 0; p < depth; p++, in += ld, out += MR) {
        for (int64_t i = 0; i < num_panels * MR; i += 16)
            __builtin_prefetch(in + COPY_AHEAD * ld + i);
        for (int64_t t = 0; t < num_panels; t++) {
            column_a column;
            memcpy(&column, in + t * MR, sizeof column);
            memcpy(out + t * panel, &column, sizeof column);
        }
    }
}

/* The same for panels of NR columns. */
static void copy_panels_b(float *restrict out, int64_t panel, const float *restrict in, int64_t ld,
                          int64_t depth, int64_t num_panels)
{
    for (int64_t p = 0; p < depth; p++, in += ld, out += NR) {
        for (int64_t t = 0; t < num_panels; t++) {
#pragma GCC unroll 4
            for (int j = 0; j < NR; j += WIDTH) {
                __builtin_prefetch(in + COPY_AHEAD * ld + t * NR + j);
                store(out + t * panel + j, load(in + t * NR + j));
            }
        }
    }
}

/* One panel of which only `present` of `size` columns are in the matrix. */
static void copy_partial(float *restrict out, int64_t size, const float *restrict in, int64_t ld,
                         int64_t depth, int64_t present)
{
    for (int64_t p = 0; p < depth; p++) {
        for (int64_t i = 0; i < present; i++)
            out[p * size + i] = in[p * ld + i];
    }
}

static void zero_missing(float *out, int64_t size, int64_t depth, int64_t present)
{
    if (present == size)
        return;
    for (int64_t p = 0; p < depth; p++)
        memset(out + p * size + present, 0, (size_t)(size - present) * sizeof(float));
}

void TRI_ISA_NAME(tri_gemm_pack_a)(float *out, int64_t panel, const float *a, int64_t lda,
                                   bool trans_a, int64_t rows, int64_t depth)
{
    int64_t whole = rows / MR;
    if (trans_a)
        copy_panels_a(out, panel, a, lda, depth, whole);
    else
        for (int64_t t = 0; t < whole; t++)
            transpose_rows(out + t * panel, MR, a + t * MR * lda, lda, MR, depth);
    int64_t present = rows - whole * MR;
    if (present == 0)
        return;
    out += whole * panel;
    if (trans_a)
        copy_partial(out, MR, a + whole * MR, lda, depth, present);
    else
        transpose_rows(out, MR, a + whole * MR * lda, lda, present, depth);
    zero_missing(out, MR, depth, present);
}

void TRI_ISA_NAME(tri_gemm_pack_b)(float *out, int64_t panel, const float *b, int64_t ldb,
                                   bool trans_b, int64_t depth, int64_t cols)
{
    int64_t j = 0, present;
    if (!trans_b) {
        int64_t whole = 0;
        while (panel_cols(cols - whole * NR) == NR)
            whole++;
        copy_panels_b(out, panel, b, ldb, depth, whole);
        out += whole * panel;
        j = whole * NR;
    }
    for (; j < cols; j += present, out += panel) {
        present = panel_cols(cols - j);
        if (trans_b)
            transpose_rows(out, NR, b + j * ldb, ldb, present, depth);
        else
            copy_partial(out, NR, b + j, ldb, depth, present);
        zero_missing(out, NR, depth, present);
    }
}

/* ---- few rows ---- */

/* One pass over k, from p: rows x WIDTH elements of c, each one chain of additions in the order of
 * k, as in the micro kernel. While a group of columns is read, the lines of the next are fetched.
 */
static inline __attribute__((always_inline)) void few_pass(const int rows, const float *restrict a,
                                                           int64_t lda, const float *restrict b,
                                                           int64_t ldb, int64_t depth, bool fetch,
                                                           tile_vec *acc)
{
    int64_t p = 0;
    for (; p + 4 <= depth; p += 4) {
        float column[4 * WIDTH];
        if (fetch && p % 16 == 0)
            for (int j = 0; j < WIDTH; j++)
                __builtin_prefetch(b + (WIDTH + j) * ldb + p, 0, 2);
        transpose_group(WIDTH, column, WIDTH, b + p, ldb, 1);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            tile_vec row = load(column + q * WIDTH);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                acc[i] += a[i * lda + p + q] * row;
        }
    }
    for (; p < depth; p++) {
        float column[WIDTH];
        for (int j = 0; j < WIDTH; j++)
            column[j] = b[j * ldb + p];
        for (int i = 0; i < rows; i++)
            acc[i] += a[i * lda + p] * load(column);
    }
}

/* All passes over k for rows x WIDTH elements of c. */
static inline __attribute__((always_inline)) void few_columns(const int rows,
                                                              const tri_gemm_block *block,
                                                              int64_t pass, const float *a,
                                                              const float *b, float *c, bool fetch)
{
    for (int64_t p = 0; p < block->depth; p += pass) {
        tile_vec acc[FEW_ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            acc[i] = (tile_vec){0};
        few_pass(rows, a + p, block->a_row, b + p, block->b_depth, min_i64(pass, block->depth - p),
                 fetch, acc);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            store(c + i * block->ldc, p > 0 ? load(c + i * block->ldc) + acc[i] : acc[i]);
    }
}

static void few_whole(const tri_gemm_block *block, int64_t pass, int64_t rows, const float *a,
                      const float *b, float *c, bool fetch)
{
    switch (rows) {
    case 1:
        few_columns(1, block, pass, a, b, c, fetch);
        break;
    case 2:
        few_columns(2, block, pass, a, b, c, fetch);
        break;
    case 3:
        few_columns(3, block, pass, a, b, c, fetch);
        break;
    case 4:
        few_columns(4, block, pass, a, b, c, fetch);
        break;
    case 5:
        few_columns(5, block, pass, a, b, c, fetch);
        break;
    case 6:
        few_columns(6, block, pass, a, b, c, fetch);
        break;
    case 7:
        few_columns(7, block, pass, a, b, c, fetch);
        break;
    default:
        few_columns(8, block, pass, a, b, c, fetch);
    }
}

/* The last columns, which do not fill a vector. The sums are formed in vectors all the same: alone,
 * the compiler would not fuse multiplication and addition. */
static void few_rest(const tri_gemm_block *block, int64_t pass, int64_t first)
{
    int64_t num = block->cols - first;
    for (int64_t i = 0; num > 0 && i < block->rows; i++) {
        const float *a = block->a + i * block->a_row, *b = block->b + first * block->b_depth;
        float *c = block->c + i * block->ldc + first, column[WIDTH] = {0};
        for (int64_t p = 0; p < block->depth; p += pass) {
            tile_vec acc = {0};
            for (int64_t q = p; q < min_i64(p + pass, block->depth); q++) {
                for (int64_t j = 0; j < num; j++)
                    column[j] = b[j * block->b_depth + q];
                acc += a[q] * load(column);
            }
            for (int64_t j = 0; j < num; j++)
                c[j] = p > 0 ? c[j] + acc[j] : acc[j];
        }
    }
}

void TRI_ISA_NAME(tri_gemm_few)(const tri_gemm_block *block, int64_t pass)
{
    int64_t j = 0;
    for (; j + WIDTH <= block->cols; j += WIDTH) {
        bool fetch = j + 2 * WIDTH <= block->cols;
        for (int64_t i = 0; i < block->rows; i += FEW_ROWS)
            few_whole(block, pass, min_i64(FEW_ROWS, block->rows - i), block->a + i * block->a_row,
                      block->b + j * block->b_depth, block->c + i * block->ldc + j,
                      fetch && i == 0);
    }
    few_rest(block, pass, j);
}
