/* What gemm.c calls of the code that is compiled once per instruction set. */
#ifndef TRI_DEVICE_CPU_FAST_GEMM_KERNEL_H
#define TRI_DEVICE_CPU_FAST_GEMM_KERNEL_H

#include "device/cpu/gemm.h"

/* Rectangles of memory that a block fetches ahead: of a, and of b. */
#define TRI_GEMM_AHEAD 2

/* A rectangle of memory that will be read soon. */
typedef struct tri_gemm_ahead {
    const float *start;
    int64_t rows, cols, ld; /* of floats; nothing when rows is 0 */
} tri_gemm_ahead;

/* One block of a product: c[rows][cols] (+)= alpha * a b over depth values of k, seen as panels of
 * mr rows of a and nr columns of b. A panel of a may be packed or lie in the caller's matrix. */
typedef struct tri_gemm_block {
    int64_t rows, cols, depth;

    /* Element (i, p) of panel number t is a[t * a_panel + i * a_row + p * a_depth]; one of a_row
     * and a_depth is 1. Packed: a_row 1, a_depth mr. All mr rows of a panel are read, so when rows
     * is not a multiple of mr the last panel is taken from a_edge, packed, unless a_edge is NULL.
     */
    const float *a;
    int64_t a_panel, a_row, a_depth;
    const float *a_edge;

    /* Packed: panel number t begins at b + t * b_panel and its element (p, j) is at p * b_depth +
     * j. In place: b_panel is 0 and element (p, j) of the block is at b + p * b_depth + j. Whole
     * vectors are read, so when cols is not a multiple of the width, the last panel of a b in place
     * is taken from b_edge, packed. */
    const float *b;
    int64_t b_panel, b_depth;
    const float *b_edge;

    float *c;
    int64_t ldc;
    float alpha;
    bool load_c; /* add to what c holds */

    tri_gemm_epilogue epilogue; /* to apply after this block; PLAIN before the last one of k */
    const float *bias;          /* of the block's first column */
    float *aux;                 /* of the block's first element */
    int64_t ldaux;

    /* Fetched into the second-level cache while this block is computed, one after the other, a
     * little at a time and as late as possible: arithmetic hides the wait for memory that packing
     * would otherwise spend. */
    tri_gemm_ahead ahead[TRI_GEMM_AHEAD];
} tri_gemm_block;

typedef struct tri_gemm_kernels {
    int mr;    /* rows of a panel of a */
    int nr;    /* columns of a panel of b, at most */
    int width; /* lanes of a vector; nr is a multiple */

    void (*run_block)(const tri_gemm_block *block);

    /* All of a product with few rows: a by rows (a_row apart), b transposed (columns b_depth
     * apart), both in place; alpha is 1 and c is overwritten. k is cut into passes as by run_block,
     * so the bits are the same. Reads b once, in order. */
    void (*run_few)(const tri_gemm_block *block, int64_t pass);

    /* The first column of the last panel when cols columns are cut into panels. */
    int64_t (*last_panel)(int64_t cols);

    /* Packs rows x depth of op(a) from a (its first element) into panels of mr rows, panel t at
     * out + t * panel, element (i, p) of it at i + p * mr. Missing rows are zero. */
    void (*pack_a)(float *out, int64_t panel, const float *a, int64_t lda, bool trans_a,
                   int64_t rows, int64_t depth);

    /* Packs depth x cols of op(b) into panels, panel t at out + t * panel, element (p, j) of it at
     * p * nr + j. Missing columns are zero. Panels have nr columns, except near the end. */
    void (*pack_b)(float *out, int64_t panel, const float *b, int64_t ldb, bool trans_b,
                   int64_t depth, int64_t cols);
} tri_gemm_kernels;

extern const tri_gemm_kernels tri_gemm_kernels_base;
#if defined(__x86_64__)
extern const tri_gemm_kernels tri_gemm_kernels_avx2;
extern const tri_gemm_kernels tri_gemm_kernels_avx512;
#endif

#endif
