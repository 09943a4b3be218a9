/* Measures cuBLASLt's choices for a large product before its first call.
 *
 * The library names a few algorithms, the one it thinks fastest first; it is wrong by up to a third
 * for single shapes. Each is timed on noise, and the fastest is kept whose result has the same bits
 * as the first one's: tiles and clusters differ, the order in which a sum is added does not. So
 * what was measured decides how long a step takes, and never what it computes: two runs have the
 * same bits whatever else the GPU was doing while they began.
 *
 * Only an algorithm that is faster by a quarter is taken with other bits, which no noise makes of
 * equals; and a product with an epilogue is then also tried as a plain one and the epilogue after
 * it. Small products are not measured. */
#include "device/cuda/blas_plan.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum { MOST_CHOICES = 16, FEW_CHOICES = 4, ROUNDS = 2, MOST_TIMES = 8 };
#define LEAST_FLOPS    4e9
#define ENOUGH_SECONDS 2e-3 /* for one measurement, if that is more than one call */
#define OTHER_BITS     1.25 /* how much faster they must be */

typedef struct bench {
    tri_cuda *cuda;
    tri_cuda_product product;
    void *memory, *first; /* first: the result of the first algorithm */
    size_t result_bytes;
    cudaEvent_t begin, end;
} bench;

/* ---- operands ---- */

static size_t padded(int64_t count, tri_dtype dtype)
{
    return ((size_t)count * tri_dtype_bytes(dtype) + 255) / 256 * 256;
}

/* One allocation for all; false when the device has no room, which is no reason to complain. */
static bool make_operands(bench *b)
{
    tri_cuda_product *q = &b->product;
    size_t a = padded(q->m * q->k, q->in), w = padded(q->k * q->n, q->in);
    bool float8 = tri_dtype_is_float8(q->in);
    size_t c = padded(q->m * q->n, q->out), row = padded(q->n, q->out);
    bool third = q->epilogue == TRI_EPILOGUE_BIAS_GELU || q->epilogue == TRI_EPILOGUE_GELU_GRAD ||
                 q->epilogue == TRI_EPILOGUE_ADD;
    size_t free_bytes = 0, total = 0, scales = 2 * TRI_CUDA_BLAS_ALIGN;
    size_t bytes = a + w + 2 * c + row + (third ? c : 0) + scales;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || bytes + (bytes >> 4) > free_bytes)
        return false;
    if (cudaMalloc(&b->memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    char *at = b->memory;
    q->a = at;
    q->b = at + a;
    q->bias = at + a + w;
    q->c = at + a + w + row;
    b->first = at + a + w + row + c;
    void *more = third ? at + a + w + row + 2 * c : NULL;
    q->aux = q->epilogue == TRI_EPILOGUE_ADD ? NULL : more;
    q->add = q->epilogue == TRI_EPILOGUE_ADD ? more : NULL;
    q->accumulate = false;
    b->result_bytes = (size_t)(q->m * q->n) * tri_dtype_bytes(q->out);
    void *stream = b->cuda->stream;
    float *scale = (float *)(at + bytes - scales);
    q->scale_a = float8 ? scale : NULL;
    q->scale_b = float8 ? scale + TRI_CUDA_BLAS_ALIGN / sizeof *scale : NULL;
    tri_cuda_fill_noise(scale, 2 * TRI_CUDA_BLAS_ALIGN / (int64_t)sizeof *scale, TRI_F32, stream);
    tri_cuda_fill_noise(at, (int64_t)(a / tri_dtype_bytes(q->in)), q->in, stream);
    tri_cuda_fill_noise(at + a, (int64_t)(w / tri_dtype_bytes(q->in)), float8 ? q->in_b : q->in,
                        stream);
    tri_cuda_fill_noise(at + a + w, q->n, q->out, stream);
    if (third)
        tri_cuda_fill_noise(more, q->m * q->n, q->out, stream);
    return true;
}

/* ---- one measurement ---- */

typedef bool (*call_fn)(bench *b, const void *context);

static bool call_algo(bench *b, const void *context)
{
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->product);
    return p && tri_cuda_blas_call(b->cuda, p, &b->product, context);
}

static tri_cuda_product plain_of(const tri_cuda_product *product)
{
    tri_cuda_product plain = *product;
    plain.epilogue = TRI_EPILOGUE_NONE;
    plain.bias = plain.add = NULL;
    plain.aux = NULL;
    return plain;
}

static bool call_apart(bench *b, const void *context)
{
    (void)context;
    tri_cuda_product plain = plain_of(&b->product);
    if (!tri_cuda_blas_run(b->cuda, &plain))
        return false;
    tri_cuda_epilogue(b->cuda, &b->product);
    return true;
}

/* Seconds of a call, after one that is not counted; 0 when it does not work. */
static double seconds_of(bench *b, call_fn call, const void *context)
{
    float ms = 0;
    int times = 1;
    bool good = call(b, context);
    for (int t = 0; good && t < 2; t++) { /* the first finds how many fill a measurement */
        good = cudaEventRecord(b->begin, b->cuda->stream) == cudaSuccess;
        for (int i = 0; i < times; i++)
            good = good && call(b, context);
        good = good && cudaEventRecord(b->end, b->cuda->stream) == cudaSuccess &&
               cudaEventSynchronize(b->end) == cudaSuccess &&
               cudaEventElapsedTime(&ms, b->begin, b->end) == cudaSuccess && ms > 0;
        double each = (double)ms * 1e-3 / times;
        if (t == 1)
            return good ? each : 0;
        double wanted = good ? ENOUGH_SECONDS / each : 1;
        times = wanted > MOST_TIMES ? MOST_TIMES : wanted < 1 ? 1 : (int)wanted;
    }
    return 0;
}

/* Whether the last result equals that of the first algorithm. */
static bool same_bits(const bench *b)
{
    unsigned differs = 1;
    return tri_cuda_compare(b->cuda, b->product.c, b->first, b->result_bytes, &differs) && !differs;
}

/* ---- the choice ---- */

typedef struct candidate {
    double seconds;
    bool same;
} candidate;

static void measure(bench *b, const cublasLtMatmulHeuristicResult_t *choices, int num,
                    candidate *found)
{
    for (int i = 0; i < num; i++) {
        found[i] = (candidate){seconds_of(b, call_algo, &choices[i].algo), i == 0};
        if (i == 0)
            cudaMemcpyAsync(b->first, b->product.c, b->result_bytes, cudaMemcpyDeviceToDevice,
                            b->cuda->stream);
        else if (found[i].seconds > 0)
            found[i].same = same_bits(b);
    }
    for (int r = 1; r < ROUNDS; r++)
        for (int i = 0; i < num; i++) {
            if (found[i].seconds <= 0 || found[i].seconds > 1.2 * found[0].seconds)
                continue;
            double again = seconds_of(b, call_algo, &choices[i].algo);
            if (again > 0 && again < found[i].seconds)
                found[i].seconds = again;
        }
}

/* The fastest with the bits of the first, or the fastest of all by far. */
static int fastest(const candidate *found, int num)
{
    int same = 0, any = 0;
    for (int i = 1; i < num; i++) {
        if (found[i].seconds <= 0)
            continue;
        if (found[i].same && found[i].seconds < found[same].seconds)
            same = i;
        if (found[i].seconds < found[any].seconds)
            any = i;
    }
    return found[any].seconds * OTHER_BITS < found[same].seconds ? any : same;
}

/* Now and then the library names a single algorithm for a shape, and a slow one. What it names for
 * fewer rows may do; a call says whether it does. */
static int choices_nearby(bench *b, cublasLtMatmulHeuristicResult_t *choices, int most)
{
    tri_cuda_product fewer = b->product;
    fewer.m = b->product.m * 3 / 4 / 128 * 128;
    tri_blas_plan *p = fewer.m > 0 ? tri_cuda_blas_plan(b->cuda, &fewer) : NULL;
    return p && p->usable ? tri_cuda_blas_choices(b->cuda->blas, p, choices, most) : 0;
}

/* True when the product is better done as a plain one. */
static bool tune(bench *b)
{
    tri_cuda_blas *blas = b->cuda->blas;
    cublasLtMatmulHeuristicResult_t choices[MOST_CHOICES];
    candidate found[MOST_CHOICES] = {{0}};
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->product);
    int num = p && p->usable ? tri_cuda_blas_choices(blas, p, choices, MOST_CHOICES) : 0;
    if (num < 1)
        return false;
    if (num < FEW_CHOICES)
        num += choices_nearby(b, choices + num, MOST_CHOICES - num);
    p = tri_cuda_blas_plan(b->cuda, &b->product); /* it moves when others are made */
    p->tuned = true;
    measure(b, choices, num, found);
    if (found[0].seconds <= 0)
        return false;
    int best = fastest(found, num);
    double apart = b->product.epilogue == TRI_EPILOGUE_BIAS_GELU ||
                           b->product.epilogue == TRI_EPILOGUE_GELU_GRAD
                       ? seconds_of(b, call_apart, NULL)
                       : 0;
    p = tri_cuda_blas_plan(b->cuda, &b->product);
    p->algo = choices[best].algo;
    p->usable = apart <= 0 || found[best].seconds < apart * OTHER_BITS;
    return !p->usable;
}

void tri_cuda_blas_tune(tri_cuda *cuda, const tri_cuda_product *product)
{
    const tri_cuda_product *q = product;
    bench b = {.cuda = cuda, .product = *q};
    if (2.0 * (double)q->m * (double)q->n * (double)q->k < LEAST_FLOPS || q->in == TRI_F32 ||
        cuda->scratch_bytes < TRI_CUDA_BLAS_WORKSPACE || tri_cuda_blas_is_tuned(cuda, q) ||
        !make_operands(&b))
        return;
    bool apart = cudaEventCreate(&b.begin) == cudaSuccess &&
                 cudaEventCreate(&b.end) == cudaSuccess && tune(&b);
    cudaEventDestroy(b.begin);
    cudaEventDestroy(b.end);
    cudaStreamSynchronize(cuda->stream);
    cudaFree(b.memory);
    if (apart) {
        tri_cuda_product plain = plain_of(product);
        tri_cuda_blas_tune(cuda, &plain);
    }
}
