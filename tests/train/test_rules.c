/* Update rules against plain loops, in double precision: the formula of the paper, and no more. And
 * that layouts leave them as they are. */
#include "small_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layout_cells.h"
#include "op_cases.h"

/* --- One call ------------------------------------------------------------------------------- */

static double sign(double x)
{
    return (x > 0) - (x < 0);
}

/* Both kernels of the CPU, on numbers of which some moments and gradients are zero. */
static void check_lion(const tri_kernel *kernel, tri_isa isa)
{
    static const op_case c = {
        "plain",
        TRI_OP_LION,
        {5003},
        {.update = {.lr_scale = 0.5f, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f}},
        0,
        0};
    op_run run, before;
    op_run_init(&run, &c, NULL);
    op_run_init(&before, &c, NULL);
    for (int i = 0; i < 2; i++) {
        op_run *r = i ? &before : &run;
        for (int64_t k = 0; k < 9; k++)
            ((float *)r->args.in[1 + k % 2].data)[k] = 0;
        ((float *)r->args.in[1].data)[1] = ((float *)r->args.in[2].data)[1] = 0;
    }
    op_run_kernel(&run, kernel, NULL, isa);
    const float *p0 = before.args.in[0].data, *m0 = before.args.in[1].data;
    const float *g0 = before.args.in[2].data, *sched = before.args.in[3].data;
    const float *result = before.args.in[4].data;
    const float *p = run.args.out[0].data, *m = run.args.out[1].data;
    double lr = (double)sched[TRI_STEP_LR] * 0.5, beta1 = (double)0.9f, beta2 = (double)0.99f;
    for (int64_t i = 0; i < run.args.out[0].count; i++) {
        double g = (double)g0[i] * (double)result[TRI_RESULT_FACTOR];
        double step = sign(beta1 * (double)m0[i] + (1 - beta1) * g);
        double next = (1 - lr * (double)0.1f) * (double)p0[i] - lr * step;
        assert_true(fabs((double)p[i] - next) <= 1e-6 * (fabs(next) + lr));
        next = beta2 * (double)m0[i] + (1 - beta2) * g;
        assert_true(fabs((double)m[i] - next) <= 1e-6 * (fabs((double)m0[i]) + fabs(g)));
    }
    op_run_fini(&run);
    op_run_fini(&before);
}

static void test_lion_is_its_formula(void **state)
{
    (void)state;
    check_lion(tri_cpu_reference(TRI_OP_LION), TRI_ISA_BASE);
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
        check_lion(tri_cpu_fast(TRI_OP_LION, isa), isa);
}

/* --- Training ------------------------------------------------------------------------------- */

static tr_session *open_session(tr_settings **settings, const char *const *assignments)
{
    tr_session *session;
    tr_error err = {0};
    *settings = settings_of(TINY, assignments);
    if (tr_session_create(*settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

/* Settings reach the rule: three steps of a session, redone from its gradients. Matrices decay, and
 * biases do not. */
static void test_lion_in_a_session(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_error err = {0};
    tr_session *session = open_session(
        &settings, SET("model.num_layers=1", "model.dim=16", "model.num_heads=2", "data.seq_len=16",
                       "train.clip=0", "optim.kind=lion", "optim.lr=0.01", "optim.weight_decay=0.5",
                       "optim.warmup_steps=0", "optim.schedule=constant"));
    tri_session *s = &session->session;
    enum { MOST = 1 << 16 };
    static float grad[MOST];
    static double p[2][MOST], m[2][MOST];
    tri_id params[2] = {tri_param_find(&s->params, "h.0.mlp.c_fc.weight"),
                        tri_param_find(&s->params, "h.0.mlp.c_fc.bias")};
    int64_t count[2];
    for (int k = 0; k < 2; k++) {
        count[k] = tri_shape_count(&s->params.items[params[k]].shape);
        for (int64_t i = 0; i < count[k]; i++)
            p[k][i] = (double)s->weights[params[k]][i];
    }
    for (int t = 0; t < 3; t++) {
        assert_int_equal(tr_session_step(session, NULL, &err), TR_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tri_session_grad(s, params[k], grad, &err), TR_OK);
            for (int64_t i = 0; i < count[k]; i++) {
                double g = (double)grad[i], decay = k == 0 ? 0.5 : 0;
                p[k][i] -= 0.01 * (sign(0.9 * m[k][i] + 0.1 * g) + decay * p[k][i]);
                m[k][i] = 0.99 * m[k][i] + 0.01 * g;
            }
        }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < count[k]; i++)
            assert_true(fabs((double)s->weights[params[k]][i] - p[k][i]) <= 1e-6);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* --- Layouts -------------------------------------------------------------------------------- */

static void run_cell(cell_run *run, const cell *c, const char *more)
{
    tr_error err = {0};
    if (cell_run_with(run, c, more, 8, &err) != TR_OK)
        fail_msg("%s: %s", more, err.message);
}

/* Equal losses and weights; the norm of the gradient is added up in another order. */
static bool same_training(const cell_run *a, const cell_run *b)
{
    size_t total = 0;
    for (size_t i = 0; i < a->num_params; i++)
        total += a->sizes[i];
    return memcmp(a->ranks[0].loss, b->ranks[0].loss, (size_t)a->steps * sizeof(double)) == 0 &&
           memcmp(a->weights, b->weights, total * sizeof(float)) == 0;
}

/* ZeRO divides the moments: without clipping not a bit changes. Another tp or pp adds in another
 * order. */
static void check_layouts(const char *rule)
{
    static const int precision[] = {FP32, BF16, FP16};
    cell_run one, dp, other;
    for (size_t k = 0; k < sizeof precision / sizeof *precision; k++) {
        cell c = {{[CELL_MODEL] = MODEL_LLAMA, [CELL_DP] = 1, [CELL_TP] = 1, [CELL_MICRO] = 1}};
        c.is[CELL_PRECISION] = precision[k];
        run_cell(&one, &c, rule);
        assert_true(one.ranks[0].loss[7] < one.ranks[0].loss[0]);
        c.is[CELL_DP] = 2;
        run_cell(&dp, &c, rule);
        for (int zero = 1; zero <= 3; zero++) {
            c.is[CELL_ZERO] = zero;
            run_cell(&other, &c, rule);
            if (!same_training(&dp, &other))
                fail_msg("%s, %s: zero %d has other bits than zero 0", rule,
                         cell_precisions[precision[k]], zero);
            cell_run_fini(&other);
        }
        cell cut = {{[CELL_MODEL] = MODEL_LLAMA, [CELL_DP] = 1, [CELL_TP] = 2, [CELL_MICRO] = 2}};
        cut.is[CELL_PRECISION] = precision[k];
        cut.is[CELL_PP] = k == 0 ? 2 : 1;
        run_cell(&other, &cut, rule);
        cell_distance d = cell_compare(&one, &other, cell_world(&cut));
        double limit = k == 0 ? 1e-3 : 2e-2;
        if (!d.ranks_agree || !d.same_start || !(d.loss <= limit))
            fail_msg("%s, %s: tp 2 is off by %g in the loss", rule, cell_precisions[precision[k]],
                     d.loss);
        cell_run_fini(&other);
        cell_run_fini(&dp);
        cell_run_fini(&one);
    }
}

static void test_lion_in_layouts(void **state)
{
    (void)state;
    check_layouts("optim.kind=lion optim.lr=1e-3 train.clip=0");
}

/* Blocks begin where a rank's piece begins, whatever ZeRO makes of it. */
static void test_moments_of_8_bits_in_layouts(void **state)
{
    (void)state;
    check_layouts("optim.moments=8bit optim.lr=3e-3 train.clip=0 model.ffn_dim=131");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lion_is_its_formula),
        cmocka_unit_test(test_lion_in_a_session),
        cmocka_unit_test(test_lion_in_layouts),
        cmocka_unit_test(test_moments_of_8_bits_in_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
