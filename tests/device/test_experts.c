/* Products of experts have the bits of plain products: of one expert those of matmul, and of
 * several those of a product for each. A model whose experts are one is then the dense model to the
 * last bit. */
#include "device/cpu/cpu.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_THREADS = 3, SEED = 77 };

/* R rows, w [E, N, K]; share: 0 evenly, 1 all rows to one expert, 2 few, many and none. */
typedef struct shape {
    int64_t rows, experts, n, k;
    int share;
} shape;

/* In the plans of the GEMM for few rows, few columns and many; with passes along k that are cut
 * evenly or not. */
static const shape shapes[] = {
    {1, 1, 1, 1, 0},       {7, 1, 19, 33, 0},     {16, 1, 48, 64, 0},    {300, 1, 19, 333, 0},
    {70, 1, 301, 203, 0},  {13, 1, 301, 503, 0},  {700, 1, 270, 259, 0}, {40, 4, 19, 33, 2},
    {300, 5, 301, 270, 2}, {500, 8, 270, 520, 0}, {90, 7, 300, 261, 1},  {600, 3, 96, 600, 2},
    {64, 64, 40, 300, 2},
};

static tri_tensor tensor(tri_dtype dtype, void *data, int rank, int64_t a, int64_t b, int64_t c)
{
    const int64_t size[] = {a, b, c};
    tri_tensor t = {.data = data, .dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t.size[d] = t.global[d] = size[d];
        t.count *= size[d];
    }
    return t;
}

static float *numbers(int64_t count, uint32_t stream)
{
    float *data = malloc((size_t)(count + 1) * sizeof *data);
    assert_non_null(data);
    tri_random_normal(SEED, 0, (uint64_t)count, 0, stream, data);
    return data;
}

static void run(tri_op op, tri_kernel_args *args, tri_pool *pool, tri_isa isa)
{
    const tri_kernel *kernel = tri_cpu_fast(op, isa);
    tri_cpu cpu = {.pool = pool, .isa = isa};
    args->device = &cpu;
    if (kernel->scratch_bytes)
        cpu.scratch_bytes = kernel->scratch_bytes(args, pool ? tri_pool_threads(pool) : 1);
    if (cpu.scratch_bytes)
        cpu.scratch = aligned_alloc(64, (cpu.scratch_bytes + 63) / 64 * 64);
    kernel->run(args);
    free(cpu.scratch);
}

/* The first row of each expert, and the end; the last rows have none where there are several. */
static void share_rows(const shape *s, int64_t *border, int32_t *expert)
{
    int64_t rows = s->experts > 1 ? s->rows - s->rows / 9 : s->rows, at = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t num = s->share == 0   ? rows * (e + 1) / s->experts - rows * e / s->experts
                      : s->share == 1 ? (e == s->experts / 2 ? rows : 0)
                      : e % 3 == 1    ? 0
                      : e % 3 == 0    ? (rows - at) / 2
                                      : (rows - at < 5 ? rows - at : 5);
        border[e] = at;
        for (; num > 0; num--)
            expert[at++] = (int32_t)e;
    }
    border[s->experts] = at;
    for (; at < s->rows; at++)
        expert[at] = -1;
}

/* One product as its graph has it: x w^T, dy w, or dy^T x. */
static void product(const float *a, int64_t a_rows, int64_t a_cols, bool trans_a, const float *b,
                    int64_t b_rows, int64_t b_cols, bool trans_b, float *c, bool overwrite,
                    tri_isa isa)
{
    tri_attr attr = {
        .matmul = {.alpha = 1, .trans_a = trans_a, .trans_b = trans_b, .split_a = 1, .split_b = 1}};
    tri_kernel_args args = {.attr = &attr, .num_in = 2, .num_out = 1, .overwrite = overwrite};
    args.in[0] = tensor(TRI_F32, (void *)a, 2, a_rows, a_cols, 0);
    args.in[1] = tensor(TRI_F32, (void *)b, 2, b_rows, b_cols, 0);
    args.out[0] = tensor(TRI_F32, c, 2, trans_a ? a_cols : a_rows, trans_b ? b_rows : b_cols, 0);
    run(TRI_OP_MATMUL, &args, NULL, isa);
}

static void expect_bits(const float *got, const float *want, int64_t count, const shape *s,
                        const char *what, tri_isa isa, int threads)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s of %ld rows, %ld experts of %ld x %ld, %s, %d threads: element %ld is "
                     "%.9g, not %.9g",
                     what, (long)s->rows, (long)s->experts, (long)s->n, (long)s->k,
                     tri_isa_name(isa), threads, (long)i, got[i], want[i]);
}

/* Rows of all experts, forwards or back. */
static void check_rows(const shape *s, const int64_t *border, int32_t *expert, bool back,
                       tri_pool *const *pools, tri_isa isa)
{
    int64_t inner = back ? s->n : s->k, outer = back ? s->k : s->n;
    float *x = numbers(s->rows * inner, 1), *w = numbers(s->experts * s->n * s->k, 2);
    float *want = calloc((size_t)(s->rows * outer), sizeof *want);
    float *got = malloc((size_t)(s->rows * outer) * sizeof *got);
    for (int64_t e = 0; e < s->experts; e++)
        product(x + border[e] * inner, border[e + 1] - border[e], inner, false, w + e * s->n * s->k,
                s->n, s->k, !back, want + border[e] * outer, true, isa);
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        tri_attr attr = {.grouped = {.back = back}};
        tri_kernel_args args = {.attr = &attr, .num_in = 3, .num_out = 1, .overwrite = true};
        args.in[0] = tensor(TRI_F32, x, 2, s->rows, inner, 0);
        args.in[1] = tensor(TRI_F32, w, 3, s->experts, s->n, s->k);
        args.in[2] = tensor(TRI_I32, expert, 1, s->rows, 0, 0);
        args.out[0] = tensor(TRI_F32, got, 2, s->rows, outer, 0);
        memset(got, 0xff, (size_t)(s->rows * outer) * sizeof *got);
        run(TRI_OP_GROUPED, &args, pools[threads - 1], isa);
        expect_bits(got, want, s->rows * outer, s, back ? "back" : "rows", isa, threads);
    }
    free(x);
    free(w);
    free(want);
    free(got);
}

/* Gradients of all experts. Those without rows are 0, or stay what they are. */
static void check_grad(const shape *s, const int64_t *border, int32_t *expert, bool overwrite,
                       tri_pool *const *pools, tri_isa isa)
{
    int64_t count = s->experts * s->n * s->k, size = s->n * s->k;
    float *dy = numbers(s->rows * s->n, 3), *x = numbers(s->rows * s->k, 4);
    float *want = numbers(count, 5), *got = NULL;
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t num = border[e + 1] - border[e];
        if (num > 0)
            product(dy + border[e] * s->n, num, s->n, true, x + border[e] * s->k, num, s->k, false,
                    want + e * size, overwrite, isa);
        else if (overwrite)
            memset(want + e * size, 0, (size_t)size * sizeof *want);
    }
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        tri_attr attr = {0};
        tri_kernel_args args = {.attr = &attr, .num_in = 4, .num_out = 1, .overwrite = overwrite};
        got = numbers(count, 5);
        args.in[0] = tensor(TRI_F32, dy, 2, s->rows, s->n, 0);
        args.in[1] = tensor(TRI_F32, x, 2, s->rows, s->k, 0);
        args.in[2] = tensor(TRI_I32, expert, 1, s->rows, 0, 0);
        args.out[0] = tensor(TRI_F32, got, 3, s->experts, s->n, s->k);
        run(TRI_OP_GROUPED_GRAD, &args, pools[threads - 1], isa);
        expect_bits(got, want, count, s, overwrite ? "gradients" : "added gradients", isa, threads);
        free(got);
    }
    free(dy);
    free(x);
    free(want);
}

static void test_products(void **state)
{
    tri_pool *const *pools = *state;
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const shape *s = &shapes[i];
            int64_t *border = malloc((size_t)(s->experts + 1) * sizeof *border);
            int32_t *expert = malloc((size_t)s->rows * sizeof *expert);
            share_rows(s, border, expert);
            for (int way = 0; way < 2; way++) {
                check_rows(s, border, expert, way == 1, pools, isa);
                check_grad(s, border, expert, way == 1, pools, isa);
            }
            free(border);
            free(expert);
        }
}

/* With weights of 1, swiglu_rows is swiglu. */
static void test_swiglu(void **state)
{
    tri_pool *const *pools = *state;
    static const int64_t size[][2] = {{5, 1}, {3, 7}, {41, 33}, {9, 128}, {500, 101}};
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            int64_t rows = size[i][0], width = size[i][1], count = rows * width;
            const shape s = {rows, 1, 1, width, 0};
            float *of[9], *weights = malloc((size_t)rows * sizeof *weights);
            for (int j = 0; j < 9; j++)
                of[j] = numbers(count, (uint32_t)(10 + j));
            for (int64_t r = 0; r < rows; r++)
                weights[r] = 1;
            tri_attr attr = {0};
            tri_kernel_args plain = {.attr = &attr, .num_in = 2, .num_out = 1, .overwrite = true};
            for (int j = 0; j < 3; j++) {
                plain.in[j] = tensor(TRI_F32, of[j], 2, rows, width, 0);
                plain.out[j] = tensor(TRI_F32, of[3 + j], 2, rows, width, 0);
            }
            tri_kernel_args weighed = plain;
            weighed.num_in = 3;
            weighed.in[2] = tensor(TRI_F32, weights, 1, rows, 0, 0);
            weighed.out[0].data = of[6];
            run(TRI_OP_SWIGLU, &plain, NULL, isa);
            run(TRI_OP_SWIGLU_ROWS, &weighed, pools[2], isa);
            expect_bits(of[6], of[3], count, &s, "swiglu", isa, 3);
            plain.num_in = 3;
            plain.num_out = 2;
            weighed = plain;
            weighed.num_in = 4;
            weighed.num_out = 3;
            weighed.in[3] = tensor(TRI_F32, weights, 1, rows, 0, 0);
            for (int j = 0; j < 3; j++)
                weighed.out[j].data = of[6 + j];
            run(TRI_OP_SWIGLU_GRAD, &plain, NULL, isa);
            run(TRI_OP_SWIGLU_ROWS_GRAD, &weighed, pools[2], isa);
            expect_bits(of[6], of[3], count, &s, "dgate", isa, 3);
            expect_bits(of[7], of[4], count, &s, "dup", isa, 3);
            for (int j = 0; j < 9; j++)
                free(of[j]);
            free(weights);
        }
}

static int setup(void **state)
{
    static tri_pool *pools[MAX_THREADS];
    for (int i = 0; i < MAX_THREADS; i++)
        if (tri_pool_create(i + 1, &pools[i], NULL) != TR_OK)
            return -1;
    *state = pools;
    return 0;
}

static int teardown(void **state)
{
    tri_pool **pools = *state;
    for (int i = 0; i < MAX_THREADS; i++)
        tri_pool_destroy(pools[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_swiglu),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
