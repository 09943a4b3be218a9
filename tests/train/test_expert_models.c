/* Mixtures of experts that are a dense model: of one expert in every bit, of equal experts up to
 * rounding. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that nothing divides. */
#define LLAMA                                                                                      \
    "model.kind=llama", "model.num_layers=3", "model.dim=36", "model.num_heads=6",                 \
        "model.num_kv_heads=3", "model.ffn_dim=51", "model.vocab=299", "model.dropout=0",          \
        "data.seq_len=23", "train.batch=5", "train.steps=20", "train.eval_batches=2"

static tr_session *session_of(const char *const *model, const char *const *more)
{
    tr_settings *settings = settings_of(NULL, model);
    tr_session *session;
    tr_error err = {0};
    for (; *more; more++)
        if (tr_settings_set(settings, *more, &err) != TR_OK)
            fail_msg("%s", err.message);
    if (tr_session_create(settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

/* Settings outlive their session. */
static void end(tr_session *session)
{
    const tr_settings *settings = session->settings;
    tr_session_destroy(session);
    tr_settings_destroy((tr_settings *)(uintptr_t)settings);
}

static tr_step step_of(tr_session *session)
{
    tr_step step;
    tr_error err = {0};
    if (tr_session_step(session, &step, &err) != TR_OK)
        fail_msg("%s", err.message);
    return step;
}

static double eval_of(tr_session *session)
{
    tr_eval eval;
    tr_error err = {0};
    if (tr_session_eval(session, &eval, &err) != TR_OK)
        fail_msg("%s", err.message);
    return eval.loss;
}

/* The parameter of a dense model that this one stands for: each expert has a copy of it. A router
 * has none. */
static bool dense_of(const tr_session *dense, const char *name, tr_param *found)
{
    static const char part[] = "mlp.experts.";
    const char *at = strstr(name, part);
    char text[128];
    snprintf(text, sizeof text, "%.*s%s", at ? (int)(at - name) + 4 : (int)strlen(name), name,
             at ? at + strlen(part) : "");
    for (size_t i = 0; i < tr_session_num_params(dense); i++) {
        *found = tr_session_param(dense, i);
        if (strcmp(found->name, text) == 0)
            return true;
    }
    if (!strstr(name, "mlp.gate."))
        fail_msg("a dense model has no %s", text);
    return false;
}

static void copy_weights(tr_session *experts, const tr_session *dense)
{
    size_t used = 0;
    for (size_t i = 0; i < tr_session_num_params(experts); i++) {
        tr_param to = tr_session_param(experts, i), from;
        if (!dense_of(dense, to.name, &from))
            continue;
        assert_int_equal(to.count % from.count, 0);
        for (int64_t e = 0; e < to.count; e += from.count)
            memcpy(to.data + e, from.data, (size_t)from.count * sizeof *to.data);
        used++;
    }
    assert_int_equal(used, tr_session_num_params(dense));
}

/* --- One expert -------------------------------------------------------------------------------
 */

static void expect_same_bits(const tr_session *experts, const tr_session *dense, const char *what)
{
    for (size_t i = 0; i < tr_session_num_params(experts); i++) {
        tr_param a = tr_session_param(experts, i), b;
        if (!dense_of(dense, a.name, &b))
            continue;
        assert_int_equal(a.count, b.count);
        if (memcmp(a.data, b.data, (size_t)a.count * sizeof *a.data) != 0)
            fail_msg("%s: %s differs from that of the dense model", what, a.name);
    }
}

static float *routers_of(const tr_session *session, size_t *num)
{
    float *all = NULL;
    *num = 0;
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param p = tr_session_param(session, i);
        if (!strstr(p.name, "mlp.gate."))
            continue;
        all = realloc(all, (*num + (size_t)p.count) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *num, p.data, (size_t)p.count * sizeof *all);
        *num += (size_t)p.count;
    }
    return all;
}

static void one_expert(const char *const *how, const char *const *more)
{
    tr_session *dense = session_of((const char *const[]){LLAMA, NULL}, more);
    tr_session *one = session_of(how, more);
    size_t num;
    float *before = routers_of(one, &num);
    copy_weights(one, dense);
    for (int i = 0; i < 6; i++) {
        tr_step a = step_of(one), b = step_of(dense);
        if (a.loss != b.loss || a.grad_norm != b.grad_norm)
            fail_msg("%s, %s %s: loss %.9g and norm %.9g in step %d, not %.9g and %.9g", how[15],
                     more[0], more[1], a.loss, a.grad_norm, i, b.loss, b.grad_norm);
    }
    assert_true(eval_of(one) == eval_of(dense));
    expect_same_bits(one, dense, how[15]);
    /* A router that has no choice has no gradient. */
    float *after = routers_of(one, &num);
    if (memcmp(before, after, num * sizeof *after) != 0)
        fail_msg("%s, %s %s: the router has moved", how[15], more[0], more[1]);
    free(before);
    free(after);
    end(one);
    end(dense);
}

#define ONE_EXPERT "model.num_experts=1", "model.experts_per_token=1", "model.balance_loss=0"

static void test_one_expert_is_a_dense_model(void **state)
{
    (void)state;
    static const char *const ways[][18] = {
        {LLAMA, ONE_EXPERT, "model.router_score=softmax"},
        {LLAMA, ONE_EXPERT, "model.router_score=softmax", "model.router_renorm=false"},
        {LLAMA, ONE_EXPERT, "model.router_score=sigmoid"},
        {LLAMA, ONE_EXPERT, "model.router_score=chosen"},
    };
    static const char *const runs[][6] = {
        /* Norms are above the first limit, so that every gradient is scaled. */
        {"run.threads=1", "train.clip=0.1", "optim.weight_decay=0"},
        {"run.threads=2", "train.clip=0.1", "optim.weight_decay=0", "optim.kind=sgd"},
        {"run.threads=3", "layout.microbatches=2", "optim.weight_decay=0"},
        {"run.threads=1", "run.kernels=reference", "optim.weight_decay=0"},
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
            one_expert(ways[w], runs[r]);
}

/* --- Equal experts ----------------------------------------------------------------------------
 */

/* How far the ways of all copies of y from z, in x, are together from that of y, relative to it. */
static double off_the_way(tr_param x, tr_param y, const float *z)
{
    double off = 0, way = 0;
    for (int64_t i = 0; i < y.count; i++) {
        double moved = 0, dense = (double)y.data[i] - (double)z[i];
        for (int64_t e = i; e < x.count; e += y.count)
            moved += (double)x.data[e] - (double)z[i];
        off += (moved - dense) * (moved - dense);
        way += dense * dense;
    }
    return sqrt(off / way);
}

/* Whichever two of equal experts a token goes to, with weights that sum to one, the outcome is that
 * of one; so the gradients of the experts sum to that of a dense model, and a router has none. */
static void test_equal_experts_are_a_dense_model(void **state)
{
    (void)state;
    static const char *const ways[][18] = {
        {LLAMA, "model.num_experts=8", "model.balance_loss=0"},
        {LLAMA, "model.num_experts=8", "model.balance_loss=0", "model.router_score=sigmoid"},
        {LLAMA, "model.num_experts=8", "model.balance_loss=0", "model.router_score=chosen"},
    };
    static const char *const sgd[] = {
        "optim.kind=sgd", "optim.lr=1", "train.clip=0", "optim.momentum=0", "optim.weight_decay=0",
        "run.threads=2",  NULL};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        tr_session *dense = session_of((const char *const[]){LLAMA, NULL}, sgd);
        tr_session *eight = session_of(ways[w], sgd);
        float *before[64] = {0};
        copy_weights(eight, dense);
        for (size_t i = 0; i < tr_session_num_params(eight); i++) {
            tr_param p = tr_session_param(eight, i);
            before[i] = malloc((size_t)p.count * sizeof **before);
            assert_non_null(before[i]);
            memcpy(before[i], p.data, (size_t)p.count * sizeof **before);
        }
        assert_true(fabs(eval_of(eight) / eval_of(dense) - 1) < 1e-6);
        double a = step_of(eight).loss, b = step_of(dense).loss;
        assert_true(fabs(a / b - 1) < 1e-6);
        for (size_t i = 0; i < tr_session_num_params(eight); i++) {
            tr_param p = tr_session_param(eight, i), q;
            double off = dense_of(dense, p.name, &q) ? off_the_way(p, q, before[i]) : 0;
            if (!(off < 1e-4))
                fail_msg("way %zu: %s is off by %g of its way", w, p.name, off);
            for (int64_t e = 0; e < p.count && strstr(p.name, "mlp.gate."); e++)
                assert_true(fabsf(p.data[e] - before[i][e]) < 1e-6f);
            free(before[i]);
        }
        end(eight);
        end(dense);
    }
}

/* --- Dropped rows and jitter -------------------------------------------------------------------
 */

#define EIGHT LLAMA, "model.num_experts=8"
static const char *const by_sgd[] = {
    "optim.kind=sgd", "optim.lr=1", "train.clip=0", "optim.momentum=0", "optim.weight_decay=0",
    "run.threads=2",  NULL};

/* Held-out text is seen as it is; a capacity that all rows fit into changes no bit of training, and
 * less of it does, as jitter does. */
static void test_only_training_drops_and_jitters(void **state)
{
    (void)state;
    static const char *const ways[][16] = {
        {EIGHT},
        {EIGHT, "model.expert_capacity=8"},
        {EIGHT, "model.expert_capacity=0.7"},
        {EIGHT, "model.router_jitter=0.2"},
    };
    double eval = 0, loss = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        tr_session *session = session_of(ways[w], by_sgd);
        double held_out = eval_of(session), first = step_of(session).loss;
        eval = w == 0 ? held_out : eval;
        loss = w == 0 ? first : loss;
        assert_true(held_out == eval);
        assert_true(w < 2 ? first == loss : first != loss);
        end(session);
    }
}

/* The loss of the first step from weights + by * slope. */
static double loss_at(const char *const *how, float *const *slope, double by)
{
    tr_session *session = session_of(how, by_sgd);
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param p = tr_session_param(session, i);
        for (int64_t k = 0; k < p.count; k++)
            p.data[k] += (float)(by * (double)slope[i][k]);
    }
    double loss = step_of(session).loss;
    end(session);
    return loss;
}

/* A step of sgd with rate 1 is the gradient. Along it the loss rises by its square, also where four
 * of ten rows are dropped and every router's input is jittered. */
static void test_gradient_of_what_is_kept(void **state)
{
    (void)state;
    static const char *const how[] = {EIGHT, "model.expert_capacity=0.7", "model.router_jitter=0.1",
                                      NULL};
    tr_session *session = session_of(how, by_sgd);
    size_t num = tr_session_num_params(session);
    float *slope[64] = {0};
    double squares = 0;
    for (size_t i = 0; i < num; i++) {
        tr_param p = tr_session_param(session, i);
        slope[i] = malloc((size_t)p.count * sizeof **slope);
        assert_non_null(slope[i]);
        memcpy(slope[i], p.data, (size_t)p.count * sizeof **slope);
    }
    step_of(session);
    for (size_t i = 0; i < num; i++) {
        tr_param p = tr_session_param(session, i);
        for (int64_t k = 0; k < p.count; k++) {
            slope[i][k] -= p.data[k];
            squares += (double)slope[i][k] * (double)slope[i][k];
        }
    }
    end(session);
    const double by = 2e-3 / sqrt(squares);
    double rise = (loss_at(how, slope, by) - loss_at(how, slope, -by)) / (2 * by);
    print_message("the loss rises by %.6g, and the squared gradient is %.6g\n", rise, squares);
    assert_true(fabs(rise / squares - 1) < 0.01);
    for (size_t i = 0; i < num; i++)
        free(slope[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_expert_is_a_dense_model),
        cmocka_unit_test(test_equal_experts_are_a_dense_model),
        cmocka_unit_test(test_only_training_drops_and_jitters),
        cmocka_unit_test(test_gradient_of_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
