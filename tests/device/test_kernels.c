/* Every fast kernel, for every instruction set of this processor, against the reference. */
#include "op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/code.h"
#include "graph/op_table.h"

enum { MAX_THREADS = 3 };

static const char *name_of(const op_case *c)
{
    static char text[128];
    snprintf(text, sizeof text, "operator %d, case \"%s\"", (int)c->op, c->name);
    return text;
}

/* The outputs that a case defines: what MOMENTUM gives as update when not ok may be anything. */
static int defined_outputs(const op_case *c, const op_run *run)
{
    return c->op == TRI_OP_MOMENTUM && c->flags & CASE_NOT_OK ? 1 : run->args.num_out;
}

static void expect_close(const op_case *c, const op_run *run, const op_run *expected,
                         const char *what)
{
    float tolerance = c->tolerance > 0 ? c->tolerance : 2e-6f;
    for (int o = 0; o < defined_outputs(c, run); o++) {
        const float *got = run->args.out[o].data, *want = expected->args.out[o].data;
        float largest = 0;
        tri_dtype dtype = run->args.out[o].dtype;
        if (tri_dtype_code(dtype) || dtype == TRI_I32) { /* exactly, or not at all */
            if (memcmp(got, want, tri_dtype_size(dtype, run->args.out[o].count)) != 0)
                fail_msg("%s, %s: output %d has other codes or numbers", name_of(c), what, o);
            continue;
        }
        for (int64_t i = 0; i < run->args.out[o].count; i++)
            largest = isinf(want[i]) ? largest : fmaxf(largest, fabsf(want[i]));
        for (int64_t i = 0; i < run->args.out[o].count; i++)
            if (got[i] != want[i] && !(fabsf(got[i] - want[i]) <= tolerance * largest))
                fail_msg("%s, %s: output %d[%ld] is %.9g, not %.9g (largest %g)", name_of(c), what,
                         o, (long)i, got[i], want[i], largest);
    }
    if (!op_run_canaries_intact(run))
        fail_msg("%s, %s: wrote outside of an operand", name_of(c), what);
}

static void expect_same_bits(const op_case *c, const op_run *run, const op_run *expected,
                             const char *what)
{
    for (int o = 0; o < defined_outputs(c, run); o++)
        if (memcmp(run->args.out[o].data, expected->args.out[o].data,
                   (size_t)run->args.out[o].count * 4) != 0)
            fail_msg("%s, %s: output %d has other bits", name_of(c), what, o);
}

/* What is no output, and not updated, is left as it was. */
static void expect_inputs_kept(const op_case *c, const op_run *run, const char *what)
{
    op_run fresh;
    op_run_init(&fresh, c, NULL);
    for (int i = 0; i < run->args.num_in; i++) {
        bool updated = false;
        for (int o = 0; o < run->args.num_out; o++)
            updated |= run->args.out[o].data == run->args.in[i].data;
        if (updated && !(c->flags & CASE_NOT_OK))
            continue;
        if (run->args.in[i].count && memcmp(run->args.in[i].data, fresh.args.in[i].data,
                                            (size_t)run->args.in[i].count * 4) != 0)
            fail_msg("%s, %s: changed input %d", name_of(c), what, i);
    }
    op_run_fini(&fresh);
}

static void check_in_place(const op_case *c, const tri_kernel *kernel, tri_isa isa, tri_pool *pool,
                           const op_run *expected)
{
    op_alias pairs[OP_MAX_ALIAS];
    int num = op_may_alias(c, pairs);
    for (int i = 0; i < num; i++) {
        op_run run;
        op_run_init(&run, c, &pairs[i]);
        op_run_kernel(&run, kernel, pool, isa);
        expect_same_bits(c, &run, expected, "in place");
        assert_true(op_run_canaries_intact(&run));
        op_run_fini(&run);
    }
}

static void check_case(const op_case *c, tri_pool *const *pools)
{
    op_run reference;
    op_run_init(&reference, c, NULL);
    op_run_kernel(&reference, tri_cpu_reference(c->op), NULL, TRI_ISA_BASE);
    expect_close(c, &reference, &reference, "reference"); /* finite, and within its operands */
    expect_inputs_kept(c, &reference, "reference");
    check_in_place(c, tri_cpu_reference(c->op), TRI_ISA_BASE, NULL, &reference);
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++) {
        const tri_kernel *kernel = tri_cpu_fast(c->op, isa);
        if (!kernel)
            continue;
        op_run first;
        op_run_init(&first, c, NULL);
        op_run_kernel(&first, kernel, NULL, isa);
        expect_close(c, &first, &reference, tri_isa_name(isa));
        expect_inputs_kept(c, &first, tri_isa_name(isa));
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            op_run run;
            op_run_init(&run, c, NULL);
            op_run_kernel(&run, kernel, pools[threads - 1], isa);
            expect_same_bits(c, &run, &first, "other number of threads");
            assert_true(op_run_canaries_intact(&run));
            op_run_fini(&run);
        }
        check_in_place(c, kernel, isa, pools[MAX_THREADS - 1], &first);
        op_run_fini(&first);
    }
    op_run_fini(&reference);
}

static void test_every_case(void **state)
{
    tri_pool *const *pools = *state;
    int num;
    const op_case *cases = op_cases(&num);
    for (int i = 0; i < num; i++)
        check_case(&cases[i], pools);
}

static void test_every_operator_has_kernels_and_case(void **state)
{
    (void)state;
    int num;
    const op_case *cases = op_cases(&num);
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        bool found = false;
        if (tri_op_get((tri_op)op)->communicates)
            continue; /* the communicator's work, not the device's */
        for (int i = 0; i < num; i++)
            found |= cases[i].op == (tri_op)op;
        assert_non_null(tri_cpu_reference((tri_op)op));
        /* Copies; a handful of numbers. */
        bool copies = op == TRI_OP_CAST || op == TRI_OP_NARROW || op == TRI_OP_SLICE ||
                      op == TRI_OP_UNSLICE || op == TRI_OP_BLOCK || op == TRI_OP_UNBLOCK ||
                      op == TRI_OP_CE_COMBINE;
        /* What only GPUs do in one. */
        bool fused = op == TRI_OP_LAYERNORM_GRADS || op == TRI_OP_RMSNORM_GRADS ||
                     op == TRI_OP_CROSS_ENTROPY ||
                     (op >= TRI_OP_GROUPED_SWIGLU && op <= TRI_OP_GROUPED_SUM);
        bool few = op == TRI_OP_FINISH || op == TRI_OP_FILL || op == TRI_OP_FIT_ROOMS ||
                   op == TRI_OP_BALANCE || op == TRI_OP_BALANCE_GRAD || op == TRI_OP_MOVE_BIAS ||
                   op == TRI_OP_LARGEST;
        if (!few && !copies && !fused)
            for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
                assert_non_null(tri_cpu_fast((tri_op)op, isa));
        if (!found)
            fail_msg("operator %d has no case", op);
    }
}

/* About p of the elements are dropped, and the rest is scaled: whatever the mask is made of. */
static void test_dropout_share(void **state)
{
    (void)state;
    op_case c = {
        "share", TRI_OP_DROPOUT, {4, 64, 1, 256}, {.dropout = {.p = 0.25f, .stream = 1}}, 0, 0};
    op_run run;
    op_run_init(&run, &c, NULL);
    op_run_kernel(&run, tri_cpu_reference(c.op), NULL, TRI_ISA_BASE);
    const float *y = run.args.out[0].data;
    int64_t zeros = 0;
    for (int64_t i = 0; i < run.args.out[0].count; i++)
        zeros += y[i] == 0;
    assert_in_range(zeros * 1000 / run.args.out[0].count, 240, 260);
    op_run_fini(&run);
}

/* Factors are even in [1 - p, 1 + p): mean 1, deviation p / sqrt(3), and both ends come near. */
static void test_jitter_spread(void **state)
{
    (void)state;
    const float p = 0.3f;
    op_case c = {"spread", TRI_OP_JITTER, {4, 64, 1, 256}, {.dropout = {.p = p, .stream = 1}}, 0,
                 0};
    op_run run;
    op_run_init(&run, &c, NULL);
    float *x = run.args.in[0].data, *y = run.args.out[0].data;
    int64_t num = run.args.out[0].count;
    for (int64_t i = 0; i < num; i++)
        x[i] = 1;
    op_run_kernel(&run, tri_cpu_reference(c.op), NULL, TRI_ISA_BASE);
    double sum = 0, squares = 0, least = 2, most = 0;
    for (int64_t i = 0; i < num; i++) {
        sum += (double)y[i] - 1;
        squares += ((double)y[i] - 1) * ((double)y[i] - 1);
        least = y[i] < least ? y[i] : least;
        most = y[i] > most ? y[i] : most;
    }
    assert_true(fabs(sum / (double)num) < 0.003);
    assert_true(fabs(sqrt(3 * squares / (double)num) / (double)p - 1) < 0.01);
    assert_true(least >= 1 - p && least < 1 - 0.999 * (double)p);
    assert_true(most <= 1 + p && most > 1 + 0.999 * (double)p);
    op_run_fini(&run);
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
        cmocka_unit_test(test_every_operator_has_kernels_and_case),
        cmocka_unit_test(test_every_case),
        cmocka_unit_test(test_dropout_share),
        cmocka_unit_test(test_jitter_spread),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
