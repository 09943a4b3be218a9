/* fp32 matrix products on the CPU, row-major.
 *
 * The value before the epilogue is  v = alpha * op(a) op(b)  (+ the old c when accumulating); then
 *     PLAIN       c = v
 *     BIAS        c = v + bias
 *     BIAS_GELU   c = gelu(v + bias), and aux, unless NULL, receives v + bias
 *     GELU_GRAD   c = gelu'(aux) * v
 * with the tanh form of GELU. When not accumulating, c is never read: it may hold anything.
 *
 * Results depend on the shapes and the instruction set alone: any number of threads gives the same
 * bits. c must not overlap a or b; aux may not overlap c. */
#ifndef TRI_DEVICE_CPU_GEMM_H
#define TRI_DEVICE_CPU_GEMM_H

#include "base/pool.h"
#include "device/cpu/isa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_gemm_epilogue {
    TRI_GEMM_PLAIN,
    TRI_GEMM_BIAS,
    TRI_GEMM_BIAS_GELU,
    TRI_GEMM_GELU_GRAD
} tri_gemm_epilogue;

typedef struct tri_gemm {
    int64_t m, n, k;
    const float *a; /* op(a) is m x k: stored [m][lda], or [k][lda] when trans_a */
    int64_t lda;
    bool trans_a;
    const float *b; /* op(b) is k x n: stored [k][ldb], or [n][ldb] when trans_b */
    int64_t ldb;
    bool trans_b;
    float *c; /* [m][ldc] */
    int64_t ldc;
    float alpha;
    bool accumulate; /* c += instead of c = */
    tri_gemm_epilogue epilogue;
    const float *bias; /* [n], for BIAS and BIAS_GELU */
    float *aux;        /* [m][ldaux], for BIAS_GELU (written, may be NULL) and GELU_GRAD (read) */
    int64_t ldaux;
} tri_gemm;

/* What tri_gemm_run needs, whatever the shape. The caller's memory must be 64-byte aligned. */
size_t tri_gemm_scratch_bytes(int num_threads);

/* Uses the whole pool (which may be NULL), unless the product is too small to be worth waking it.
 * scratch has tri_gemm_scratch_bytes(tri_pool_threads(pool)) bytes. */
void tri_gemm_run(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *g);

/* Several products with equal n and results apart from each other, plain ones: the bits of each are
 * those of tri_gemm_run. Workers go from one product to the next without waiting for each other, so
 * that many small ones, or some large and some small, keep all of them busy. scratch has
 * tri_gemm_list_scratch_bytes. */
size_t tri_gemm_list_scratch_bytes(int num_threads, int64_t count);
void tri_gemm_run_list(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *list,
                       int64_t count);

#endif
