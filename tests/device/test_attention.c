/* Attention by places, the reference and every fast kernel: random intervals, places, lengths and
 * widths against a dense mask in double; and results of parts of the keys, which merge. */
#include "attention_dense.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { NUM_CALLS = 60, NUM_MERGES = 12, MOST_PARTS = 5 };

/* Number of ways to run an operator: the reference, then each instruction set. */
static int num_kernels(void)
{
    return 2 + (int)tri_isa_detect();
}

static void run_with(const tri_kernel_args *args, tri_op op, int which)
{
    tri_isa isa = which == 0 ? TRI_ISA_BASE : (tri_isa)(which - 1);
    op_run call = {.args = *args, .attr = *args->attr};
    op_run_kernel(&call, which == 0 ? tri_cpu_reference(op) : tri_cpu_fast(op, isa), NULL, isa);
}

static float *floats(int64_t count)
{
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    memset(data, 0xff, (size_t)count * sizeof *data);
    return data;
}

/* Relative to the largest element. Infinities are equal, and no NaN is right. */
static void expect_close(const float *got, const double *want, int64_t count, double tolerance,
                         const char *what, int which, uint32_t number)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = isinf(want[i]) ? largest : fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        if (got[i] != want[i] && !(fabs(got[i] - want[i]) <= tolerance * largest))
            fail_msg("call %u, kernel %d: %s[%ld] is %.9g, not %.9g (largest %g)", number, which,
                     what, (long)i, got[i], want[i], largest);
}

static void check_call(uint32_t number)
{
    static const char *const names[] = {"dq", "dk", "dv", "dsink"};
    const op_case c = dense_random_case(number);
    op_run run;
    dense_results right;
    op_run_init(&run, &c, NULL);
    dense_prepare(&run, number, &right);
    const int64_t num_o = run.args.in[TRI_ATTENTION_GRAD_O].count;
    const int64_t num_lse = run.args.in[TRI_ATTENTION_GRAD_LSE].count;
    float *o = floats(num_o), *lse = floats(num_lse);
    const tri_kernel_args forward = dense_forward_args(&run, o, lse);
    for (int which = 0; which < num_kernels(); which++) {
        const double tolerance = which == 0 ? 2e-7 : 5e-6;
        run_with(&forward, TRI_OP_ATTENTION, which);
        expect_close(o, right.o, num_o, tolerance, "o", which, number);
        expect_close(lse, right.lse, num_lse, tolerance, "lse", which, number);
        run_with(&run.args, TRI_OP_ATTENTION_GRAD, which);
        for (int k = 0; k < run.args.num_out; k++)
            expect_close(run.args.out[k].data, right.d[k], run.args.out[k].count, 4 * tolerance,
                         names[k], which, number);
        assert_true(op_run_canaries_intact(&run));
    }
    free(o);
    free(lse);
    dense_results_fini(&right);
    op_run_fini(&run);
}

static void test_dense_mask(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < NUM_CALLS; number++)
        check_call(number);
}

/* ---- merging ---- */

/* Results of one part of the keys. */
typedef struct partial {
    float *o, *lse, *dq;
} partial;

/* The keys [from, to) of the only row of a call. */
static tri_tensor keys_of(const tri_tensor *t, int64_t from, int64_t to)
{
    const int64_t each = t->count / t->size[1];
    tri_tensor part = *t; /* its global size stays that of all keys */
    part.size[1] = to - from;
    part.count = each * (to - from);
    part.data = (char *)t->data + (size_t)(each * from) * 4;
    return part;
}

/* A call over the keys [from, to): the places say which these are. */
static tri_kernel_args part_of(const tri_kernel_args *all, int first, int64_t from, int64_t to)
{
    const int more = first + TRI_ATTENTION_K_PLACES + (first ? 2 : 0);
    tri_kernel_args part = *all;
    for (int j = first + 1; j <= first + 2; j++)
        part.in[j] = keys_of(&all->in[j], from, to);
    part.in[more] = keys_of(&all->in[more], from, to);
    if (from > 0) /* the sink belongs to one of the parts */
        part.in[more + 1] = (tri_tensor){0};
    return part;
}

static void merge(const tri_kernel_args *like, const partial *a, const partial *b, int which)
{
    tri_kernel_args args = *like;
    memset(args.in, 0, sizeof args.in);
    float *o[] = {a->o, b->o}, *lse[] = {a->lse, b->lse};
    for (int i = 0; i < 2; i++) {
        args.in[2 * i] = like->out[0];
        args.in[2 * i].data = o[i];
        args.in[2 * i + 1] = like->out[1];
        args.in[2 * i + 1].data = lse[i];
    }
    float *both = floats(like->out[1].count);
    args.num_in = 4;
    args.out[0].data = a->o; /* in place */
    args.out[1].data = both;
    run_with(&args, TRI_OP_ATTENTION_MERGE, which);
    memcpy(a->lse, both, (size_t)like->out[1].count * sizeof *both);
    free(both);
}

/* A call whose keys are cut anywhere. */
typedef struct cut_call {
    op_run run;
    dense_results right;
    uint32_t number;
    int which, num_parts;
    int64_t cut[MOST_PARTS + 1];
    partial all, one; /* of all parts so far, of one */
} cut_call;

static void cut_init(cut_call *x, uint32_t number, int num_parts, int which)
{
    op_case c = dense_random_case(number);
    c.size[0] = 1;
    c.flags = (c.flags & ~(unsigned)CASE_DOCS) | CASE_PLACES;
    *x = (cut_call){.number = number, .which = which, .num_parts = num_parts};
    op_run_init(&x->run, &c, NULL);
    dense_prepare(&x->run, number, &x->right);
    const tri_tensor *in = x->run.args.in;
    const int64_t num_keys = in[TRI_ATTENTION_GRAD_K].size[1];
    for (int i = 1; i <= num_parts; i++) {
        uint32_t rest = (uint32_t)(num_keys - x->cut[i - 1]) + 1;
        uint32_t more = tri_random_word(9, (uint64_t)i, number, 2) % rest * 2 / 3;
        x->cut[i] = i == num_parts ? num_keys : x->cut[i - 1] + more;
    }
    partial *both[] = {&x->all, &x->one};
    for (int i = 0; i < 2; i++) {
        both[i]->o = floats(in[TRI_ATTENTION_GRAD_O].count);
        both[i]->lse = floats(in[TRI_ATTENTION_GRAD_LSE].count);
        both[i]->dq = floats(in[TRI_ATTENTION_GRAD_Q].count);
    }
}

static void cut_fini(cut_call *x)
{
    float *owned[] = {x->all.o, x->all.lse, x->all.dq, x->one.o, x->one.lse, x->one.dq};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    dense_results_fini(&x->right);
    op_run_fini(&x->run);
}

/* The results of the parts, merged one after the other into what has seen nothing. */
static void merge_parts(cut_call *x)
{
    const int64_t num_o = x->run.args.in[TRI_ATTENTION_GRAD_O].count;
    const int64_t num_lse = x->run.args.in[TRI_ATTENTION_GRAD_LSE].count;
    const tri_kernel_args forward = dense_forward_args(&x->run, x->one.o, x->one.lse);
    memset(x->all.o, 0, (size_t)num_o * sizeof(float));
    for (int64_t i = 0; i < num_lse; i++)
        x->all.lse[i] = -INFINITY;
    for (int i = 0; i < x->num_parts; i++) {
        if (x->cut[i] == x->cut[i + 1])
            continue;
        tri_kernel_args part = part_of(&forward, 0, x->cut[i], x->cut[i + 1]);
        run_with(&part, TRI_OP_ATTENTION, x->which);
        merge(&forward, &x->all, &x->one, x->which);
    }
    expect_close(x->all.o, x->right.o, num_o, 1e-6, "merged o", x->which, x->number);
    expect_close(x->all.lse, x->right.lse, num_lse, 1e-6, "merged lse", x->which, x->number);
}

/* The gradients of the parts from the merged results: those of keys are right as they are, those of
 * queries add up. */
static void add_gradients(cut_call *x)
{
    const tri_kernel_args *args = &x->run.args;
    const int64_t num_q = args->in[TRI_ATTENTION_GRAD_Q].count;
    memset(x->all.dq, 0, (size_t)num_q * sizeof(float));
    for (int i = 0; i < x->num_parts; i++) {
        const int64_t from = x->cut[i], to = x->cut[i + 1];
        if (from == to)
            continue;
        tri_kernel_args part = part_of(args, 1, from, to);
        part.in[TRI_ATTENTION_GRAD_O].data = x->all.o;
        part.in[TRI_ATTENTION_GRAD_LSE].data = x->all.lse;
        part.out[0].data = x->one.dq;
        part.out[1] = keys_of(&args->out[1], from, to);
        part.out[2] = keys_of(&args->out[2], from, to);
        part.num_out = part.in[TRI_NUM_ATTENTION_GRAD_IN - 1].count > 0 ? 4 : 3;
        run_with(&part, TRI_OP_ATTENTION_GRAD, x->which);
        for (int64_t n = 0; n < num_q; n++)
            x->all.dq[n] += x->one.dq[n];
    }
    expect_close(x->all.dq, x->right.d[0], num_q, 2e-5, "dq of parts", x->which, x->number);
    for (int n = 1; n < args->num_out; n++)
        expect_close(args->out[n].data, x->right.d[n], args->out[n].count, 2e-5, "d of parts",
                     x->which, x->number);
}

static void test_parts_merge(void **state)
{
    (void)state;
    for (uint32_t number = 100; number < 100 + NUM_MERGES; number++)
        for (int which = 0; which < num_kernels(); which++) {
            cut_call x;
            cut_init(&x, number, number % 2 ? 2 : 1 + (int)number % MOST_PARTS, which);
            merge_parts(&x);
            add_gradients(&x);
            cut_fini(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_mask),
        cmocka_unit_test(test_parts_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
