/* Products with few rows, as in decoding: x [m, 768] by the head of GPT-2 [50257, 768]^T, which no
 * cache holds. One thread, in processor time, so that others on the machine disturb less; beside
 * the plan for many rows (taken when alpha is not 1) and a copy of the same bytes. */
#include "device/cpu/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 50257, K = 768, MOST_ROWS = 32, REPEATS = 5 };

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static float *numbers(size_t count)
{
    float *x = aligned_alloc(64, (count * sizeof *x + 63) / 64 * 64);
    for (size_t i = 0; x && i < count; i++)
        x[i] = (float)(i % 7) - 3;
    return x;
}

static double best_copy(float *to, const float *from)
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = cpu_s();
        memcpy(to, from, (size_t)N * K * sizeof *to);
        __asm__ volatile("" ::"r"(to) : "memory");
        double took = cpu_s() - start;
        best = took < best ? took : best;
    }
    return best;
}

static double best_product(const tri_gemm *g, void *scratch)
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = cpu_s();
        tri_gemm_run(NULL, tri_isa_detect(), scratch, g);
        double took = cpu_s() - start;
        best = took < best ? took : best;
    }
    return best;
}

int main(void)
{
    const double bytes = (double)N * K * sizeof(float);
    float *a = numbers(MOST_ROWS * K), *b = numbers((size_t)N * K), *copy = numbers((size_t)N * K);
    float *c = numbers((size_t)MOST_ROWS * N);
    void *scratch = aligned_alloc(64, (tri_gemm_scratch_bytes(1) + 63) / 64 * 64);
    if (!a || !b || !copy || !c || !scratch)
        return 1;
    printf("a copy reads %.1f GB/s, and writes as much\n", bytes / best_copy(copy, b) * 1e-9);
    printf("%5s %20s %20s\n", "rows", "few, ms (GB/s)", "many, ms (GB/s)");
    for (int64_t m = 1; m <= MOST_ROWS; m *= 2) {
        tri_gemm g = {.m = m,
                      .n = N,
                      .k = K,
                      .a = a,
                      .lda = K,
                      .b = b,
                      .ldb = K,
                      .trans_b = true,
                      .c = c,
                      .ldc = N,
                      .alpha = 1};
        double few = best_product(&g, scratch);
        g.alpha = 0.5f;
        double many = best_product(&g, scratch);
        printf("%5d %12.1f (%5.1f) %12.1f (%5.1f)\n", (int)m, few * 1e3, bytes / few * 1e-9,
               many * 1e3, bytes / many * 1e-9);
    }
    free(a);
    free(b);
    free(copy);
    free(c);
    free(scratch);
    return 0;
}
