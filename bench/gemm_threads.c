/* What the threads after the first one add to a matrix product.
 *
 *     gemm_threads [threads (2)] [rounds (5)] [rows] [dim] [ffn]
 *
 * First the cores themselves: one thread, then all at once, multiply what fits the nearest caches,
 * over and over. Where all together make hardly more than one, they share a core, whatever the
 * system says about it; virtual machines do so at times. Then the products of a
 * transformer's layer (2048 rows, 384 wide, 1536 in its feed-forward, unless told otherwise): on
 * one thread, on all, and on all with a product for each, which is as good as it can get. The
 * three take turns; a figure is the median of the rounds. */
#include "base/pool.h"
#include "device/cpu/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_THREADS = 64, MAX_ROUNDS = 100, LOOKS = 40, CACHED = 96 };

typedef struct bench {
    tri_pool *pool;
    int num_threads;
    tri_isa isa;
    void *scratch;                 /* for products on all threads */
    void *apart[MAX_THREADS];      /* for one product on each */
    tri_gemm of_each[MAX_THREADS]; /* what each thread multiplies, repeats times */
    int repeats;
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t bytes)
{
    size_t huge = (size_t)2 << 20;
    bytes = (bytes + huge - 1) / huge * huge;
    void *p = aligned_alloc(huge, bytes);
    if (p == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static float *matrix(int64_t rows, int64_t cols)
{
    float *x = allocate((size_t)(rows * cols) * sizeof(float));
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (float)(i % 1013) / 1013 - 0.5f;
    return x;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_own(void *context, int task, int worker)
{
    const bench *b = context;
    (void)worker;
    for (int i = 0; i < b->repeats; i++)
        tri_gemm_run(NULL, b->isa, b->apart[task], &b->of_each[task]);
}

static double gflop(const tri_gemm *g)
{
    return 2e-9 * (double)g->m * (double)g->n * (double)g->k;
}

/* GFLOP/s of num threads, each with what is its own. */
static double rate_apart(bench *b, int num)
{
    double start = now();
    tri_pool_run(num > 1 ? b->pool : NULL, num, run_own, b);
    return num * b->repeats * gflop(&b->of_each[0]) / (now() - start);
}

static void look_at_cores(bench *b)
{
    float *memory = matrix(3 * b->num_threads * CACHED, CACHED);
    double one[LOOKS], all[LOOKS];
    int shared = 0;
    for (int t = 0; t < b->num_threads; t++) {
        float *a = memory + (int64_t)t * 3 * CACHED * CACHED;
        b->of_each[t] = (tri_gemm){.m = CACHED,
                                   .n = CACHED,
                                   .k = CACHED,
                                   .a = a,
                                   .lda = CACHED,
                                   .b = a + CACHED * CACHED,
                                   .ldb = CACHED,
                                   .c = a + 2 * CACHED * CACHED,
                                   .ldc = CACHED,
                                   .alpha = 1};
    }
    b->repeats = 4000;
    for (int i = 0; i < LOOKS; i++) {
        one[i] = rate_apart(b, 1);
        all[i] = rate_apart(b, b->num_threads);
    }
    qsort(one, LOOKS, sizeof *one, ascending);
    for (int i = 0; i < LOOKS; i++)
        shared += all[i] < 0.7 * b->num_threads * one[LOOKS / 2];
    qsort(all, LOOKS, sizeof *all, ascending);
    printf(
        "in cache: one thread %.0f GFLOP/s, %d at once %.0f; below 0.7 of as many alone in %d of "
        "%d looks\n",
        one[LOOKS / 2], b->num_threads, all[LOOKS / 2], shared, (int)LOOKS);
    free(memory);
}

/* One product in its three ways. op: 0 y = x W^T, 1 dx = dy W, 2 dW = dy^T x. */
static void compare(bench *b, const char *name, int op, int64_t rows, int64_t out, int64_t in,
                    int rounds)
{
    int64_t m = op == 2 ? out : rows, n = op == 0 ? out : in;
    int64_t k = op == 0 ? in : op == 1 ? out : rows;
    double rate[3][MAX_ROUNDS];
    for (int t = 0; t < b->num_threads; t++)
        b->of_each[t] = (tri_gemm){.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = matrix(m, k),
                                   .lda = op == 2 ? m : k,
                                   .trans_a = op == 2,
                                   .b = matrix(k, n),
                                   .ldb = op == 0 ? k : n,
                                   .trans_b = op == 0,
                                   .c = matrix(m, n),
                                   .ldc = n,
                                   .alpha = 1};
    b->repeats = 1;
    for (int r = -1; r < rounds; r++) { /* one to warm up */
        double start = now();
        for (int t = 0; t < b->num_threads; t++)
            tri_gemm_run(b->pool, b->isa, b->scratch, &b->of_each[t]);
        double together = b->num_threads * gflop(&b->of_each[0]) / (now() - start);
        double one = rate_apart(b, 1), apart = rate_apart(b, b->num_threads);
        if (r >= 0) {
            rate[0][r] = one;
            rate[1][r] = together;
            rate[2][r] = apart;
        }
    }
    for (int i = 0; i < 3; i++)
        qsort(rate[i], (size_t)rounds, sizeof rate[i][0], ascending);
    double one = rate[0][rounds / 2], all = rate[1][rounds / 2], apart = rate[2][rounds / 2];
    printf("%-8s %6lld %6lld %6lld %10.1f %10.1f (%.2f) %10.1f (%.2f)\n", name, (long long)m,
           (long long)n, (long long)k, one, all, all / one, apart, apart / one);
    for (int t = 0; t < b->num_threads; t++) {
        free((void *)b->of_each[t].a);
        free((void *)b->of_each[t].b);
        free(b->of_each[t].c);
    }
}

int main(int argc, char **argv)
{
    int64_t value[] = {2, 5, 2048, 384, 1536};
    for (int i = 1; i < argc && i <= 5; i++)
        value[i - 1] = atoll(argv[i]);
    if (value[0] < 2 || value[0] > MAX_THREADS || value[1] < 1 || value[1] > MAX_ROUNDS ||
        value[2] < 1 || value[3] < 1 || value[4] < 1) {
        fprintf(stderr,
                "usage: gemm_threads [threads, 2 to %d] [rounds, 1 to %d] [rows] [dim] "
                "[ffn]\n",
                (int)MAX_THREADS, (int)MAX_ROUNDS);
        return 2;
    }
    bench b = {.num_threads = (int)value[0], .isa = tri_isa_detect()};
    tr_error err;
    if (tri_pool_create(b.num_threads, &b.pool, &err) != TR_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    b.scratch = allocate(tri_gemm_scratch_bytes(b.num_threads));
    for (int t = 0; t < b.num_threads; t++)
        b.apart[t] = allocate(tri_gemm_scratch_bytes(1));
    look_at_cores(&b);
    static const char *const names[3][4] = {{"qkv", "proj", "fc", "fc2"},
                                            {"qkv dx", "proj dx", "fc dx", "fc2 dx"},
                                            {"qkv dw", "proj dw", "fc dw", "fc2 dw"}};
    int64_t dim = value[3], ffn = value[4];
    int64_t shape[4][2] = {{3 * dim, dim}, {dim, dim}, {ffn, dim}, {dim, ffn}};
    printf("%-8s %6s %6s %6s %10s %17s %17s\n", "GFLOP/s", "m", "n", "k", "one", "all threads",
           "one for each");
    for (int op = 0; op < 3; op++)
        for (int i = 0; i < 4; i++)
            compare(&b, names[op][i], op, value[2], shape[i][0], shape[i][1], (int)value[1]);
    for (int t = 0; t < b.num_threads; t++)
        free(b.apart[t]);
    free(b.scratch);
    tri_pool_destroy(b.pool);
    return 0;
}
