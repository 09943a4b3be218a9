/* Measures cuBLASLt's choices for a large product before its first call, unless another run did
 * (blas_kept.c).
 *
 * The library names a few algorithms, the one it thinks fastest first; it is wrong by up to a third
 * for single shapes. These are timed on noise, then others whose tiles fill the GPU better
 * (blas_search.c), then other clusters of the fastest, for as long as SEARCH_SECONDS. The few that
 * look fastest are timed again in turns: by then the GPU is as hot as it is in a training, where
 * its clock is lower and memory is faster for it.
 *
 * The fastest is kept whose result has the same bits as the first one's: tiles and clusters differ,
 * the order in which a sum is added does not. So what was measured decides how long a step takes,
 * and never what it computes: two runs have the same bits whatever else the GPU was doing while
 * they began.
 *
 * Only an algorithm that is faster by a quarter is taken with other bits, which no noise makes of
 * equals; and a product with an epilogue is then also tried as a plain one and the epilogue after
 * it. Small products are not measured. */
#include "device/cuda/blas/blas_plan.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_CHOICES = 16, /* that the library is asked for */
    FEW_CHOICES = 4,
    MOST_TILES = 16, /* others that are tried, and of these and the named ones: */
    BEST_TILES = 3,  /* those whose clusters are tried */
    MOST_VARIANTS = 16,
    MOST_FOUND = MOST_CHOICES + MOST_TILES + BEST_TILES * MOST_VARIANTS,
    FINAL = 6, /* of the fastest in the last turns */
    TURNS = 3, /* of which the first only heats */
    MOST_TIMES = 8
};
#define LEAST_FLOPS    4e9
#define ENOUGH_SECONDS 2e-3 /* for one measurement, if that is more than one call */
#define LOOK_SECONDS   5e-4 /* the same, of one that is only looked at */
#define TURN_SECONDS   5e-3 /* the same, in the last turns */
#define SEARCH_SECONDS 0.1  /* for what the library did not name, */
#define SEARCH_CALLS   50   /* or so many calls */
#define NEAR           1.08 /* how much slower than the fastest may still prove faster */
#define OTHER_BITS     1.25 /* how much faster they must be */

typedef struct product_bench {
    tri_cuda *cuda;
    tri_cuda_product product;
    void *memory, *first; /* first: the result of the first algorithm */
    size_t result_bytes;
    cudaEvent_t begin, end;
    double enough; /* seconds of a measurement */
} product_bench;

/* ---- operands ---- */

static size_t padded(int64_t count, tri_dtype dtype)
{
    return ((size_t)count * tri_dtype_bytes(dtype) + 255) / 256 * 256;
}

/* One allocation for all; false when the device has no room, which is no reason to complain. */
static bool make_operands(product_bench *b)
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

typedef bool (*call_fn)(product_bench *b, const void *context);

static bool call_algo(product_bench *b, const void *context)
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

static bool call_apart(product_bench *b, const void *context)
{
    (void)context;
    tri_cuda_product plain = plain_of(&b->product);
    if (!tri_cuda_blas_run(b->cuda, &plain))
        return false;
    tri_cuda_epilogue(b->cuda, &b->product);
    return true;
}

/* Seconds of a call, after one that is not counted; 0 when it does not work. */
static double seconds_of(product_bench *b, call_fn call, const void *context)
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
        double wanted = good ? b->enough / each : 1;
        times = wanted > MOST_TIMES ? MOST_TIMES : wanted < 1 ? 1 : (int)wanted;
    }
    return 0;
}

/* Whether the last result equals that of the first algorithm. */
static bool same_bits(const product_bench *b)
{
    unsigned differs = 1;
    return tri_cuda_compare(b->cuda, b->product.c, b->first, b->result_bytes, &differs) && !differs;
}

/* ---- the choice ---- */

typedef struct product_candidate {
    cublasLtMatmulAlgo_t algo;
    double seconds; /* 0: it does not work */
    bool same;      /* bits as the first */
} product_candidate;

typedef struct field {
    product_candidate all[MOST_FOUND];
    int num;
} field;

static void add(product_bench *b, field *f, const cublasLtMatmulAlgo_t *algo)
{
    if (f->num == MOST_FOUND)
        return;
    product_candidate *c = &f->all[f->num++];
    *c = (product_candidate){*algo, seconds_of(b, call_algo, algo), f->num == 1};
    if (c->same)
        cudaMemcpyAsync(b->first, b->product.c, b->result_bytes, cudaMemcpyDeviceToDevice,
                        b->cuda->stream);
    else if (c->seconds > 0)
        c->same = same_bits(b);
}

/* One of the search is only kept with the same bits: a look is too short to say what is faster by
 * so much that other bits are worth it. */
static void add_same(product_bench *b, field *f, const cublasLtMatmulAlgo_t *algo)
{
    int before = f->num;
    add(b, f, algo);
    if (f->num > before && !f->all[before].same)
        f->num = before;
}

/* The next fastest of those with the bits of the first; -1: there is none. */
static int next_best(const field *f, double after)
{
    int best = -1;
    for (int i = 0; i < f->num; i++)
        if (f->all[i].same && f->all[i].seconds > after &&
            (best < 0 || f->all[i].seconds < f->all[best].seconds))
            best = i;
    return best;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What the library has beside the named ones. */
static void search(product_bench *b, field *f, const cublasLtMatmulHeuristicResult_t *named,
                   int num)
{
    cublasLtMatmulAlgo_t more[MOST_TILES > MOST_VARIANTS ? MOST_TILES : MOST_VARIANTS];
    double calls = SEARCH_CALLS * f->all[0].seconds;
    double until = now() + (calls > SEARCH_SECONDS ? calls : SEARCH_SECONDS);
    b->enough = LOOK_SECONDS;
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->product);
    int count = tri_cuda_blas_tiles(b->cuda, p, named, num, more, MOST_TILES);
    for (int i = 0; i < count && now() < until; i++)
        add_same(b, f, &more[i]);
    int best[BEST_TILES], num_best = 0;
    for (double after = 0; num_best < BEST_TILES; num_best++) {
        int next = next_best(f, after);
        if (next < 0)
            break;
        best[num_best] = next;
        after = f->all[next].seconds;
    }
    for (int t = 0; t < num_best; t++) {
        count = tri_cuda_blas_variants(b->cuda, p, &f->all[best[t]].algo, more, MOST_VARIANTS);
        for (int i = 0; i < count && now() < until; i++)
            add_same(b, f, &more[i]);
    }
}

/* Seconds of a call among many, with nothing before them. */
static double seconds_in_turn(product_bench *b, const product_candidate *c)
{
    float ms = 0;
    int times = (int)ceil(TURN_SECONDS / c->seconds);
    bool good = cudaEventRecord(b->begin, b->cuda->stream) == cudaSuccess;
    for (int i = 0; i < times; i++)
        good = good && call_algo(b, &c->algo);
    good = good && cudaEventRecord(b->end, b->cuda->stream) == cudaSuccess &&
           cudaEventSynchronize(b->end) == cudaSuccess &&
           cudaEventElapsedTime(&ms, b->begin, b->end) == cudaSuccess;
    return good ? (double)ms * 1e-3 / times : INFINITY;
}

/* The fastest of the first and those near the fastest, in turns. */
static int last_turns(product_bench *b, field *f)
{
    int which[FINAL + 1] = {0}, num = 1;
    double total[FINAL + 1] = {0}, after = 0;
    int fastest = next_best(f, 0);
    for (int next = fastest; next >= 0 && num <= FINAL; next = next_best(f, after)) {
        after = f->all[next].seconds;
        if (after > NEAR * f->all[fastest].seconds)
            break;
        if (next != 0)
            which[num++] = next;
    }
    for (int t = 0; num > 1 && t < TURNS; t++)
        for (int i = 0; i < num; i++) {
            double seconds = seconds_in_turn(b, &f->all[which[i]]);
            total[i] += t > 0 ? seconds : 0;
        }
    int best = 0;
    for (int i = 1; i < num; i++)
        if (total[i] < total[best])
            best = i;
    return which[best];
}

/* The fastest with the bits of the first, or the fastest of all by far. */
static int fastest_of(product_bench *b, field *f)
{
    int any = 0, same = next_best(f, 0);
    for (int i = 1; i < f->num; i++)
        if (f->all[i].seconds > 0 && f->all[i].seconds < f->all[any].seconds)
            any = i;
    return f->all[any].seconds * OTHER_BITS < f->all[same].seconds ? any : last_turns(b, f);
}

/* What was made of the numbers of an algorithm, beside it: usually the same bytes, and otherwise
 * perhaps the same kernel. */
static bool is_as_good(product_bench *b, const product_candidate *best,
                       const cublasLtMatmulAlgo_t *again)
{
    if (memcmp(&best->algo, again, sizeof *again) == 0)
        return true;
    double seconds = best->same ? seconds_of(b, call_algo, again) : 0;
    return seconds > 0 && seconds < NEAR * best->seconds && same_bits(b);
}

/* Now and then the library names a single algorithm for a shape, and a slow one. What it names for
 * fewer rows may do; a call says whether it does. */
static int choices_nearby(product_bench *b, cublasLtMatmulHeuristicResult_t *choices, int most)
{
    tri_cuda_product fewer = b->product;
    fewer.m = b->product.m * 3 / 4 / 128 * 128;
    tri_blas_plan *p = fewer.m > 0 ? tri_cuda_blas_plan(b->cuda, &fewer) : NULL;
    return p && p->usable ? tri_cuda_blas_choices(b->cuda->blas, p, choices, most) : 0;
}

/* True when the product is better done as a plain one. */
static bool tune(product_bench *b, field *f)
{
    tri_cuda_blas *blas = b->cuda->blas;
    cublasLtMatmulHeuristicResult_t named[MOST_CHOICES];
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->product);
    int num = p && p->usable ? tri_cuda_blas_choices(blas, p, named, MOST_CHOICES) : 0;
    if (num < 1)
        return false;
    if (num < FEW_CHOICES)
        num += choices_nearby(b, named + num, MOST_CHOICES - num);
    p = tri_cuda_blas_plan(b->cuda, &b->product); /* it moves when others are made */
    p->tuned = true;
    for (int i = 0; i < num; i++)
        add(b, f, &named[i].algo);
    if (f->all[0].seconds <= 0)
        return false;
    search(b, f, named, num);
    const product_candidate *best = &f->all[fastest_of(b, f)];
    b->enough = ENOUGH_SECONDS;
    double apart = b->product.epilogue == TRI_EPILOGUE_BIAS_GELU ||
                           b->product.epilogue == TRI_EPILOGUE_GELU_GRAD
                       ? seconds_of(b, call_apart, NULL)
                       : 0;
    p = tri_cuda_blas_plan(b->cuda, &b->product);
    p->algo = best->algo;
    p->usable = apart <= 0 || best->seconds < apart * OTHER_BITS;
    cublasLtMatmulAlgo_t again;
    bool keeps = !p->usable || (tri_cuda_blas_rebuild(b->cuda, p, &best->algo, &again) &&
                                is_as_good(b, best, &again));
    if (keeps && p->usable)
        p->algo = again; /* what later runs will do */
    if (keeps)
        tri_cuda_blas_remember(b->cuda, p, p->usable ? best->seconds : apart, f->all[0].seconds);
    return !p->usable;
}

static bool measure(tri_cuda *cuda, const tri_cuda_product *product)
{
    product_bench b = {.cuda = cuda, .product = *product, .enough = ENOUGH_SECONDS};
    if (!make_operands(&b))
        return false;
    field *f = calloc(1, sizeof *f);
    bool apart = f && cudaEventCreate(&b.begin) == cudaSuccess &&
                 cudaEventCreate(&b.end) == cudaSuccess && tune(&b, f);
    free(f);
    cudaEventDestroy(b.begin);
    cudaEventDestroy(b.end);
    cudaStreamSynchronize(cuda->stream);
    cudaFree(b.memory);
    return apart;
}

void tri_cuda_blas_tune(tri_cuda *cuda, const tri_cuda_product *product)
{
    const tri_cuda_product *q = product;
    bool apart;
    if (2.0 * (double)q->m * (double)q->n * (double)q->k < LEAST_FLOPS || q->in == TRI_F32 ||
        cuda->scratch_bytes < TRI_CUDA_BLAS_WORKSPACE || tri_cuda_blas_is_tuned(cuda, q))
        return;
    if (!tri_cuda_blas_recall(cuda, q, &apart))
        apart = measure(cuda, q);
    if (apart) {
        tri_cuda_product plain = plain_of(product);
        tri_cuda_blas_tune(cuda, &plain);
    }
}
