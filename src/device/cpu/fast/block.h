/* Products of small blocks that are already in cache: what attention is made of.
 *
 * c[m][n] = (or +=) sum_k a(m, k) * b[k][n]. Rows of b and c are contiguous and n is a multiple of
 * VEC_LANES; a is read one number at a time, so it may lie either way: rows of a contiguous
 * (product_rows) or its columns (product_cols, where a is a transposed view). */
#ifndef TRI_DEVICE_CPU_FAST_BLOCK_H
#define TRI_DEVICE_CPU_FAST_BLOCK_H

#include "device/cpu/fast/fast.h"

/* A tile of BLOCK_ROWS x 2 vectors: enough independent sums to hide the latency of a multiply-add
 * (4 cycles, two per cycle), and few enough to stay in registers. */
#if defined(__AVX512F__)
enum { BLOCK_ROWS = 8 };
#else
enum { BLOCK_ROWS = 4 };
#endif

typedef struct operand {
    const float *data;
    int64_t step; /* between rows (product_rows, b, c) or between columns (product_cols) */
} operand;

static inline __attribute__((always_inline)) void
product_tile(int rows, int vecs, int64_t depth, const float *a, int64_t a_row, int64_t a_col,
             const float *b, int64_t b_step, float *c, int64_t c_step, bool add)
{
    vec sum[BLOCK_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++)
            sum[i][v] = add ? *(const vec *)(c + i * c_step + v * VEC_LANES) : (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec row[2];
        for (int v = 0; v < vecs; v++)
            row[v] = *(const vec *)(b + k * b_step + v * VEC_LANES);
        for (int i = 0; i < rows; i++) {
            float scalar = a[i * a_row + k * a_col];
            for (int v = 0; v < vecs; v++)
                sum[i][v] += scalar * row[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++)
            *(vec *)(c + i * c_step + v * VEC_LANES) = sum[i][v];
}

/* One panel of columns, two vectors wide or one. */
static inline __attribute__((always_inline)) void
product_panel(int vecs, int64_t m, int64_t depth, const float *a, int64_t a_row, int64_t a_col,
              const float *b, int64_t b_step, float *c, int64_t c_step, bool add)
{
    int64_t i = 0;
    for (; i + BLOCK_ROWS <= m; i += BLOCK_ROWS)
        product_tile(BLOCK_ROWS, vecs, depth, a + i * a_row, a_row, a_col, b, b_step,
                     c + i * c_step, c_step, add);
    for (; i + 2 <= m; i += 2)
        product_tile(2, vecs, depth, a + i * a_row, a_row, a_col, b, b_step, c + i * c_step, c_step,
                     add);
    if (i < m)
        product_tile(1, vecs, depth, a + i * a_row, a_row, a_col, b, b_step, c + i * c_step, c_step,
                     add);
}

static inline __attribute__((always_inline)) void product_any(int64_t m, int64_t n, int64_t depth,
                                                              const float *a, int64_t a_row,
                                                              int64_t a_col, operand b, float *c,
                                                              int64_t c_step, bool add)
{
    int64_t j = 0;
    for (; j + 2 * VEC_LANES <= n; j += 2 * VEC_LANES)
        product_panel(2, m, depth, a, a_row, a_col, b.data + j, b.step, c + j, c_step, add);
    if (j < n)
        product_panel(1, m, depth, a, a_row, a_col, b.data + j, b.step, c + j, c_step, add);
}

/* a(m, k) = a.data[m * a.step + k] */
static __attribute__((noinline)) void product_rows(int64_t m, int64_t n, int64_t depth, operand a,
                                                   operand b, float *c, int64_t c_step, bool add)
{
    product_any(m, n, depth, a.data, a.step, 1, b, c, c_step, add);
}

/* a(m, k) = a.data[m + k * a.step] */
static __attribute__((noinline)) void product_cols(int64_t m, int64_t n, int64_t depth, operand a,
                                                   operand b, float *c, int64_t c_step, bool add)
{
    product_any(m, n, depth, a.data, 1, a.step, b, c, c_step, add);
}

#endif
