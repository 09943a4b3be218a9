/* Choices of products between cuBLASLt and tuning.json (device/product_choices.h).
 *
 * An algorithm of the library is its number and some options. They are kept as the numbers that the
 * library gives for them, and an algorithm is made of them again by the library itself, which
 * refuses what it does not know: a file that was damaged, or edited, costs another measurement and
 * nothing else. */
#include "device/cuda/blas/blas_plan.h"

#include <stdio.h>
#include <string.h>

/* In the order of the names in product_choices.c; the first is given when an algorithm is made. */
static const struct option {
    cublasLtMatmulAlgoConfigAttributes_t what;
    size_t bytes;
} options[TRI_PRODUCT_NUMBERS] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

static tri_product_key key_of(const tri_cuda_product *q)
{
    bool float8 = tri_dtype_is_float8(q->in);
    return (tri_product_key){.m = q->m,
                             .n = q->n,
                             .k = q->k,
                             .trans_a = q->trans_a,
                             .trans_b = q->trans_b,
                             .fast_sum = float8 && q->fast_sum,
                             .in = q->in,
                             .in_b = float8 ? q->in_b : q->in,
                             .out = q->out,
                             .epilogue = q->epilogue};
}

/* ---- algorithms and numbers ---- */

static bool numbers_of(const tri_cuda_blas *blas, const cublasLtMatmulAlgo_t *algo, int64_t *number)
{
    for (int i = 0; i < TRI_PRODUCT_NUMBERS; i++) {
        uint32_t value = 0; /* little-endian: a short one fills the lower half */
        size_t written = 0;
        if (blas->config_get(algo, options[i].what, &value, options[i].bytes, &written) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
        number[i] = value;
    }
    return true;
}

static bool algorithm_of(const tri_cuda_blas *blas, const tri_blas_plan *p, const int64_t *number,
                         cublasLtMatmulAlgo_t *algo)
{
    tri_blas_types t = tri_cuda_blas_types(p);
    memset(algo, 0, sizeof *algo);
    if (number[0] > INT32_MAX ||
        blas->algo_init(blas->handle, t.compute, CUDA_R_32F, t.a, t.b, t.c, t.c, (int)number[0],
                        algo) != CUBLAS_STATUS_SUCCESS)
        return false;
    for (int i = 1; i < TRI_PRODUCT_NUMBERS; i++) {
        uint32_t value = (uint32_t)number[i];
        if (number[i] >> (8 * options[i].bytes) != 0 ||
            blas->config_set(algo, options[i].what, &value, options[i].bytes) !=
                CUBLAS_STATUS_SUCCESS)
            return false;
    }
    cublasLtMatmulHeuristicResult_t result = {0};
    return blas->check(blas->handle, p->desc, p->a, p->b, p->c, p->c, algo, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= TRI_CUDA_BLAS_WORKSPACE;
}

/* ---- for blas_tune.c ---- */

bool tri_cuda_blas_recall(tri_cuda *cuda, const tri_cuda_product *product, bool *apart)
{
    tri_cuda_blas *blas = cuda->blas;
    tri_product_key key = key_of(product);
    const tri_product_choice *kept = tri_product_choices_find(&blas->kept, &key);
    *apart = false;
    if (!kept || !blas->check)
        return false;
    tri_cuda_product q = *product; /* somewhere at the usual alignment, which is all that counts */
    q.a = q.b = q.bias = q.add = cuda->scratch;
    q.c = q.aux = cuda->scratch;
    q.scale_a = q.scale_b = cuda->scratch;
    cublasLtMatmulAlgo_t algo;
    tri_blas_plan *p = tri_cuda_blas_plan(cuda, &q);
    if (!p || (!kept->apart && !algorithm_of(blas, p, kept->number, &algo)))
        return false;
    p->tuned = true;
    p->usable = !kept->apart;
    if (p->usable)
        p->algo = algo;
    *apart = kept->apart;
    return true;
}

bool tri_cuda_blas_rebuild(const tri_cuda *cuda, const tri_blas_plan *p,
                           const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgo_t *again)
{
    int64_t number[TRI_PRODUCT_NUMBERS];
    return cuda->blas->check && numbers_of(cuda->blas, algo, number) &&
           algorithm_of(cuda->blas, p, number, again);
}

void tri_cuda_blas_remember(tri_cuda *cuda, const tri_blas_plan *p, double seconds,
                            double first_seconds)
{
    tri_cuda_blas *blas = cuda->blas;
    tri_product_choice choice = {.key = key_of(&p->shape),
                                 .apart = !p->usable,
                                 .seconds = seconds,
                                 .first_seconds = first_seconds};
    if (choice.apart || numbers_of(blas, &p->algo, choice.number))
        (void)tri_product_choices_put(&blas->kept, &choice); /* without memory: measured again */
}

/* ---- the file ---- */

tr_status tri_cuda_blas_read_kept(tri_cuda *cuda, const char *gpu, const char *path, tr_error *err)
{
    tri_product_choices *kept = &cuda->blas->kept;
    snprintf(kept->gpu, sizeof kept->gpu, "%s", gpu);
    kept->library = (int64_t)tri_cuda_blas_version();
    return tri_product_choices_read(kept, path, err);
}

tr_status tri_cuda_blas_save_kept(const tri_cuda *cuda, const char *path, tr_error *err)
{
    return tri_product_choices_save(&cuda->blas->kept, path, err);
}
