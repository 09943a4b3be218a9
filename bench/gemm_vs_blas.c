/* The matrix product against another library's sgemm, side by side.
 *
 *     gemm_vs_blas [-i base|avx2|avx512] [-t threads] [-s gpt2|small|tiny|all|ROWSxOUTxIN] [-l
 * library.so]
 *
 * Each shape is timed in the three forms of training: y = x W^T, dx = dy W, dW += dy^T x. The two
 * take turns and neighbouring runs are compared, so that the noise of a shared machine hits both
 * alike. With more than one thread the other library is cut into one call per thread on our pool
 * (its serial build is expected), along the longer side of the result. */
#include "base/pool.h"
#include "device/cpu/gemm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The Fortran interface: column-major, everything by address. Every BLAS has it. */
typedef void (*sgemm_fn)(const char *trans_a, const char *trans_b, const int *m, const int *n,
                         const int *k, const float *alpha, const float *a, const int *lda,
                         const float *b, const int *ldb, const float *beta, float *c,
                         const int *ldc);

#define MAX_ROUNDS      500
#define DEFAULT_LIBRARY "/usr/lib/x86_64-linux-gnu/openblas-serial/libblas.so.3"

typedef struct bench {
    tri_pool *pool;
    int num_threads;
    tri_isa isa;
    void *scratch;
    sgemm_fn sgemm; /* NULL when there is nothing to compare with */
} bench;

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void *allocate(size_t bytes)
{
    size_t huge = (size_t)2 << 20;
    bytes = (bytes + huge - 1) / huge * huge;
    void *p = aligned_alloc(huge, bytes);
    if (p == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static float *random_matrix(int64_t count)
{
    float *x = allocate((size_t)count * sizeof(float));
    uint32_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
    return x;
}

/* ---- the other library ---- */

typedef struct split {
    const bench *bench;
    const tri_gemm *g;
} split;

static void call_part(void *context, int task, int worker)
{
    const split *s = context;
    const tri_gemm *g = s->g;
    int parts = s->bench->num_threads;
    int64_t m = g->m, n = g->n, i = 0, j = 0;
    (void)worker;
    if (m > n) {
        int64_t size = (m / parts + 15) / 16 * 16;
        i = task * size;
        m = task == parts - 1 ? m - i : size;
    } else {
        int64_t size = (n / parts + 15) / 16 * 16;
        j = task * size;
        n = task == parts - 1 ? n - j : size;
    }
    const float *a = g->a + (g->trans_a ? i : i * g->lda);
    const float *b = g->b + (g->trans_b ? j * g->ldb : j);
    /* Row-major c = a b is column-major c^T = b^T a^T. */
    int rows = (int)n, cols = (int)m, depth = (int)g->k;
    int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    float beta = g->accumulate ? 1.0f : 0.0f;
    s->bench->sgemm(g->trans_b ? "T" : "N", g->trans_a ? "T" : "N", &rows, &cols, &depth, &g->alpha,
                    b, &ldb, a, &lda, &beta, g->c + i * g->ldc + j, &ldc);
}

static void run_theirs(const bench *b, const tri_gemm *g)
{
    split s = {b, g};
    tri_pool_run(b->pool, b->num_threads, call_part, &s);
}

static void run_ours(const bench *b, const tri_gemm *g)
{
    tri_gemm_run(b->pool, b->isa, b->scratch, g);
}

/* ---- timing ---- */

static double time_calls(const bench *b, const tri_gemm *g,
                         void (*run)(const bench *, const tri_gemm *), int calls)
{
    /* With one thread, time of the processor: what others take of it does not count. */
    clockid_t clock = b->num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double start = read_clock(clock);
    for (int i = 0; i < calls; i++)
        run(b, g);
    return (read_clock(clock) - start) / calls;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The value a fraction of the way up the sorted list. */
static double quantile(double *x, int count, double fraction)
{
    qsort(x, (size_t)count, sizeof *x, by_value);
    return x[(int)(fraction * (count - 1))];
}

/* Prints GFLOP/s of ours and theirs and how many times faster ours is: the median over pairs of
 * neighbouring runs, which saw the same clock frequency and the same neighbours. */
static void compare(const bench *b, const tri_gemm *g)
{
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratio[MAX_ROUNDS];
    run_ours(b, g);
    double once = time_calls(b, g, run_ours, 1);
    int calls = once < 200e-6 ? (int)(200e-6 / once) + 1 : 1;
    int rounds = 0;
    for (double start = now(); rounds < 5 || (now() - start < 0.5 && rounds < MAX_ROUNDS);) {
        ours[rounds] = time_calls(b, g, run_ours, calls);
        theirs[rounds] = b->sgemm != NULL ? time_calls(b, g, run_theirs, calls) : 0;
        ratio[rounds] = theirs[rounds] / ours[rounds];
        rounds++;
    }
    printf(" | %6.1f", flops / quantile(ours, rounds, 0.2) / 1e9);
    if (b->sgemm != NULL)
        printf(" %6.1f %5.2f", flops / quantile(theirs, rounds, 0.2) / 1e9,
               quantile(ratio, rounds, 0.5));
    fflush(stdout);
}

static void run_shape(const bench *b, int64_t rows, int64_t out, int64_t in)
{
    float *x = random_matrix(rows * in), *w = random_matrix(out * in);
    float *dy = random_matrix(rows * out), *y = random_matrix(rows * out);
    float *dx = random_matrix(rows * in), *dw = random_matrix(out * in);
    tri_gemm forward = {.m = rows,
                        .n = out,
                        .k = in,
                        .a = x,
                        .lda = in,
                        .b = w,
                        .ldb = in,
                        .trans_b = true,
                        .c = y,
                        .ldc = out,
                        .alpha = 1};
    tri_gemm backward = {.m = rows,
                         .n = in,
                         .k = out,
                         .a = dy,
                         .lda = out,
                         .b = w,
                         .ldb = in,
                         .c = dx,
                         .ldc = in,
                         .alpha = 1};
    tri_gemm weights = {.m = out,
                        .n = in,
                        .k = rows,
                        .a = dy,
                        .lda = out,
                        .trans_a = true,
                        .b = x,
                        .ldb = in,
                        .c = dw,
                        .ldc = in,
                        .alpha = 1,
                        .accumulate = true};
    printf("%5ld x %5ld x %5ld", (long)rows, (long)out, (long)in);
    compare(b, &forward);
    compare(b, &backward);
    compare(b, &weights);
    printf("\n");
    free(x);
    free(w);
    free(dy);
    free(y);
    free(dx);
    free(dw);
}

static void run_set(const bench *b, const char *set)
{
    static const int gpt2[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50257, 768}};
    static const int small[][2] = {{1152, 384}, {384, 384}, {1536, 384}, {384, 1536}, {4096, 384}};
    static const int tiny[][2] = {{64, 64}, {192, 64}, {256, 64}, {64, 256}, {256, 256}};
    bool all = strcmp(set, "all") == 0;
    printf("rows x out x in: ours, theirs, ratio for y = x W^T | dx = dy W | dW += dy^T x\n");
    int one[3];
    if (sscanf(set, "%dx%dx%d", &one[0], &one[1], &one[2]) == 3)
        run_shape(b, one[0], one[1], one[2]);
    for (int rows = 256; rows <= 1024 && (all || strcmp(set, "gpt2") == 0); rows *= 4) {
        for (size_t i = 0; i < sizeof gpt2 / sizeof gpt2[0]; i++)
            run_shape(b, rows, gpt2[i][0], gpt2[i][1]);
    }
    for (size_t i = 0; i < 5 && (all || strcmp(set, "small") == 0); i++)
        run_shape(b, 2048, small[i][0], small[i][1]);
    for (int rows = 128; rows <= 2048 && (all || strcmp(set, "tiny") == 0); rows *= 4) {
        for (size_t i = 0; i < sizeof tiny / sizeof tiny[0]; i++)
            run_shape(b, rows, tiny[i][0], tiny[i][1]);
    }
}

int main(int argc, char **argv)
{
    const char *library = DEFAULT_LIBRARY, *set = "all";
    bench b = {.num_threads = 1, .isa = tri_isa_detect()};
    for (int option; (option = getopt(argc, argv, "i:t:s:l:")) != -1;) {
        if (option == 'i')
            b.isa = strcmp(optarg, "base") == 0   ? TRI_ISA_BASE
                    : strcmp(optarg, "avx2") == 0 ? TRI_ISA_AVX2
                                                  : TRI_ISA_AVX512;
        else if (option == 't')
            b.num_threads = atoi(optarg);
        else if (option == 's')
            set = optarg;
        else if (option == 'l')
            library = optarg;
        else
            return 2;
    }
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL)
        *(void **)&b.sgemm = dlsym(handle, "sgemm_");
    if (b.sgemm == NULL)
        printf("no sgemm_ in %s: our numbers alone\n", library);
    tr_error err;
    if (tri_pool_create(b.num_threads, &b.pool, &err) != TR_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    b.scratch = allocate(tri_gemm_scratch_bytes(b.num_threads));
    printf("%s, %d threads, against %s\n", tri_isa_name(b.isa), b.num_threads, library);
    run_set(&b, set);
    tri_pool_destroy(b.pool);
    free(b.scratch);
    return 0;
}
