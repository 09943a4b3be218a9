/* Matrix products by cuBLASLt, which is opened at run time. */
#ifndef TRI_DEVICE_CUDA_BLAS_BLAS_H
#define TRI_DEVICE_CUDA_BLAS_BLAS_H

#include "base/error.h"
#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TRI_CUDA_BLAS_WORKSPACE = 64 << 20, /* room that products may use of the scratch */
    TRI_CUDA_BLAS_ALIGN = 64            /* operands of programs lie at such multiples of bytes */
};

/* c = alpha op(a) op(b) (+ c), row-major and dense: op(a) is [m, k], op(b) is [k, n]. */
typedef struct tri_cuda_product {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    bool trans_a, trans_b;
    bool accumulate;
    tri_dtype in, out;
    tri_dtype in_b; /* of b, where a is 8-bit: b may be of the other kind; else as a */
    const float *scale_a, *scale_b; /* of 8-bit operands, on the device */
    bool fast_sum;                  /* of 8-bit operands: sums may be kept in fewer bits */
    float alpha;
    tri_epilogue epilogue;
    const void *bias; /* [n], of the type of c */
    void *aux;        /* [m, n]: written by BIAS_GELU, read by GELU_GRAD */
    const void *add;  /* [m, n], of the type of c: added by ADD; may be c */
} tri_cuda_product;

/* The error says which library was looked for, and what to install. */
tr_status tri_cuda_blas_open(tri_cuda_blas **blas, tr_error *err);
void tri_cuda_blas_close(tri_cuda_blas *blas);
/* 130100 for 13.1.0; 0 when there is none. */
size_t tri_cuda_blas_version(void);

/* False when cuBLASLt has nothing for this product: alignment, or an epilogue. */
bool tri_cuda_blas_run(tri_cuda *cuda, const tri_cuda_product *product);

/* blas_kept.c: what other runs on such a GPU have measured, and what this one has, in tuning.json.
 */
tr_status tri_cuda_blas_read_kept(tri_cuda *cuda, const char *gpu, const char *path, tr_error *err);
tr_status tri_cuda_blas_save_kept(const tri_cuda *cuda, const char *path, tr_error *err);

/* blas_tune.c: measures what the library offers for a large product, whose pointers are not looked
 * at, and keeps the choice. Not while a stream is recorded. */
void tri_cuda_blas_tune(tri_cuda *cuda, const tri_cuda_product *product);

/* product.cu: a product for what cuBLASLt has nothing for (odd rows of 16-bit elements), the
 * epilogue on a finished product, and numbers of size one to measure with. */
void tri_cuda_plain_product(tri_cuda *cuda, const tri_cuda_product *product);
/* quantise.cu: the same for 8-bit a [m, k] and b [n, k]. */
void tri_cuda_plain_product8(tri_cuda *cuda, const tri_cuda_product *product);
void tri_cuda_epilogue(tri_cuda *cuda, const tri_cuda_product *product);
void tri_cuda_fill_noise(void *data, int64_t count, tri_dtype dtype, void *stream);
/* Whether two results differ in any bit, into `differs`; waits. Uses the scratch. */
bool tri_cuda_compare(tri_cuda *cuda, const void *a, const void *b, size_t bytes,
                      unsigned *differs);

#ifdef __cplusplus
}
#endif

#endif
