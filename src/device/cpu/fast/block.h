/* Products of small blocks that are already in cache: what attention is made of.
 *
 * c[m][n] = (or +=) sum_k a(m, k) * b[k][n]. Rows of b and c are contiguous and n is a multiple of
 * VEC_LANES; a is read one number at a time, so it may lie either way: rows of a contiguous
 * (product_rows) or its columns (product_cols, where a is a transposed view).
 *
 * Each element of c is one chain of additions in the order of k, whatever the tiles. */
#ifndef TRI_DEVICE_CPU_FAST_BLOCK_H
#define TRI_DEVICE_CPU_FAST_BLOCK_H

#include "device/cpu/fast/fast.h"

/* Tiles of rows x vectors: enough independent sums to hide the latency of a multiply-add (4 cycles,
 * two per cycle), and few enough to stay in registers. With 32 registers a wide tile, which loads
 * the least for each multiply-add. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECS = 2, WIDE_ROWS = 6, WIDE_VECS = 4 };
#else
enum { TILE_ROWS = 4, TILE_VECS = 2, WIDE_ROWS = 4, WIDE_VECS = 2 };
#endif

typedef struct operand {
    const float *data;
    int64_t step; /* between rows (product_rows, b, c) or between columns (product_cols) */
} operand;

/* Rows of memory that will be needed soon, far apart, so that nothing else announces them. They are
 * fetched a few at a time while products are computed, one list after the other: all at once, they
 * would hold up the products' own loads. */
typedef struct ahead {
    struct {
        const float *row;
        int64_t step, rows;
        bool write;
    } list[6];
    int64_t width; /* of a row */
    int num, at;
} ahead;

static inline void ahead_add(ahead *f, const float *row, int64_t step, int64_t rows, bool write)
{
    f->list[f->num].row = row;
    f->list[f->num].step = step;
    f->list[f->num].rows = rows;
    f->list[f->num].write = write;
    f->num++;
}

/* A tile's operands. Of a, element (i, k) is a[i * a_row + k * a_col]. */
typedef struct product {
    int64_t depth;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_step;
    bool add;
    ahead *ahead;
} product;

#define BLOCK_INLINE static inline __attribute__((always_inline))

BLOCK_INLINE void product_steps(const int rows, const int vecs, const product *p, int64_t first,
                                int64_t end, vec sum[][WIDE_VECS])
{
    const float *a = p->a + first * p->a_col, *b = p->b + first * p->b_step;
    for (int64_t k = first; k < end; k++, a += p->a_col, b += p->b_step) {
        vec row[WIDE_VECS];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            row[v] = *(const vec *)(b + v * VEC_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            float scalar = a[i * p->a_row];
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                sum[i][v] += scalar * row[v];
        }
    }
}

enum { LINE = 16, FETCH_ROWS = 2 };

BLOCK_INLINE void fetch_ahead(ahead *f)
{
    if (f->at == f->num)
        return;
    const float *row = f->list[f->at].row;
    int64_t step = f->list[f->at].step;
    for (int r = 0; r < FETCH_ROWS; r++, row += step)
        for (int64_t c = 0; c < f->width; c += LINE) {
            if (f->list[f->at].write)
                __builtin_prefetch(row + c, 1);
            else
                __builtin_prefetch(row + c, 0, 2);
        }
    f->list[f->at].row = row;
    f->list[f->at].rows -= FETCH_ROWS;
    if (f->list[f->at].rows <= 0)
        f->at++;
}

/* The next tile's rows of a, at the same place; they may be far apart too. */
BLOCK_INLINE void fetch_rows(const int rows, const float *a, int64_t a_row)
{
    const float *next = a + rows * a_row;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(next);
        next += a_row;
        __asm__("" : "+r"(next)); /* or there would be a register for each */
    }
}

BLOCK_INLINE void product_tile(const int rows, const int vecs, const product *p, const bool fetch)
{
    vec sum[TILE_ROWS][WIDE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[i][v] = p->add ? *(const vec *)(p->c + i * p->c_step + v * VEC_LANES) : (vec){0};
    int64_t k = 0;
    for (; k + LINE <= p->depth; k += LINE) {
        if (fetch)
            fetch_rows(rows, p->a + k, p->a_row);
        fetch_ahead(p->ahead);
        product_steps(rows, vecs, p, k, k + LINE, sum);
    }
    product_steps(rows, vecs, p, k, p->depth, sum);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            *(vec *)(p->c + i * p->c_step + v * VEC_LANES) = sum[i][v];
}

/* One panel of columns, vecs vectors wide; p is its first tile. */
BLOCK_INLINE void product_panel(const int most, const int vecs, int64_t m, product p,
                                const bool fetch)
{
    while (m > 0) {
        int64_t rows = m >= most ? most : m >= 2 ? 2 : 1;
        if (rows == most)
            product_tile(most, vecs, &p, fetch);
        else if (rows == 2)
            product_tile(2, vecs, &p, false);
        else
            product_tile(1, vecs, &p, false);
        p.a += rows * p.a_row;
        p.c += rows * p.c_step;
        m -= rows;
    }
}

BLOCK_INLINE void product_any(int64_t m, int64_t n, product p, const bool fetch)
{
    const float *b = p.b;
    float *c = p.c;
    int64_t j = 0;
    for (; j + WIDE_VECS * VEC_LANES <= n; j += WIDE_VECS * VEC_LANES) {
        p.b = b + j;
        p.c = c + j;
        product_panel(WIDE_ROWS, WIDE_VECS, m, p, fetch);
    }
    for (; j + TILE_VECS * VEC_LANES <= n; j += TILE_VECS * VEC_LANES) {
        p.b = b + j;
        p.c = c + j;
        product_panel(TILE_ROWS, TILE_VECS, m, p, fetch);
    }
    if (j < n) {
        p.b = b + j;
        p.c = c + j;
        product_panel(TILE_ROWS, 1, m, p, fetch);
    }
}

/* a(m, k) = a.data[m * a.step + k] */
static __attribute__((noinline)) void product_rows(int64_t m, int64_t n, int64_t depth, operand a,
                                                   operand b, float *c, int64_t c_step, bool add,
                                                   ahead *ahead)
{
    product_any(m, n, (product){depth, a.data, a.step, 1, b.data, b.step, c, c_step, add, ahead},
                true);
}

/* a(m, k) = a.data[m + k * a.step] */
static __attribute__((noinline)) void product_cols(int64_t m, int64_t n, int64_t depth, operand a,
                                                   operand b, float *c, int64_t c_step, bool add,
                                                   ahead *ahead)
{
    product_any(m, n, (product){depth, a.data, 1, a.step, b.data, b.step, c, c_step, add, ahead},
                false);
}

#endif
