/* 16-bit training: against PyTorch's mixed precision, and the loss scaler of fp16, which halves,
 * doubles and skips as GradScaler does. */
#include "small_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "fixture.h"
#include "op_cases.h"
#include "train/nonfinite.h"
#include "train/pieces.h"
#include "train/weights_host.h"

#define SMALL "model.num_layers=2", "model.dim=32", "data.seq_len=24", "train.clip=1"
#define FP16  SMALL, "precision.kind=fp16"

static double size_of(const float *x, const float *minus, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

static void expect_near(const char *what, int64_t step, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit * fabs(want)))
        fail_msg("%s of step %lld is %.7g, PyTorch has %.7g", what, (long long)step, got, want);
}

/* A gradient differs by the rounding of what it was made of; small ones, by that of their
 * neighbours. */
static void expect_gradients(const fixture *f, const tri_session *session, double all, double limit)
{
    for (size_t i = 0; i < session->params.count; i++) {
        const tri_param *param = &session->params.items[i];
        int64_t n = tri_shape_count(&param->shape);
        const float *ref = fixture_tensor(f, "grad", param->name);
        float *grad = malloc((size_t)n * sizeof *grad);
        assert_non_null(grad);
        assert_int_equal(tri_session_grad(session, (tri_id)i, grad, NULL), TR_OK);
        double error = size_of(grad, ref, n), size = size_of(ref, NULL, n);
        free(grad);
        if (!(error <= limit * (size + 1e-2 * all)))
            fail_msg("gradient of %s is off by %g of %g", param->name, error, size);
    }
}

/* limit: of gradients; of losses a hundredth of it, since what rounds there averages out. */
static void check_amp(const char *name, double limit)
{
    fixture f;
    tri_session session;
    tr_error err = {0};
    fixture_open(&f, name);
    fixture_start(&f, &session);
    const float *losses = fixture_tensor(&f, NULL, "losses");
    const float *norms = fixture_tensor(&f, NULL, "grad_norms");
    const float *scales = fixture_tensor(&f, NULL, "scales");
    for (int64_t step = 0; step < f.num_steps; step++) {
        tri_step_result result;
        if (tri_session_step(&session, &result, &err) != TR_OK)
            fail_msg("%s", err.message);
        expect_near("loss", step, (double)result.loss, (double)losses[step], 0.05 * limit);
        expect_near("gradient norm", step, (double)result.grad_norm, (double)norms[step], limit);
        assert_true(result.scale == scales[step]);
        if (step == 0)
            expect_gradients(&f, &session, (double)norms[0], limit);
    }
    for (size_t i = 0; i < session.params.count; i++) {
        const tri_param *param = &session.params.items[i];
        int64_t n = tri_shape_count(&param->shape);
        const float *after = fixture_tensor(&f, "after", param->name);
        bool noise =
            strstr(param->name, "c_attn.bias") != NULL; /* of key biases, Adam makes steps */
        double error = size_of(session.weights[i], after, n);
        if (!noise && !(error <= limit * (size_of(after, NULL, n) + 1e-2 * sqrt((double)n))))
            fail_msg("%s is off by %g of %g after the last step", param->name, error,
                     size_of(after, NULL, n));
    }
    tri_session_fini(&session);
    fixture_close(&f);
}

static void test_bf16_against_autocast(void **state)
{
    (void)state;
    check_amp("amp_bf16", 2e-2);
}

static void test_fp16_against_autocast(void **state)
{
    (void)state;
    check_amp("amp_fp16", 2.5e-3);
}

/* The rule alone: the scales of GradScaler for a row of overflows. */
static void test_scale_follows_gradscaler(void **state)
{
    (void)state;
    tri_safetensors *file;
    tr_error err = {0};
    if (tri_safetensors_open("tests/fixtures/amp_scaler.safetensors", &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    const tri_safetensor *scales = tri_safetensors_find(file, "scales");
    const float *want = scales->data, *overflows = tri_safetensors_find(file, "overflows")->data;
    static const op_case c = {
        "rule", TRI_OP_FINISH, {0}, {.finish = {.alpha = 0.5f, .interval = 3}}, CASE_SCALE, 0};
    op_run run;
    op_run_init(&run, &c, NULL);
    float *scaler = run.args.in[3].data;
    const float *result = run.args.out[0].data;
    memcpy(scaler, (float[TRI_NUM_SCALER]){1024, 0}, TRI_NUM_SCALER * sizeof(float));
    *(float *)run.args.in[1].data = 4; /* targets */
    for (size_t i = 0; i < scales->num_bytes / sizeof *want; i++) {
        *(float *)run.args.in[2].data = overflows[i] > 0 ? INFINITY : 16 * want[i] * want[i];
        op_run_kernel(&run, tri_cpu_reference(TRI_OP_FINISH), NULL, TRI_ISA_BASE);
        assert_true(result[TRI_RESULT_SCALE] == want[i]);
        assert_true(result[TRI_RESULT_OK] == (overflows[i] > 0 ? 0.0f : 1.0f));
        assert_true(overflows[i] > 0 || result[TRI_RESULT_NORM] == 2); /* whatever the scale */
    }
    op_run_fini(&run);
    tri_safetensors_close(file);
}

/* --- Sessions ------------------------------------------------------------------------------- */

static tr_session *open_session(tr_settings **settings, const char *const *assignments)
{
    tr_session *session;
    tr_error err = {0};
    *settings = settings_of(TINY, assignments);
    if (tr_session_create(*settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

static tr_step step(tr_session *session)
{
    tr_step done;
    tr_error err = {0};
    if (tr_session_step(session, &done, &err) != TR_OK)
        fail_msg("%s", err.message);
    return done;
}

/* Every upper half, with the lower halves that matter: to the nearest, ties away from zero, so that
 * what is lost is an int16; infinities and NaNs stay what they are. */
static void test_weights_round_to_bf16(void **state)
{
    (void)state;
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1234, 0xc000};
    for (uint32_t high = 0; high < 0x10000; high++) {
        for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
            uint32_t bits = high << 16 | low[k];
            float value = tri_f32_of(bits);
            uint16_t copy = tri_weight_to_bf16(value);
            if (isnan(value)) {
                assert_true(isnan(tri_bf16_to_f32(copy)));
                continue;
            }
            int64_t lost = (int64_t)bits - ((int64_t)copy << 16);
            assert_in_range(lost + 0x8000, 0, 0xffff); /* no tie goes towards zero */
            assert_int_equal(tri_bits_of(value), ((uint32_t)copy << 16) + (uint32_t)(int16_t)lost);
            if (low[k] != 0x8000)
                assert_int_equal(copy, tri_f32_to_bf16(value));
        }
    }
}

static void fill_ties(float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = tri_f32_of((uint32_t)(0x3c00 + i * 37 % 0x200) << 16 | 0x8000u |
                           (uint32_t)(i & 1) << 31);
}

/* The kernels of the CPU on 16-bit operands: narrow, and adam with a copy that may be of a weight
 * as it was (a learning rate of 0). An activation rounds ties to even. */
static void test_kernels_round_copies(void **state)
{
    (void)state;
    static const op_case cases[] = {
        {"ties", TRI_OP_NARROW, {1000}, {0}, 0, 0},
        {"ties", TRI_OP_ADAM, {1000}, {.update = {.lr_scale = 1, .eps = 1e-8f}}, CASE_COPY, 0},
        {"ties", TRI_OP_CAST, {10, 10, 1, 10}, {.cast = {.dtype = TRI_BF16}}, 0, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int fast = 0; fast < 2; fast++) {
            op_run run;
            op_run_init(&run, &cases[k], NULL);
            int copy = cases[k].op == TRI_OP_ADAM ? 3 : 0;
            tri_tensor *out = &run.args.out[copy];
            assert_int_equal(out->count, 1000);
            fill_ties(run.args.in[0].data, run.args.in[0].count);
            if (copy)
                ((float *)run.args.in[4].data)[TRI_STEP_LR] = 0;
            const tri_kernel *kernel = fast ? tri_cpu_fast(cases[k].op, TRI_ISA_BASE) : NULL;
            kernel = kernel ? kernel : tri_cpu_reference(cases[k].op);
            out->dtype = TRI_BF16;
            if (run.args.num_in > 6 || cases[k].op == TRI_OP_NARROW)
                run.args.in[copy ? 6 : 1].dtype = TRI_BF16;
            char *scratch = malloc(tri_cpu_widened_scratch(cases[k].op, kernel, &run.args, 1) + 64);
            assert_non_null(scratch);
            tri_cpu cpu = {.scratch = scratch};
            run.args.device = &cpu;
            tri_cpu_run_widened(cases[k].op, kernel, &run.args);
            const float *weight = run.args.in[0].data;
            const uint16_t *got = out->data;
            for (int64_t i = 0; i < out->count; i++)
                assert_int_equal(got[i], cases[k].op == TRI_OP_CAST
                                             ? tri_f32_to_bf16(weight[i])
                                             : tri_weight_to_bf16(weight[i]));
            free(scratch);
            op_run_fini(&run);
        }
    }
}

static void expect_copies(const tri_session *session)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    const tri_executor *executor = &session->executors[TRI_PROGRAM_TRAIN];
    int num = 0;
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *copy = &program->states[s];
        if (copy->kind != TRI_STATE_COPY)
            continue;
        const uint16_t *bits = tri_executor_memory(executor, copy->latest, 0);
        for (int64_t i = 0; i < tri_shape_count(&copy->shape); i++)
            assert_int_equal(bits[i], tri_weight_to_bf16(session->weights[copy->param][i]));
        num++;
    }
    assert_in_range(num, 5, 100);
}

/* Weights that are given (loaded, initial), those of a checkpoint, and those after an update. */
static void test_every_copy_rounds_alike(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_error err = {0};
    tr_session *session =
        open_session(&settings, SET(SMALL, "precision.kind=bf16", "optim.lr=0", "optim.kind=sgd"));
    tri_session *s = &session->session;
    tri_pieces pieces;
    for (size_t i = 0; i < s->params.count; i++)
        fill_ties(s->weights[i], tri_shape_count(&s->params.items[i].shape));
    assert_int_equal(tri_weights_push(s, NULL, NULL, &err), TR_OK);
    expect_copies(s);
    step(session);
    expect_copies(s);
    assert_int_equal(tri_pieces_list(s, &pieces, &err), TR_OK);
    for (size_t i = 0; i < pieces.num; i++) {
        const tri_piece *piece = &pieces.piece[i];
        tri_id param = tri_param_find(&s->params, piece->name);
        if (piece->dtype != TRI_BF16)
            continue;
        uint16_t *room = malloc((size_t)piece->region.count * sizeof *room);
        assert_non_null(room);
        memset(tri_piece_memory(s, piece, 0), 0, (size_t)piece->region.count * 2);
        assert_int_equal(
            tri_piece_write(s, piece, 0, piece->region.count, s->weights[param], room, &err),
            TR_OK);
        free(room);
    }
    expect_copies(s);
    tri_pieces_free(&pieces);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void *copy_of(tri_slab slab)
{
    void *copy = malloc(slab.bytes);
    assert_non_null(copy);
    return memcpy(copy, slab.memory, slab.bytes);
}

/* Only the scale may change in a step that is skipped; then training goes on. */
static void test_overflow_is_survived(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session = open_session(&settings, SET(FP16, "precision.scale=1e9"));
    tri_store *store = &session->session.store;
    void *params = copy_of(store->slabs[TRI_SLAB_PARAM]);
    void *copies = copy_of(store->slabs[TRI_SLAB_COPY]);
    double scale = 1e9, first = 0, last = 0;
    int skipped = 0;
    tr_step done = step(session);
    for (; done.skipped; done = step(session), skipped++) {
        assert_true(done.step == skipped + 1);
        assert_true(done.scale == scale);
        assert_false(isfinite(done.grad_norm));
        assert_true(isfinite(done.loss));
        assert_memory_equal(store->slabs[TRI_SLAB_PARAM].memory, params,
                            store->slabs[TRI_SLAB_PARAM].bytes);
        assert_memory_equal(store->slabs[TRI_SLAB_COPY].memory, copies,
                            store->slabs[TRI_SLAB_COPY].bytes);
        scale /= 2;
    }
    assert_in_range(skipped, 3, 20);
    assert_true(memcmp(store->slabs[TRI_SLAB_PARAM].memory, params,
                       store->slabs[TRI_SLAB_PARAM].bytes) != 0);
    first = done.loss;
    for (int i = 0; i < 30; i++) {
        done = step(session);
        last = done.skipped ? last : done.loss;
    }
    assert_true(last < first - 0.3);
    assert_true(session->session.skipped >= skipped);
    free(params);
    free(copies);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* After skipped steps, Adam's correction counts updates: the first one is as large as ever. */
static void test_skipped_steps_are_no_updates(void **state)
{
    (void)state;
    tr_settings *late_settings, *settings;
    tr_session *late =
        open_session(&late_settings, SET(FP16, "precision.scale=1e9", "optim.warmup_steps=0",
                                         "optim.schedule=constant", "optim.weight_decay=0"));
    tr_session *plain =
        open_session(&settings, SET(FP16, "optim.warmup_steps=0", "optim.schedule=constant",
                                    "optim.weight_decay=0"));
    tr_param a = tr_session_param(late, 0), b = tr_session_param(plain, 0);
    float *start = malloc((size_t)a.count * sizeof *start);
    assert_non_null(start);
    memcpy(start, a.data, (size_t)a.count * sizeof *start);
    while (step(late).skipped)
        ;
    step(plain);
    double moved_late = 0, moved = 0; /* the first update of Adam moves by lr, whatever the data */
    for (int64_t i = 0; i < a.count; i++) {
        moved_late = fmax(moved_late, fabs((double)a.data[i] - (double)start[i]));
        moved = fmax(moved, fabs((double)b.data[i] - (double)start[i]));
    }
    free(start);
    if (!(fabs(moved_late - moved) <= 1e-3 * moved))
        fail_msg("the first update moves by %g, and by %g without skipped steps", moved_late,
                 moved);
    tr_session_destroy(late);
    tr_session_destroy(plain);
    tr_settings_destroy(late_settings);
    tr_settings_destroy(settings);
}

static void test_scale_grows(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session =
        open_session(&settings, SET(FP16, "precision.scale=64", "precision.growth_interval=4"));
    for (int i = 0; i < 14; i++)
        assert_true(step(session).scale == ldexp(64, i / 4));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* The scale is a power of two, so it changes nothing where nothing is lost: in fp32 it would be
 * the same bits, in fp16 it is close. */
static void test_scale_does_not_change_the_gradient(void **state)
{
    (void)state;
    tr_settings *settings[2];
    tr_session *sessions[2] = {open_session(&settings[0], SET(FP16, "precision.scale=4096")),
                               open_session(&settings[1], SET(FP16, "precision.scale=32768"))};
    for (int i = 0; i < 5; i++) {
        tr_step a = step(sessions[0]), b = step(sessions[1]);
        assert_true(fabs(a.loss - b.loss) <= 1e-4 * a.loss);
        assert_true(fabs(a.grad_norm - b.grad_norm) <= 5e-3 * a.grad_norm);
    }
    for (int i = 0; i < 2; i++) {
        tr_session_destroy(sessions[i]);
        tr_settings_destroy(settings[i]);
    }
}

/* A scale that starts far too high is halved as often as it takes; only steps without a finite
 * loss count, since no scale has a part in those. */
static void test_backing_off_is_not_counted(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session =
        open_session(&settings, SET(FP16, "precision.scale=1e15", "train.max_skipped=0"));
    int skipped = 0;
    while (step(session).skipped)
        skipped++;
    assert_in_range(skipped, 20, 50);
    assert_int_equal(session->session.skipped, skipped);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static float *find_weight(tr_session *session, const char *name)
{
    for (size_t i = 0; i < tr_session_num_params(session); i++)
        if (strcmp(tr_session_param(session, i).name, name) == 0)
            return tr_session_param(session, i).data;
    fail_msg("there is no %s", name);
    return NULL;
}

static void test_too_many_skipped_steps_end_the_run(void **state)
{
    (void)state;
    const char *const kinds[] = {"precision.kind=fp32", "precision.kind=bf16",
                                 "precision.kind=fp16"};
    for (int k = 0; k < 3; k++) {
        tr_settings *settings;
        tr_session *session = open_session(&settings, SET(SMALL, kinds[k], "train.max_skipped=3"));
        tr_error err = {0};
        float *weight = find_weight(session, "ln_f.weight"), kept = weight[1];
        step(session);
        weight[1] = NAN;
        for (int i = 0; i < 3; i++)
            assert_true(step(session).skipped);
        weight[1] = kept; /* a good step in between, and counting starts again */
        assert_false(step(session).skipped);
        weight[1] = NAN;
        for (int i = 0; i < 3; i++)
            assert_true(step(session).skipped);
        assert_int_equal(tr_session_step(session, NULL, &err), TR_ERROR_NUMERIC);
        assert_non_null(
            strstr(err.message, "loss is not finite in 4 steps in a row, up to step 9"));
        assert_int_equal(session->session.skipped, 7);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

/* However many may be skipped: a run that has not updated once has trained nothing. */
static void test_a_run_of_skipped_steps_alone_fails(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session =
        open_session(&settings, SET(SMALL, "train.max_skipped=10", "train.steps=3"));
    tr_error err = {0};
    find_weight(session, "ln_f.weight")[1] = NAN;
    assert_true(step(session).skipped);
    assert_true(step(session).skipped);
    assert_int_equal(tr_session_step(session, NULL, &err), TR_ERROR_NUMERIC);
    assert_non_null(strstr(err.message, "loss is not finite in 3 steps in a row, up to step 3"));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* What is named is where it began, not where it spread to. */
static void test_the_first_gradient_is_named(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session = open_session(&settings, SET(SMALL, "train.max_skipped=0"));
    tri_executor *executor = &session->session.executors[TRI_PROGRAM_TRAIN];
    tr_error err = {0};
    step(session);
    tri_nonfinite found;
    assert_int_equal(tri_nonfinite_find(&session->session, &found, &err), TR_OK);
    assert_true(found.place == INT64_MAX && found.tensors == 0 && found.of_tensors > 10);
    const tri_program *program = executor->program;
    const char *const bad[] = {"wte.weight", "h.0.mlp.c_fc.weight", "h.1.attn.c_proj.bias"};
    for (size_t s = 0; s < program->num_states; s++)
        for (int i = 0; i < 3; i++) {
            const tri_state *at = &program->states[s];
            if (at->kind == TRI_STATE_GRAD &&
                strcmp(session->session.params.items[at->param].name, bad[i]) == 0) {
                float *grad = tri_executor_memory(executor, at->latest, 0);
                grad[0] = NAN;
                grad[2] = INFINITY;
            }
        }
    assert_int_equal(tri_nonfinite_find(&session->session, &found, &err), TR_OK);
    assert_string_equal(session->session.params.items[found.param].name, bad[2]);
    assert_int_equal(found.num, 2);
    assert_int_equal(found.tensors, 3);
    tri_fail(&err, TR_ERROR_NUMERIC, "It ends");
    tri_nonfinite_add(&session->session, &found, 5, &err);
    assert_non_null(strstr(err.message, "It ends. The first gradient that is not finite, in the "
                                        "order of the backward, is that of h.1.attn.c_proj.bias on "
                                        "rank 5: 2 of "));
    find_weight(session, "ln_f.weight")[1] = NAN; /* and through the step itself */
    assert_int_equal(tr_session_step(session, NULL, &err), TR_ERROR_NUMERIC);
    assert_non_null(strstr(err.message, "not finite at step 2"));
    assert_non_null(strstr(err.message, "is that of ln_f."));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* A weight that is not a number: no scale helps. */
static void test_scale_below_1_ends_the_run(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session = open_session(&settings, SET(FP16, "precision.scale=4"));
    tr_error err = {0};
    for (size_t i = 0; i < tr_session_num_params(session); i++)
        if (strstr(tr_session_param(session, i).name, "ln_f.weight"))
            tr_session_param(session, i).data[1] = NAN;
    assert_true(step(session).skipped);
    assert_true(step(session).skipped);
    assert_int_equal(tr_session_step(session, NULL, &err), TR_ERROR_NUMERIC);
    assert_non_null(strstr(err.message, "the loss scale has fallen to 1"));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_runs_and_threads_give_the_same_bits(void **state)
{
    (void)state;
    enum { NUM = 3, STEPS = 8 };
    static const char *const threads[NUM] = {"run.threads=1", "run.threads=1", "run.threads=3"};
    double loss[NUM][STEPS], norm[NUM][STEPS];
    for (int k = 0; k < NUM; k++) {
        tr_settings *settings;
        const char *assignments[] = {FP16, "precision.scale=1e8", "layout.microbatches=3",
                                     threads[k], NULL};
        tr_session *session = open_session(&settings, assignments);
        for (int i = 0; i < STEPS; i++) {
            tr_step done = step(session);
            loss[k][i] = done.loss;
            norm[k][i] = done.skipped ? -1 : done.grad_norm;
        }
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    for (int k = 1; k < NUM; k++) {
        assert_memory_equal(loss[k], loss[0], sizeof loss[0]);
        assert_memory_equal(norm[k], norm[0], sizeof norm[0]);
    }
}

/* A loss on vectors has its own operator; it is scaled too. */
static void test_mlp_in_fp16(void **state)
{
    (void)state;
    tr_step last[2];
    static const char *const kinds[2] = {"precision.kind=fp32", "precision.kind=fp16"};
    for (int k = 0; k < 2; k++) {
        tr_settings *settings;
        tr_session *session =
            open_session(&settings, SET("model.kind=mlp", "model.num_layers=2", "model.dim=16",
                                        "model.dropout=0", "model.loss=mse", "train.batch=8",
                                        kinds[k], "precision.scale=1024"));
        for (int i = 0; i < 10; i++)
            last[k] = step(session);
        assert_int_equal(session->session.skipped, 0);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    assert_true(last[0].scale == 1 && last[1].scale == 1024);
    assert_true(fabs(last[1].loss - last[0].loss) <= 5e-3 * last[0].loss);
    assert_true(fabs(last[1].grad_norm - last[0].grad_norm) <= 1e-2 * last[0].grad_norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_against_autocast),
        cmocka_unit_test(test_fp16_against_autocast),
        cmocka_unit_test(test_scale_follows_gradscaler),
        cmocka_unit_test(test_weights_round_to_bf16),
        cmocka_unit_test(test_kernels_round_copies),
        cmocka_unit_test(test_every_copy_rounds_alike),
        cmocka_unit_test(test_overflow_is_survived),
        cmocka_unit_test(test_skipped_steps_are_no_updates),
        cmocka_unit_test(test_scale_grows),
        cmocka_unit_test(test_scale_does_not_change_the_gradient),
        cmocka_unit_test(test_backing_off_is_not_counted),
        cmocka_unit_test(test_too_many_skipped_steps_end_the_run),
        cmocka_unit_test(test_a_run_of_skipped_steps_alone_fails),
        cmocka_unit_test(test_the_first_gradient_is_named),
        cmocka_unit_test(test_scale_below_1_ends_the_run),
        cmocka_unit_test(test_runs_and_threads_give_the_same_bits),
        cmocka_unit_test(test_mlp_in_fp16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
