/* cuBLASLt by its entry points, so that the program needs it only when a GPU is used.
 *
 * cuBLASLt thinks in columns: a row-major c [m, n] is its column-major [n, m], so that
 * c = op(a) op(b) becomes c^T = op(b)^T op(a)^T, with the operands in the other order. A plan (what
 * the library needs to know of a product, and the algorithm it chose) is made once for each kind of
 * product and kept: recordings and replays then pay nothing for it. For large products the choice
 * is measured before the first call (blas_tune.c). */
#include "device/cuda/blas/blas_plan.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so",
                                        "/usr/local/cuda/lib/libcublasLt.so", "libcublasLt.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

size_t tri_cuda_blas_version(void)
{
    void *library = open_library(), *entry = library ? dlsym(library, "cublasLtGetVersion") : NULL;
    __typeof__(&cublasLtGetVersion) version;
    memcpy(&version, &entry, sizeof entry);
    size_t number = entry ? version() : 0;
    if (library)
        dlclose(library);
    return number;
}

typedef struct library_entry {
    const char *name;
    void *to;
} library_entry;

static bool find_all(const tri_cuda_blas *blas, const library_entry *entries, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        void *found = dlsym(blas->library, entries[i].name);
        if (!found)
            return false;
        memcpy(entries[i].to, &found, sizeof found);
    }
    return true;
}

static bool find_entries(tri_cuda_blas *blas)
{
    const library_entry entries[] = {
        {"cublasLtCreate", &blas->create},
        {"cublasLtDestroy", &blas->destroy},
        {"cublasLtMatmul", &blas->matmul},
        {"cublasLtMatmulDescCreate", &blas->desc_create},
        {"cublasLtMatmulDescDestroy", &blas->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &blas->desc_set},
        {"cublasLtMatrixLayoutCreate", &blas->layout_create},
        {"cublasLtMatrixLayoutDestroy", &blas->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &blas->pref_create},
        {"cublasLtMatmulPreferenceDestroy", &blas->pref_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &blas->pref_set},
        {"cublasLtMatmulAlgoGetHeuristic", &blas->heuristic},
    };
    const library_entry search[] = {
        {"cublasLtMatmulAlgoInit", &blas->algo_init},
        {"cublasLtMatmulAlgoCheck", &blas->check},
        {"cublasLtMatmulAlgoCapGetAttribute", &blas->cap},
        {"cublasLtMatmulAlgoConfigSetAttribute", &blas->config_set},
        {"cublasLtMatmulAlgoConfigGetAttribute", &blas->config_get},
    };
    if (!find_all(blas, search, sizeof search / sizeof *search))
        blas->check = NULL; /* nothing to search with */
    return find_all(blas, entries, sizeof entries / sizeof *entries);
}

tr_status tri_cuda_blas_open(tri_cuda_blas **out, tr_error *err)
{
    tri_cuda_blas *blas = calloc(1, sizeof *blas);
    if (!blas)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for cuBLASLt");
    blas->library = open_library();
    if (!blas->library || !find_entries(blas)) {
        tri_cuda_blas_close(blas);
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.device is cuda, but libcublasLt.so (12 or 13) was not found; install "
                        "cuBLAS (Debian and Ubuntu: libcublas-13-0 from NVIDIA's repository), or "
                        "name its folder in LD_LIBRARY_PATH");
    }
    cublasStatus_t code = blas->create(&blas->handle);
    if (code != CUBLAS_STATUS_SUCCESS) {
        tri_cuda_blas_close(blas);
        return tri_fail(err, TR_ERROR_RUNTIME, "cuBLASLt does not start: status %d", (int)code);
    }
    *out = blas;
    return TR_OK;
}

static void drop_plan(tri_cuda_blas *blas, tri_blas_plan *p)
{
    if (p->desc)
        blas->desc_destroy(p->desc);
    if (p->a)
        blas->layout_destroy(p->a);
    if (p->b)
        blas->layout_destroy(p->b);
    if (p->c)
        blas->layout_destroy(p->c);
}

void tri_cuda_blas_close(tri_cuda_blas *blas)
{
    if (!blas)
        return;
    for (size_t i = 0; i < blas->num_plans; i++)
        drop_plan(blas, &blas->plans[i]);
    free(blas->plans);
    tri_product_choices_fini(&blas->kept);
    if (blas->handle)
        blas->destroy(blas->handle);
    if (blas->library)
        dlclose(blas->library);
    free(blas);
}

static cudaDataType_t type_of(tri_dtype dtype)
{
    switch (dtype) {
    case TRI_BF16:
        return CUDA_R_16BF;
    case TRI_F16:
        return CUDA_R_16F;
    case TRI_F8E4M3:
        return CUDA_R_8F_E4M3;
    case TRI_F8E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_32F;
    }
}

static unsigned alignment_of(const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    uintptr_t most = TRI_CUDA_BLAS_ALIGN;
    return (unsigned)(address == 0 || (address & -address) > most ? most : address & -address);
}

static bool same_plan(const tri_blas_plan *p, const tri_cuda_product *q, const unsigned *alignment,
                      bool tf32)
{
    const tri_cuda_product *s = &p->shape;
    return s->m == q->m && s->n == q->n && s->k == q->k && s->trans_a == q->trans_a &&
           s->trans_b == q->trans_b && s->in == q->in && s->out == q->out &&
           (!tri_dtype_is_float8(q->in) || (s->in_b == q->in_b && s->fast_sum == q->fast_sum)) &&
           s->epilogue == q->epilogue && p->tf32 == tf32 &&
           memcmp(p->alignment, alignment, sizeof p->alignment) == 0;
}

tri_blas_types tri_cuda_blas_types(const tri_blas_plan *p)
{
    const tri_cuda_product *q = &p->shape;
    bool tf32 = q->in == TRI_F32 && p->tf32;
    return (tri_blas_types){.compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                            .a = type_of(tri_dtype_is_float8(q->in) ? q->in_b : q->in),
                            .b = type_of(q->in),
                            .c = type_of(q->out)};
}

static bool describe(tri_cuda_blas *blas, tri_blas_plan *p)
{
    const tri_cuda_product *q = &p->shape;
    tri_blas_types types = tri_cuda_blas_types(p);
    cublasOperation_t first = q->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = q->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    static const cublasLtEpilogue_t epilogues[] = {
        [TRI_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [TRI_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [TRI_EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [TRI_EPILOGUE_GELU_GRAD] = CUBLASLT_EPILOGUE_DGELU,
        [TRI_EPILOGUE_ADD] = CUBLASLT_EPILOGUE_DEFAULT,
    };
    cublasLtEpilogue_t epilogue = epilogues[q->epilogue];
    bool float8 = tri_dtype_is_float8(q->in);
    int8_t fast = q->fast_sum;
    bool good = blas->desc_create(&p->desc, types.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
#define SET(what, value)                                                                           \
    good = good && blas->desc_set(p->desc, what, &(value), sizeof(value)) == CUBLAS_STATUS_SUCCESS
    SET(CUBLASLT_MATMUL_DESC_TRANSA, first);
    SET(CUBLASLT_MATMUL_DESC_TRANSB, second);
    SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (float8)
        SET(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    if (q->epilogue == TRI_EPILOGUE_BIAS || q->epilogue == TRI_EPILOGUE_BIAS_GELU)
        SET(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, types.c);
    if (q->epilogue == TRI_EPILOGUE_BIAS_GELU || q->epilogue == TRI_EPILOGUE_GELU_GRAD) {
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, q->n);
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, types.c);
    }
    uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n, k = (uint64_t)q->k;
    good = good &&
           blas->layout_create(&p->a, types.a, q->trans_b ? k : n, q->trans_b ? n : k,
                               q->trans_b ? q->k : q->n) == CUBLAS_STATUS_SUCCESS &&
           blas->layout_create(&p->b, types.b, q->trans_a ? m : k, q->trans_a ? k : m,
                               q->trans_a ? q->m : q->k) == CUBLAS_STATUS_SUCCESS &&
           blas->layout_create(&p->c, types.c, n, m, q->n) == CUBLAS_STATUS_SUCCESS;
    return good;
}

/* Where the operands of one call lie; part of the description, not of the call. */
static bool blas_point(tri_cuda_blas *blas, tri_blas_plan *p, const tri_cuda_product *q)
{
    bool good = true;
    if (q->epilogue == TRI_EPILOGUE_BIAS || q->epilogue == TRI_EPILOGUE_BIAS_GELU)
        SET(CUBLASLT_MATMUL_DESC_BIAS_POINTER, q->bias);
    if (q->epilogue == TRI_EPILOGUE_BIAS_GELU || q->epilogue == TRI_EPILOGUE_GELU_GRAD)
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, q->aux);
    if (tri_dtype_is_float8(q->in)) {
        SET(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, q->scale_b);
        SET(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, q->scale_a);
    }
    return good;
#undef SET
}

int tri_cuda_blas_choices(tri_cuda_blas *blas, const tri_blas_plan *p,
                          cublasLtMatmulHeuristicResult_t *choices, int most)
{
    cublasLtMatmulPreference_t pref = NULL;
    if (blas->pref_create(&pref) != CUBLAS_STATUS_SUCCESS)
        return 0;
    size_t workspace = TRI_CUDA_BLAS_WORKSPACE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        unsigned value;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->alignment[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->alignment[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
         p->shape.epilogue == TRI_EPILOGUE_ADD ? p->alignment[3] : p->alignment[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->alignment[2]},
    };
    bool good = blas->pref_set(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                               sizeof workspace) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        good = good && blas->pref_set(pref, alignments[i].what, &alignments[i].value,
                                      sizeof alignments[i].value) == CUBLAS_STATUS_SUCCESS;
    int found = 0;
    good = good && blas->heuristic(blas->handle, p->desc, p->a, p->b, p->c, p->c, pref, most,
                                   choices, &found) == CUBLAS_STATUS_SUCCESS;
    blas->pref_destroy(pref);
    return good ? found : 0;
}

static bool choose(tri_cuda_blas *blas, tri_blas_plan *p)
{
    cublasLtMatmulHeuristicResult_t first;
    if (tri_cuda_blas_choices(blas, p, &first, 1) == 0 || first.state != CUBLAS_STATUS_SUCCESS)
        return false;
    p->algo = first.algo;
    return true;
}

static void alignments_of(const tri_cuda_product *q, unsigned alignment[4])
{
    alignment[0] = alignment_of(q->a);
    alignment[1] = alignment_of(q->b);
    alignment[2] = alignment_of(q->c);
    alignment[3] = alignment_of(q->epilogue == TRI_EPILOGUE_ADD ? q->add : q->aux);
}

static tri_blas_plan *find_plan(const tri_cuda *cuda, const tri_cuda_product *q)
{
    unsigned alignment[4];
    alignments_of(q, alignment);
    for (size_t i = 0; i < cuda->blas->num_plans; i++)
        if (same_plan(&cuda->blas->plans[i], q, alignment, cuda->tf32))
            return &cuda->blas->plans[i];
    return NULL;
}

bool tri_cuda_blas_is_tuned(const tri_cuda *cuda, const tri_cuda_product *q)
{
    const tri_blas_plan *p = find_plan(cuda, q);
    return p && p->tuned;
}

tri_blas_plan *tri_cuda_blas_plan(tri_cuda *cuda, const tri_cuda_product *q)
{
    tri_cuda_blas *blas = cuda->blas;
    tri_blas_plan *old = find_plan(cuda, q);
    if (old)
        return old;
    if (blas->num_plans == blas->capacity) {
        size_t capacity = blas->capacity ? 2 * blas->capacity : 64;
        tri_blas_plan *plans = realloc(blas->plans, capacity * sizeof *plans);
        if (!plans)
            return NULL;
        blas->plans = plans;
        blas->capacity = capacity;
    }
    tri_blas_plan *p = &blas->plans[blas->num_plans++];
    *p = (tri_blas_plan){.shape = *q, .tf32 = cuda->tf32};
    alignments_of(q, p->alignment);
    /* Rows of aux must begin at multiples of 16 bytes. */
    bool aux_fits = !q->aux || q->n * (int64_t)tri_dtype_bytes(q->out) % 16 == 0;
    p->usable = aux_fits && describe(blas, p) && blas_point(blas, p, q) && choose(blas, p);
    return p;
}

bool tri_cuda_blas_call(tri_cuda *cuda, tri_blas_plan *p, const tri_cuda_product *q,
                        const cublasLtMatmulAlgo_t *algo)
{
    bool adds = q->epilogue == TRI_EPILOGUE_ADD;
    float beta = q->accumulate || adds ? 1 : 0;
    return blas_point(cuda->blas, p, q) &&
           cuda->blas->matmul(cuda->blas->handle, p->desc, &q->alpha, q->b, p->a, q->a, p->b, &beta,
                              adds ? q->add : q->c, p->c, q->c, p->c, algo, cuda->scratch,
                              TRI_CUDA_BLAS_WORKSPACE, cuda->stream) == CUBLAS_STATUS_SUCCESS;
}

bool tri_cuda_blas_run(tri_cuda *cuda, const tri_cuda_product *q)
{
    tri_blas_plan *p = tri_cuda_blas_plan(cuda, q);
    return p && p->usable && tri_cuda_blas_call(cuda, p, q, &p->algo);
}
