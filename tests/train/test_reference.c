/* Training against PyTorch: initial weights, losses, gradient norms, gradients and the weights
 * after ten steps, from the fixtures of tests/reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double distance(const float *x, const float *ref, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)ref[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static double norm_of_all(const fixture *f, const tri_session *session, const char *prefix)
{
    double sum = 0;
    for (size_t i = 0; i < session->params.count; i++) {
        const tri_param *param = &session->params.items[i];
        double norm =
            norm_of(fixture_tensor(f, prefix, param->name), tri_shape_count(&param->shape));
        sum += norm * norm;
    }
    return sqrt(sum);
}

/* |x - ref| <= 1e-4 |ref| + 1e-7 |all|: some gradients are zero in theory, key biases for one. */
static void check_grads(const fixture *f, const tri_session *session, const char *prefix)
{
    double all = norm_of_all(f, session, prefix);
    for (size_t i = 0; i < session->params.count; i++) {
        const tri_param *param = &session->params.items[i];
        int64_t n = tri_shape_count(&param->shape);
        const float *ref = fixture_tensor(f, prefix, param->name);
        float *grad = malloc((size_t)n * sizeof *grad);
        assert_non_null(grad);
        assert_int_equal(tri_session_grad(session, (tri_id)i, grad, NULL), TR_OK);
        double error = distance(grad, ref, n);
        free(grad);
        if (!(error <= 1e-4 * norm_of(ref, n) + 1e-7 * all))
            fail_msg("%s of %s is off by %g of %g", prefix, param->name, error, norm_of(ref, n));
    }
}

static void check_weights(const fixture *f, const tri_session *session, const char *prefix,
                          double tolerance)
{
    for (size_t i = 0; i < session->params.count; i++) {
        const tri_param *param = &session->params.items[i];
        int64_t n = tri_shape_count(&param->shape);
        const float *ref = fixture_tensor(f, prefix, param->name);
        double error = distance(session->weights[i], ref, n);
        /* The gradient of key biases is zero in theory; Adam divides its noise by its own size. */
        bool has_key_bias = strstr(param->name, "c_attn.bias") != NULL;
        double allowed = has_key_bias ? 10 * tolerance : tolerance;
        if (!(error <= allowed * (norm_of(ref, n) + 1e-3 * sqrt((double)n))))
            fail_msg("%s of %s is off by %g of %g", prefix, param->name, error, norm_of(ref, n));
    }
}

static void check_close(const char *what, int64_t step, double value, double ref)
{
    if (!(fabs(value - ref) <= 1e-4 * fabs(ref)))
        fail_msg("%s of step %lld is %.7g, the reference has %.7g", what, (long long)step, value,
                 ref);
}

static void check_run(fixture *f)
{
    tri_session session;
    tr_error err = {0};
    fixture_start(f, &session);
    if (fixture_has(f, "param", session.params.items[0].name))
        check_weights(f, &session, "param", 1e-7);
    const float *losses = fixture_tensor(f, NULL, "losses");
    const float *norms = fixture_tensor(f, NULL, "grad_norms");
    for (int64_t step = 0; step < f->num_steps; step++) {
        tri_step_result result;
        if (tri_session_step(&session, &result, &err) != TR_OK)
            fail_msg("%s", err.message);
        check_close("loss", step, (double)result.loss, (double)losses[step]);
        check_close("gradient norm", step, (double)result.grad_norm, (double)norms[step]);
        if (step == 0) {
            check_grads(f, &session, "grad");
            if (fixture_has(f, "formula", session.params.items[0].name))
                check_grads(f, &session, "formula");
        }
    }
    check_weights(f, &session, "after", 1e-4);
    tri_session_fini(&session);
}

/* The run as it is, in micro-batches that do not divide the batch, and with I and W apart. */
static void check_fixture(void **state)
{
    const char *name = *state;
    fixture f;
    fixture_open(&f, name);
    check_run(&f);
    f.config.device.num_threads = 1;
    f.config.compile.split_backward = true;
    check_run(&f);
    f.config.device.reference = true;
    check_run(&f);
    f.config.device.reference = false;
    if (f.tokens) {
        f.config.compile.num_microbatches = 3;
        check_run(&f);
        f.config.compile.split_backward = false;
        check_run(&f);
    }
    fixture_close(&f);
}

#define CASE(name)                                                                                 \
    {                                                                                              \
        name, check_fixture, NULL, NULL, name                                                      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE("gpt2_small"), CASE("gpt2_odd"), CASE("gpt2_wide"), CASE("gpt2_dropout"),
        CASE("gpt2_adam"),  CASE("gpt2_sgd"), CASE("gpt2_muon"), CASE("gpt2_z"),
        CASE("mlp_toy"),    CASE("mlp_bias"), CASE("mlp_relu"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
