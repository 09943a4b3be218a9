/* Training as a session does it: what must be the same bit for bit, what within a tolerance, and
 * what must not change at all. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/isa.h"
#include "temp_dir.h"
#include "trireme/trireme.h"

enum { MAX_STEPS = 20 };

#define SMALL "model.num_layers=2", "model.dim=32", "data.seq_len=24"

/* A started session, its settings, and the losses and norms of the steps it has done. */
typedef struct runner {
    tr_settings *settings;
    tr_session *session;
    double loss[MAX_STEPS], norm[MAX_STEPS];
    int num_steps;
} runner;

static void open_runner(runner *r, const char *const *assignments)
{
    tr_error err = {0};
    *r = (runner){.settings = settings_of(TINY, assignments)};
    if (tr_session_create(r->settings, &r->session, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static void close_runner(runner *r)
{
    tr_session_destroy(r->session);
    tr_settings_destroy(r->settings);
}

static void step(runner *r, int num_steps)
{
    tr_error err = {0};
    for (int i = 0; i < num_steps; i++) {
        tr_step done;
        if (tr_session_step(r->session, &done, &err) != TR_OK)
            fail_msg("%s", err.message);
        r->loss[r->num_steps] = done.loss;
        r->norm[r->num_steps++] = done.grad_norm;
    }
}

/* Opens, runs and closes; what it measured stays. */
static runner run(int num_steps, const char *const *assignments)
{
    runner r;
    open_runner(&r, assignments);
    step(&r, num_steps);
    close_runner(&r);
    return r;
}

static void expect_same(const runner *a, const runner *b, const char *what)
{
    assert_int_equal(a->num_steps, b->num_steps);
    for (int i = 0; i < a->num_steps; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg("%s: step %d has loss %.9g and norm %.9g, not %.9g and %.9g", what, i,
                     b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
}

/* The contract between layouts: losses to 1e-5 relative, norms to 1e-4. */
static void expect_close(const runner *a, const runner *b, const char *what)
{
    assert_int_equal(a->num_steps, b->num_steps);
    for (int i = 0; i < a->num_steps; i++) {
        if (!(fabs(a->loss[i] - b->loss[i]) <= 1e-5 * fabs(a->loss[i])) ||
            !(fabs(a->norm[i] - b->norm[i]) <= 1e-4 * fabs(a->norm[i])))
            fail_msg("%s: step %d has loss %.9g and norm %.9g, not %.9g and %.9g", what, i,
                     b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
    }
}

/* --- Copies of the weights ------------------------------------------------------------------ */

static float *copy_of_weights(const tr_session *session)
{
    int64_t total = 0;
    for (size_t i = 0; i < tr_session_num_params(session); i++)
        total += tr_session_param(session, i).count;
    float *copy = malloc((size_t)total * sizeof *copy), *at = copy;
    assert_non_null(copy);
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param param = tr_session_param(session, i);
        memcpy(at, param.data, (size_t)param.count * sizeof *at);
        at += param.count;
    }
    return copy;
}

/* Is this parameter, bit for bit, as in the copy? */
static bool unchanged(const tr_session *session, size_t param, const float *copy)
{
    for (size_t i = 0; i < param; i++)
        copy += tr_session_param(session, i).count;
    tr_param now = tr_session_param(session, param);
    return memcmp(now.data, copy, (size_t)now.count * sizeof *copy) == 0;
}

static size_t num_changed(const tr_session *session, const float *copy)
{
    size_t num = 0;
    for (size_t i = 0; i < tr_session_num_params(session); i++)
        num += !unchanged(session, i, copy);
    return num;
}

static double distance_from(const tr_session *session, const float *copy)
{
    double sum = 0;
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param param = tr_session_param(session, i);
        for (int64_t e = 0; e < param.count; e++, copy++)
            sum +=
                ((double)param.data[e] - (double)*copy) * ((double)param.data[e] - (double)*copy);
    }
    return sqrt(sum);
}

/* --- The same answer ------------------------------------------------------------------------ */

static void test_loss_falls(void **state)
{
    (void)state;
    runner r = run(20, SET("run.seed=1"));
    if (!(r.loss[19] < r.loss[0] - 0.5))
        fail_msg("the loss went from %g to %g", r.loss[0], r.loss[19]);
}

static void test_runs_and_threads_give_the_same_bits(void **state)
{
    (void)state;
    const char *const threads[] = {"run.threads=1", "run.threads=2", "run.threads=3"};
    runner first = run(8, (const char *const[]){threads[0], NULL});
    for (int i = 0; i < 3; i++) {
        runner again = run(8, (const char *const[]){threads[i], NULL});
        expect_same(&first, &again, threads[i]);
    }
    runner other = run(8, SET("run.seed=2"));
    assert_true(other.loss[7] != first.loss[7]); /* the losses do depend on something */
}

static void test_microbatches_agree(void **state)
{
    (void)state;
    const char *const counts[] = {"layout.microbatches=2", "layout.microbatches=3",
                                  "layout.microbatches=8"};
    runner whole = run(20, SET("layout.microbatches=1"));
    for (int i = 0; i < 3; i++) {
        runner parts = run(20, SET(counts[i]));
        expect_close(&whole, &parts, counts[i]);
    }
}

static void test_split_backward_gives_the_same_bits(void **state)
{
    (void)state;
    const char *const counts[] = {"layout.microbatches=1", "layout.microbatches=3"};
    for (int i = 0; i < 2; i++) {
        runner plain = run(6, SET(counts[i]));
        runner split = run(6, SET(counts[i], "layout.split_backward=true"));
        expect_same(&plain, &split, counts[i]);
    }
}

static void test_mlp_in_every_way(void **state)
{
    (void)state;
#define SMALL_MLP "model.kind=mlp", "model.dim=48", "model.num_layers=3"
    runner whole = run(6, SET(SMALL_MLP));
    assert_true(whole.loss[5] < whole.loss[0]);
    runner split = run(6, SET(SMALL_MLP, "layout.split_backward=true"));
    expect_same(&whole, &split, "mlp, split backward");
    runner parts = run(6, SET(SMALL_MLP, "layout.microbatches=4"));
    expect_close(&whole, &parts, "mlp, 4 micro-batches");
    runner threads = run(6, (const char *const[]){SMALL_MLP, "run.threads=3", NULL});
    expect_same(&whole, &threads, "mlp, 3 threads");
}

static void test_instruction_sets_agree(void **state)
{
    (void)state;
    runner reference = run(5, SET(SMALL, "run.kernels=reference"));
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++) {
        char choice[32];
        snprintf(choice, sizeof choice, "run.isa=%s", tri_isa_name(isa));
        runner fast = run(5, SET(SMALL, choice));
        expect_close(&reference, &fast, choice);
    }
}

/* --- Weights -------------------------------------------------------------------------------- */

static void test_weights_survive_a_file(void **state)
{
    temp_dir *dir = *state;
    tr_error err = {0};
    const char *path = temp_file(dir, "weights.safetensors");
    char from[300];
    snprintf(from, sizeof from, "model.from=%s", path);
    runner a, b, fresh;
    tr_eval eval_a, eval_b, fresh_eval;
    open_runner(&a, SET(SMALL));
    step(&a, 5);
    assert_int_equal(tr_session_save(a.session, path, &err), TR_OK);
    assert_int_equal(tr_session_eval(a.session, &eval_a, &err), TR_OK);
    open_runner(&b, SET(SMALL, "run.seed=9", from)); /* another seed: nothing is drawn again */
    float *copy = copy_of_weights(a.session);
    assert_int_equal(num_changed(b.session, copy), 0);
    free(copy);
    close_runner(&b);
    open_runner(&b, SET(SMALL, from));
    assert_int_equal(tr_session_eval(b.session, &eval_b, &err), TR_OK);
    open_runner(&fresh, SET(SMALL));
    assert_int_equal(tr_session_eval(fresh.session, &fresh_eval, &err), TR_OK);
    assert_true(eval_a.loss == eval_b.loss);
    assert_true(eval_a.loss < fresh_eval.loss);
    assert_true(eval_a.accuracy == eval_b.accuracy);
    assert_true(eval_a.accuracy > 0 && eval_a.accuracy < 1);
    close_runner(&a);
    close_runner(&b);
    close_runner(&fresh);
}

/* A loss that jumps beyond train.spike_limit writes nothing, or is only told of, or ends it. */
static void test_a_spike_changes_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {"warn", "skip", "stop"};
    for (int i = 0; i < 3; i++) {
        runner r;
        tr_error err = {0};
        tr_step done;
        char on[40];
        snprintf(on, sizeof on, "train.on_spike=%s", words[i]);
        open_runner(&r, SET(SMALL, on, "train.spike_limit=30", "optim.lr=1e-4"));
        step(&r, 16);
        const tri_spikes *spikes = &r.session->session.spikes;
        assert_int_equal(spikes->num, TRI_SPIKE_WINDOW);
        assert_false(spikes->found);
        tri_slab moments = r.session->session.store.slabs[TRI_SLAB_OPTIM];
        void *moments_before = malloc(moments.bytes);
        assert_non_null(moments_before);
        memcpy(moments_before, moments.memory, moments.bytes);
        tr_param first = tr_session_param(r.session, 0);
        for (int64_t k = 0; k < 2048; k++)
            first.data[k] *= 300; /* embeddings of tokens, which the logits are made with, too */
        float *copy = copy_of_weights(r.session);
        tr_status status = tr_session_step(r.session, &done, &err);
        assert_true(spikes->found);
        assert_true(done.loss > (double)spikes->limit);
        assert_int_equal(status, i == 2 ? TR_ERROR_NUMERIC : TR_OK);
        assert_int_equal(done.skipped, i > 0);
        if (i == 0) {
            assert_true(num_changed(r.session, copy) > 0);
        } else {
            assert_int_equal(num_changed(r.session, copy), 0);
            assert_memory_equal(moments.memory, moments_before, moments.bytes);
        }
        if (i == 2) /* eight rows a step */
            assert_non_null(strstr(err.message, "samples 128 to 135"));
        free(copy);
        free(moments_before);
        close_runner(&r);
    }
}

static void test_nan_is_reported_and_changes_nothing(void **state)
{
    (void)state;
    runner r;
    tr_error err = {0};
    tr_step done;
    open_runner(&r, SET(SMALL, "train.max_skipped=0"));
    step(&r, 2);
    tri_slab moments = r.session->session.store.slabs[TRI_SLAB_OPTIM];
    void *moments_before = malloc(moments.bytes);
    assert_non_null(moments_before);
    memcpy(moments_before, moments.memory, moments.bytes);
    float *weight = &tr_session_param(r.session, 0).data[5], kept = *weight;
    *weight = NAN;
    float *copy = copy_of_weights(r.session);
    assert_int_equal(tr_session_step(r.session, &done, &err), TR_ERROR_NUMERIC);
    assert_non_null(strstr(err.message, "not finite at step 3"));
    assert_int_equal(done.step, 3);
    assert_int_equal(num_changed(r.session, copy), 0);
    assert_memory_equal(moments.memory, moments_before, moments.bytes);
    *weight = kept; /* and with the cause away, the same step is done as if nothing had been */
    step(&r, 1);
    runner plain = run(3, SET(SMALL));
    expect_same(&plain, &r, "after a step that was refused");
    free(copy);
    free(moments_before);
    close_runner(&r);
}

static void test_rate_0_changes_nothing(void **state)
{
    (void)state;
    const char *const rules[] = {"optim.kind=adamw", "optim.kind=adam", "optim.kind=sgd",
                                 "optim.kind=muon", "optim.kind=lion"};
    for (int i = 0; i < 5; i++) {
        runner r;
        open_runner(&r, SET(SMALL, rules[i], "optim.lr=0"));
        float *copy = copy_of_weights(r.session);
        step(&r, 3);
        assert_true(r.norm[2] > 0);
        assert_int_equal(num_changed(r.session, copy), 0);
        free(copy);
        close_runner(&r);
    }
}

/* The length of the update is that of the gradient, but for clipping: sgd at rate 1. */
static void test_clipping_bounds_the_update(void **state)
{
    (void)state;
    const struct {
        const char *clip;
        double most;
    } rows[] = {{"train.clip=0", INFINITY}, {"train.clip=0.01", 0.01}, {"train.clip=1000", 1000}};
    for (int i = 0; i < 3; i++) {
        runner r;
        open_runner(&r, SET(SMALL, rows[i].clip, "optim.kind=sgd", "optim.momentum=0",
                            "optim.weight_decay=0", "optim.lr=1", "optim.warmup_steps=0"));
        float *copy = copy_of_weights(r.session);
        step(&r, 1);
        double expected = fmin(r.norm[0], rows[i].most);
        assert_true(r.norm[0] > 0.02);
        if (!(fabs(distance_from(r.session, copy) - expected) <= 1e-3 * expected))
            fail_msg("%s: the update has length %g, not %g", rows[i].clip,
                     distance_from(r.session, copy), expected);
        free(copy);
        close_runner(&r);
    }
}

/* --- Groups --------------------------------------------------------------------------------- */

static void test_groups_freeze_what_they_name(void **state)
{
    (void)state;
    runner r;
    open_runner(&r, SET(SMALL, "optim.groups=wte.* lr_scale=0; h.1.* lr_scale=0 weight_decay=1"));
    float *copy = copy_of_weights(r.session);
    step(&r, 2);
    for (size_t i = 0; i < tr_session_num_params(r.session); i++) {
        const char *name = tr_session_param(r.session, i).name;
        bool named = strncmp(name, "wte.", 4) == 0 || strncmp(name, "h.1.", 4) == 0;
        if (unchanged(r.session, i, copy) != named)
            fail_msg("%s %s", name, named ? "was changed" : "was not changed");
    }
    free(copy);
    close_runner(&r);
}

static void test_first_group_that_matches_counts(void **state)
{
    (void)state;
    runner r;
    open_runner(&r, SET(SMALL, "optim.groups=h.0.mlp.* lr_scale=1; h.* lr_scale=0"));
    float *copy = copy_of_weights(r.session);
    step(&r, 1);
    for (size_t i = 0; i < tr_session_num_params(r.session); i++) {
        const char *name = tr_session_param(r.session, i).name;
        bool frozen = strncmp(name, "h.", 2) == 0 && strncmp(name, "h.0.mlp.", 8) != 0;
        assert_int_equal(unchanged(r.session, i, copy), frozen);
    }
    free(copy);
    close_runner(&r);
}

static void test_wrong_groups_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *groups, *says;
    } rows[] = {
        {"optim.groups=wteight* lr_scale=0", "no parameter matches \"wteight*\""},
        {"optim.groups=wte.* speed=2", "\"speed=2\" is not understood"},
        {"optim.groups=wte.* lr_scale=fast", "\"lr_scale=fast\" is not understood"},
        {"optim.groups=wte.* lr_scale=-1", "\"lr_scale=-1\" is not understood"},
        {"optim.groups=wte.* kind=adamx", "\"kind=adamx\" is not understood"},
        {"optim.groups=wte.* lr_scale", "\"lr_scale\" is not understood"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tr_error err = {0};
        tr_session *session;
        tr_settings *settings = settings_of(TINY, SET(SMALL, rows[i].groups));
        assert_int_equal(tr_session_create(settings, &session, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, "optim.groups") || !strstr(err.message, rows[i].says))
            fail_msg("%s: %s", rows[i].groups, err.message);
        assert_null(session);
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_falls),
        cmocka_unit_test(test_runs_and_threads_give_the_same_bits),
        cmocka_unit_test(test_microbatches_agree),
        cmocka_unit_test(test_split_backward_gives_the_same_bits),
        cmocka_unit_test(test_mlp_in_every_way),
        cmocka_unit_test(test_instruction_sets_agree),
        cmocka_unit_test(test_weights_survive_a_file),
        cmocka_unit_test(test_nan_is_reported_and_changes_nothing),
        cmocka_unit_test(test_a_spike_changes_nothing),
        cmocka_unit_test(test_rate_0_changes_nothing),
        cmocka_unit_test(test_clipping_bounds_the_update),
        cmocka_unit_test(test_groups_freeze_what_they_name),
        cmocka_unit_test(test_first_group_that_matches_counts),
        cmocka_unit_test(test_wrong_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
