/* Plans of products, between blas.c, which makes and runs them, blas_tune.c, which measures, and
 * blas_kept.c, which keeps what was measured. */
#ifndef TRI_DEVICE_CUDA_BLAS_BLAS_PLAN_H
#define TRI_DEVICE_CUDA_BLAS_BLAS_PLAN_H

#include "device/cuda/blas/blas.h"
#include "device/product_choices.h"

#include <cublasLt.h>

typedef struct tri_blas_plan {
    tri_cuda_product shape; /* pointers are only compared for presence and alignment */
    unsigned alignment[4];  /* of a, b, c, and aux or add, in bytes */
    bool tf32, usable;
    bool tuned; /* the algorithm was measured, or there was nothing to measure */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} tri_blas_plan;

struct tri_cuda_blas {
    void *library;
    cublasLtHandle_t handle;
    tri_blas_plan *plans;
    size_t num_plans, capacity;
    tri_product_choices kept; /* from tuning.json, and what was measured since */
    __typeof__(&cublasLtCreate) create;
    __typeof__(&cublasLtDestroy) destroy;
    __typeof__(&cublasLtMatmul) matmul;
    __typeof__(&cublasLtMatmulDescCreate) desc_create;
    __typeof__(&cublasLtMatmulDescDestroy) desc_destroy;
    __typeof__(&cublasLtMatmulDescSetAttribute) desc_set;
    __typeof__(&cublasLtMatrixLayoutCreate) layout_create;
    __typeof__(&cublasLtMatrixLayoutDestroy) layout_destroy;
    __typeof__(&cublasLtMatmulPreferenceCreate) pref_create;
    __typeof__(&cublasLtMatmulPreferenceDestroy) pref_destroy;
    __typeof__(&cublasLtMatmulPreferenceSetAttribute) pref_set;
    __typeof__(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    /* for blas_search.c and blas_kept.c; all or none */
    __typeof__(&cublasLtMatmulAlgoInit) algo_init;
    __typeof__(&cublasLtMatmulAlgoCheck) check;
    __typeof__(&cublasLtMatmulAlgoCapGetAttribute) cap;
    __typeof__(&cublasLtMatmulAlgoConfigSetAttribute) config_set;
    __typeof__(&cublasLtMatmulAlgoConfigGetAttribute) config_get;
};

/* The plan of a product, made when it is new; NULL without memory. Valid until the next is made. */
tri_blas_plan *tri_cuda_blas_plan(tri_cuda *cuda, const tri_cuda_product *product);
/* Whether a product like this, at the usual alignment, has been measured. */
bool tri_cuda_blas_is_tuned(const tri_cuda *cuda, const tri_cuda_product *product);
/* The library's choices for a plan, the one it thinks best first; returns how many. */
int tri_cuda_blas_choices(tri_cuda_blas *blas, const tri_blas_plan *p,
                          cublasLtMatmulHeuristicResult_t *choices, int most);
bool tri_cuda_blas_call(tri_cuda *cuda, tri_blas_plan *p, const tri_cuda_product *product,
                        const cublasLtMatmulAlgo_t *algo);

/* What the library is told of the elements; a is its first operand, which is our b. */
typedef struct tri_blas_types {
    cublasComputeType_t compute;
    cudaDataType_t a, b, c;
} tri_blas_types;
tri_blas_types tri_cuda_blas_types(const tri_blas_plan *p);

/* blas_kept.c: makes the plan of a product by what was measured in another run; false when there is
 * nothing of use. *apart: it is done as a plain one, which then counts. */
bool tri_cuda_blas_recall(tri_cuda *cuda, const tri_cuda_product *product, bool *apart);
/* An algorithm made anew of the numbers that would be kept of it; false when that cannot be. */
bool tri_cuda_blas_rebuild(const tri_cuda *cuda, const tri_blas_plan *p,
                           const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgo_t *again);
/* The plan has been measured, and can be made anew. */
void tri_cuda_blas_remember(tri_cuda *cuda, const tri_blas_plan *p, double seconds,
                            double first_seconds);

/* blas_search.c: algorithms with tiles that the named ones do not have, those that fill the GPU
 * best first; and one algorithm in other clusters and orders. Both return how many. */
int tri_cuda_blas_tiles(const tri_cuda *cuda, const tri_blas_plan *p,
                        const cublasLtMatmulHeuristicResult_t *named, int num,
                        cublasLtMatmulAlgo_t *out, int most);
int tri_cuda_blas_variants(const tri_cuda *cuda, const tri_blas_plan *p,
                           const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgo_t *out, int most);

#endif
