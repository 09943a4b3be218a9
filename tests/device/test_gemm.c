/* The matrix product against a plain one in double precision: every instruction set this processor
 * has, every transposition and epilogue, odd sizes, and nothing touched outside c. */
#include "device/cpu/fast/vecfun.h"
#include "device/cpu/fast/vecmath.h"
#include "device/cpu/gemm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CANARY       (-12345.5f)
#define CANARY_BYTE  0x5a
#define CANARY_BYTES 256

/* ---- reference ---- */

static double reference_gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double reference_gelu_grad(double x)
{
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/* Element (i, j) before the epilogue; *magnitude is the sum of absolute terms. */
static double reference_value(const tri_gemm *g, const float *old_c, int64_t i, int64_t j,
                              double *magnitude)
{
    double sum = 0, size = 0;
    for (int64_t p = 0; p < g->k; p++) {
        double a = g->trans_a ? g->a[p * g->lda + i] : g->a[i * g->lda + p];
        double b = g->trans_b ? g->b[j * g->ldb + p] : g->b[p * g->ldb + j];
        sum += a * b;
        size += fabs(a * b);
    }
    double old = g->accumulate ? old_c[i * g->ldc + j] : 0;
    *magnitude = fabs(g->alpha) * size + fabs(old);
    return g->alpha * sum + old;
}

/* ---- cases ---- */

typedef struct problem {
    tri_gemm g;
    float *a, *b, *c, *old_c, *bias, *aux, *old_aux;
    int64_t c_floats, aux_floats;
} problem;

static uint32_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static float random_float(void)
{
    return (float)(random_u32() >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

/* Exactly as large as needed, so that the address sanitizer sees a read past the end. */
static float *random_floats(int64_t count)
{
    float *x = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = random_float();
    return x;
}

static float *copy_floats(const float *x, int64_t count)
{
    float *y = malloc((size_t)count * sizeof(float));
    memcpy(y, x, (size_t)count * sizeof(float));
    return y;
}

/* Elements of a matrix without the unused tail of its last row. */
static int64_t extent(int64_t rows, int64_t cols, int64_t ld)
{
    return rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
}

static problem make_problem(int64_t m, int64_t n, int64_t k, int variant)
{
    problem x = {0};
    tri_gemm *g = &x.g;
    g->m = m;
    g->n = n;
    g->k = k;
    g->trans_a = variant & 1;
    g->trans_b = variant & 2;
    g->accumulate = variant & 4;
    g->epilogue = (tri_gemm_epilogue)(variant / 8 % 4);
    bool padded = variant & 32;
    g->alpha = variant & 64 ? 0.37f : 1.0f;
    g->lda = (g->trans_a ? m : k) + (padded ? 3 : 0);
    g->ldb = (g->trans_b ? k : n) + (padded ? 5 : 0);
    g->ldc = n + (padded ? 7 : 0);
    g->ldaux = n + (padded ? 2 : 0);
    g->a = x.a = random_floats(g->trans_a ? extent(k, m, g->lda) : extent(m, k, g->lda));
    g->b = x.b = random_floats(g->trans_b ? extent(n, k, g->ldb) : extent(k, n, g->ldb));
    g->bias = x.bias = random_floats(n);
    x.c_floats = m * g->ldc;
    g->c = x.c = random_floats(x.c_floats);
    x.aux_floats = m * g->ldaux;
    g->aux = x.aux = random_floats(x.aux_floats);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < g->ldc; j++) {
            if (j >= n)
                x.c[i * g->ldc + j] = CANARY;
            else if (!g->accumulate)
                x.c[i * g->ldc + j] = NAN; /* must not be read */
        }
        for (int64_t j = n; j < g->ldaux; j++)
            x.aux[i * g->ldaux + j] = CANARY;
    }
    x.old_c = copy_floats(x.c, x.c_floats);
    x.old_aux = copy_floats(x.aux, x.aux_floats);
    return x;
}

static void free_problem(problem *x)
{
    free(x->a);
    free(x->b);
    free(x->c);
    free(x->old_c);
    free(x->bias);
    free(x->aux);
    free(x->old_aux);
}

static void reset_problem(problem *x)
{
    memcpy(x->c, x->old_c, (size_t)x->c_floats * sizeof(float));
    memcpy(x->aux, x->old_aux, (size_t)x->aux_floats * sizeof(float));
}

static void expect_close(const problem *x, const char *what, int64_t i, int64_t j, double got,
                         double want, double tolerance)
{
    if (fabs(got - want) <= tolerance)
        return;
    const tri_gemm *g = &x->g;
    fail_msg("%s: m %ld n %ld k %ld trans %d %d accumulate %d epilogue %d, element %ld %ld: got "
             "%.9g, want %.9g, tolerance %g",
             what, (long)g->m, (long)g->n, (long)g->k, g->trans_a, g->trans_b, g->accumulate,
             g->epilogue, (long)i, (long)j, got, want, tolerance);
}

static void check_element(const problem *x, const char *what, int64_t i, int64_t j)
{
    const tri_gemm *g = &x->g;
    double magnitude;
    double value = reference_value(g, x->old_c, i, j, &magnitude);
    double tolerance = 1e-7 * sqrt((double)g->k + 1) * (magnitude + 1) * 2;
    double got = g->c[i * g->ldc + j];
    float *aux = &g->aux[i * g->ldaux + j], old_aux = x->old_aux[i * g->ldaux + j];
    bool keeps_aux = g->epilogue == TRI_GEMM_BIAS_GELU;
    if (!keeps_aux && *aux != old_aux)
        fail_msg("%s: aux was written", what);
    if (g->epilogue == TRI_GEMM_BIAS || g->epilogue == TRI_GEMM_BIAS_GELU)
        value += g->bias[j];
    if (keeps_aux) {
        expect_close(x, what, i, j, *aux, value, tolerance);
        value = reference_gelu(value);
        tolerance *= 1.2;
    }
    if (g->epilogue == TRI_GEMM_GELU_GRAD)
        value *= reference_gelu_grad(*aux);
    expect_close(x, what, i, j, got, value, tolerance + 1e-6 * fabs(value) + 1e-6);
}

static void check_problem(const problem *x, const char *what)
{
    const tri_gemm *g = &x->g;
    /* Of large products a part, which visits every place within a tile: 37 divides no tile size. */
    int64_t step = g->m * g->n * g->k > 2000000 ? 37 : 1;
    for (int64_t element = 0; element < g->m * g->n; element += step)
        check_element(x, what, element / g->n, element % g->n);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = g->n; j < g->ldc; j++)
            assert_true(g->c[i * g->ldc + j] == CANARY);
        for (int64_t j = g->n; j < g->ldaux; j++)
            assert_true(g->aux[i * g->ldaux + j] == CANARY);
    }
}

/* ---- scratch with canaries behind it ---- */

static void *make_scratch(size_t bytes)
{
    unsigned char *p = aligned_alloc(64, (bytes + CANARY_BYTES + 63) / 64 * 64);
    /* Packed garbage must not leak: all bits set is a NaN. */
    memset(p, 0xff, bytes);
    memset(p + bytes, CANARY_BYTE, CANARY_BYTES);
    return p;
}

static void free_scratch(void *scratch, size_t bytes)
{
    const unsigned char *p = scratch;
    for (size_t i = 0; i < CANARY_BYTES; i++)
        assert_int_equal(p[bytes + i], CANARY_BYTE);
    free(scratch);
}

typedef struct harness {
    tri_pool *pools[3]; /* 1, 2 and 3 threads */
    void *scratch[3];
} harness;

static int set_up(void **state)
{
    harness *h = calloc(1, sizeof *h);
    for (int t = 0; t < 3; t++) {
        assert_int_equal(tri_pool_create(t + 1, &h->pools[t], NULL), TR_OK);
        h->scratch[t] = make_scratch(tri_gemm_scratch_bytes(t + 1));
    }
    *state = h;
    return 0;
}

static int tear_down(void **state)
{
    harness *h = *state;
    for (int t = 0; t < 3; t++) {
        tri_pool_destroy(h->pools[t]);
        free_scratch(h->scratch[t], tri_gemm_scratch_bytes(t + 1));
    }
    free(h);
    return 0;
}

/* ---- tests ---- */

static void run_everywhere(harness *h, int64_t m, int64_t n, int64_t k, int variant)
{
    problem x = make_problem(m, n, k, variant);
    for (int isa = 0; isa <= (int)tri_isa_detect(); isa++) {
        float *first = NULL;
        for (int t = 0; t < 3; t++) {
            reset_problem(&x);
            tri_gemm_run(h->pools[t], (tri_isa)isa, h->scratch[t], &x.g);
            if (t == 0) {
                check_problem(&x, tri_isa_name((tri_isa)isa));
                first = copy_floats(x.c, x.c_floats);
            } else if (memcmp(first, x.c, (size_t)x.c_floats * sizeof(float)) != 0) {
                fail_msg("%d threads give other bits than one", t + 1);
            }
        }
        free(first);
    }
    free_problem(&x);
}

static void small_shapes_all_variants(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},   {1, 50, 3},   {8, 48, 4},   {7, 47, 5},
                                        {9, 49, 17}, {5, 3, 0},    {64, 64, 32}, {33, 100, 64},
                                        {13, 16, 7}, {16, 8, 129}, {3, 257, 2},  {17, 300, 21}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int variant = 0; variant < 128; variant++)
            run_everywhere(*state, shapes[s][0], shapes[s][1], shapes[s][2], variant);
    }
}

static void random_shapes(void **state)
{
    for (int round = 0; round < 150; round++) {
        int64_t m = random_u32() % 150 + 1;
        int64_t n = random_u32() % (round % 2 ? 150 : 600) + 1;
        int64_t k = random_u32() % (round % 3 ? 100 : 900);
        run_everywhere(*state, m, n, k, (int)(random_u32() % 128));
    }
}

/* More than one block of rows, columns and k in both plans. */
static void large_shapes(void **state)
{
    run_everywhere(*state, 1100, 400, 390, 0 + 32);
    run_everywhere(*state, 1100, 50, 800, 2 + 4);
    run_everywhere(*state, 2, 1000, 2000, 2 + 8);
    run_everywhere(*state, 40, 600, 5000, 1 + 16);
    run_everywhere(*state, 2000, 270, 500, 1 + 4);
    run_everywhere(*state, 1030, 300, 1700, 2 + 64 + 24);
    run_everywhere(*state, 3, 130, 15000, 3);
    run_everywhere(*state, 40, 110000, 8, 2);  /* several blocks of columns */
    run_everywhere(*state, 2100, 260, 16, 1);  /* several blocks of rows */
    run_everywhere(*state, 1630, 270, 400, 0); /* and of passes */
    run_everywhere(*state, 1630, 820, 400, 3);
}

/* Rows of NaN and infinity in a spoil their own rows of c and no others. */
static void special_values_stay_in_their_rows(void **state)
{
    harness *h = *state;
    problem x = make_problem(13, 61, 40, 0);
    for (int p = 0; p < 40; p++)
        x.a[12 * 40 + p] = p % 2 ? INFINITY : NAN;
    for (int isa = 0; isa <= (int)tri_isa_detect(); isa++) {
        tri_gemm_run(h->pools[1], (tri_isa)isa, h->scratch[1], &x.g);
        for (int i = 0; i < 13; i++) {
            for (int j = 0; j < 61; j++)
                assert_int_equal(!isfinite(x.c[i * 61 + j]), i == 12);
        }
    }
    free_problem(&x);
}

/* Products that end in GELU, where its argument is large, infinite or not a number. */
static void gelu_of_large_values(void **state)
{
    static const float bias[] = {1e30f, -1e30f, 25, -25, -INFINITY, NAN, INFINITY, 0};
    harness *h = *state;
    float a[8 * 4] = {0}, b[4 * 8] = {0}, c[8 * 8];
    tri_gemm g = {.m = 8, .n = 8, .k = 4, .a = a, .lda = 4, .b = b, .ldb = 8, .c = c, .ldc = 8};
    g.alpha = 1;
    g.epilogue = TRI_GEMM_BIAS_GELU;
    g.bias = bias;
    for (int isa = 0; isa <= (int)tri_isa_detect(); isa++) {
        tri_gemm_run(NULL, (tri_isa)isa, h->scratch[0], &g);
        assert_true(c[0] == 1e30f && c[2] == 25 && c[7] == 0);
        assert_true(fabsf(c[1]) < 1e-20f && fabsf(c[3]) < 1e-20f);
        assert_true(!(fabsf(c[4]) > 1e-20f)); /* 0 or not a number */
        assert_true(isnan(c[5]) && isinf(c[6]));
    }
}

static void null_pool_and_null_aux(void **state)
{
    harness *h = *state;
    problem x = make_problem(20, 60, 30, 16);
    x.g.aux = NULL;
    tri_gemm_run(NULL, tri_isa_detect(), h->scratch[0], &x.g);
    double magnitude;
    double want = reference_gelu(reference_value(&x.g, x.old_c, 19, 59, &magnitude) + x.bias[59]);
    assert_true(fabs(x.c[19 * 60 + 59] - want) < 1e-5);
    free_problem(&x);
}

static void empty_products(void **state)
{
    harness *h = *state;
    float c[4] = {1, 2, 3, 4};
    tri_gemm g = {.m = 0, .n = 4, .k = 3, .c = c, .ldc = 4, .lda = 3, .ldb = 4, .alpha = 1};
    tri_gemm_run(h->pools[1], TRI_ISA_BASE, h->scratch[1], &g);
    g.m = 4;
    g.n = 0;
    tri_gemm_run(h->pools[1], TRI_ISA_BASE, h->scratch[1], &g);
    assert_true(c[0] == 1 && c[3] == 4);
}

/* A row of a product is the same, bit for bit, however many rows are computed with it and by
 * whichever plan: x W^T for the first rows of x against all 40. */
static void check_rows_alone(harness *h, int64_t n, int64_t k, tri_gemm_epilogue epilogue)
{
    enum { ALL = 40 };
    float *a = random_floats(ALL * k), *b = random_floats(n * k), *bias = random_floats(n);
    float *all = random_floats(ALL * n), *few = random_floats(ALL * n);
    tri_gemm g = {.m = ALL,
                  .n = n,
                  .k = k,
                  .a = a,
                  .lda = k,
                  .b = b,
                  .ldb = k,
                  .trans_b = true,
                  .c = all,
                  .ldc = n,
                  .alpha = 1,
                  .epilogue = epilogue,
                  .bias = bias};
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++) {
        g.c = all;
        g.m = ALL;
        tri_gemm_run(h->pools[0], isa, h->scratch[0], &g);
        g.c = few;
        for (g.m = 1; g.m <= 19; g.m++) {
            memset(few, 0xff, (size_t)(ALL * n) * sizeof *few);
            tri_gemm_run(h->pools[g.m % 3], isa, h->scratch[g.m % 3], &g);
            if (memcmp(few, all, (size_t)(g.m * n) * sizeof *few) != 0)
                fail_msg("%d of 40 rows, n %d, k %d, epilogue %d, isa %d: other bits", (int)g.m,
                         (int)n, (int)k, (int)epilogue, (int)isa);
            for (int64_t i = g.m * n; i < ALL * n; i++)
                assert_true(isnan(few[i])); /* nothing was written past the end */
        }
    }
    free(a);
    free(b);
    free(bias);
    free(all);
    free(few);
}

static void rows_do_not_depend_on_each_other(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},    {16, 4},    {17, 7},    {50, 300},
                                       {257, 64}, {300, 193}, {301, 515}, {97, 2100}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_rows_alone(*state, sizes[i][0], sizes[i][1], TRI_GEMM_PLAIN);
        check_rows_alone(*state, sizes[i][0], sizes[i][1], TRI_GEMM_BIAS);
        check_rows_alone(*state, sizes[i][0], sizes[i][1], TRI_GEMM_BIAS_GELU);
    }
}

static double relative_error(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

static void functions_are_accurate(void **state)
{
    (void)state;
    double exp_error = 0, tanh_error = 0;
    for (double d = -86.9; d < 88.7; d += 1.3e-3)
        exp_error = fmax(exp_error, relative_error(tri_expf((float)d), exp((double)(float)d)));
    for (double d = -30; d < 2.5; d += 1e-4) {
        float x = (float)exp(d);
        tanh_error = fmax(tanh_error, relative_error(tri_tanhf(-x), tanh(-(double)x)));
    }
    assert_true(exp_error < 2e-7);
    assert_true(tanh_error < 4e-7);
    assert_true(tri_expf(-INFINITY) == 0 && tri_expf(INFINITY) == INFINITY && isnan(tri_expf(NAN)));
    assert_true(tri_tanhf(50) == 1 && tri_tanhf(-50) == -1 && isnan(tri_tanhf(NAN)));
}

static void activations_are_accurate(void **state)
{
    (void)state;
    double normal_error = 0, gelu_error = 0, grad_error = 0, silu_error = 0, silu_grad_error = 0;
    for (double d = -12; d < 12; d += 1.7e-4) {
        float f = (float)d;
        double x = (double)f, below = 0.5 * erfc(-x / sqrt(2)), s = 1 / (1 + exp(-x));
        double gelu_grad = below + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
        if (x > -9)
            normal_error = fmax(normal_error, relative_error(tri_normal_below(f), below));
        gelu_error = fmax(gelu_error, fabs(tri_gelu_erf(f) - x * below));
        grad_error = fmax(grad_error, fabs(tri_gelu_erf_grad(f) - gelu_grad));
        silu_error = fmax(silu_error, relative_error(tri_silu(f), x * s));
        silu_grad_error = fmax(silu_grad_error, fabs(tri_silu_grad(f) - s * (1 + x * (1 - s))));
    }
    assert_true(normal_error < 1e-5);
    assert_true(gelu_error < 1e-6);
    assert_true(grad_error < 5e-7);
    assert_true(silu_error < 5e-7);
    assert_true(silu_grad_error < 5e-7);
    assert_true(isnan(tri_gelu_erf(NAN)) && isnan(tri_gelu_erf_grad(NAN)));
    assert_true(isnan(tri_silu(NAN)) && isnan(tri_silu_grad(NAN)));
    assert_true(tri_gelu_erf(1e30f) == 1e30f && tri_gelu_erf(-1e30f) == 0);
    assert_true(tri_gelu_erf_grad(1e30f) == 1 && tri_gelu_erf_grad(-1e30f) == 0);
    assert_true(tri_silu(1e30f) == 1e30f && tri_silu(-1e30f) == 0);
    assert_true(tri_silu_grad(1e30f) == 1 && fabsf(tri_silu_grad(-1e30f)) < 1e-20f);
}

static float first_of(fvec v)
{
    for (int i = 1; i < FVEC_LANES; i++) /* equal lanes; NaN is not equal to itself */
        assert_true(v[i] == v[0] || (isnan(v[i]) && isnan(v[0])));
    return v[0];
}

/* The functions on vectors beside those on numbers: within rounding, and equal at the ends. */
static void vectors_are_as_accurate(void **state)
{
    (void)state;
    double gelu_error = 0, grad_error = 0, exp_error = 0, weight_error = 0;
    for (double d = -12; d < 12; d += 1.7e-4) {
        fvec x = fvec_all((float)d);
        gelu_error = fmax(gelu_error, fabs(first_of(fvec_gelu(x)) - reference_gelu((float)d)));
        grad_error =
            fmax(grad_error, fabs(first_of(fvec_gelu_grad(x)) - reference_gelu_grad((float)d)));
    }
    for (double d = -86.9; d < 79; d += 1.3e-3) {
        double exact = exp((double)(float)d);
        exp_error = fmax(exp_error, relative_error(first_of(fvec_exp(fvec_all((float)d))), exact));
        weight_error = fmax(weight_error,
                            relative_error(first_of(fvec_exp_weight(fvec_all((float)d))), exact));
    }
    assert_true(gelu_error < 1e-6);
    assert_true(grad_error < 5e-7);
    assert_true(exp_error < 2e-7);
    assert_true(weight_error < 2e-7);
    static const float ends[] = {0, -0.0f, 1e30f, -1e30f, 9.5f, -9.5f, 88.9f, -88.1f};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        fvec x = fvec_all(ends[i]);
        assert_true(first_of(fvec_exp(x)) == tri_expf(ends[i]));
    }
    for (int i = 0; i < 2; i++) /* flat far from zero */
        assert_true(fabsf(first_of(fvec_gelu_grad(fvec_all(i ? 1e30f : -1e30f))) - (float)i) <
                    1e-6f);
    assert_true(first_of(fvec_exp_weight(fvec_all(-INFINITY))) == 0);
    assert_true(first_of(fvec_gelu(fvec_all(1e30f))) == 1e30f);
    assert_true(first_of(fvec_gelu(fvec_all(-1e30f))) == 0);
    assert_true(isnan(first_of(fvec_exp(fvec_all(NAN)))));
    assert_true(isnan(first_of(fvec_exp_weight(fvec_all(NAN)))));
    assert_true(isnan(first_of(fvec_gelu(fvec_all(NAN)))));
    assert_true(isnan(first_of(fvec_gelu_grad(fvec_all(NAN)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_accurate),
        cmocka_unit_test(small_shapes_all_variants),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(special_values_stay_in_their_rows),
        cmocka_unit_test(gelu_of_large_values),
        cmocka_unit_test(null_pool_and_null_aux),
        cmocka_unit_test(empty_products),
        cmocka_unit_test(rows_do_not_depend_on_each_other),
        cmocka_unit_test(functions_are_accurate),
        cmocka_unit_test(vectors_are_as_accurate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
