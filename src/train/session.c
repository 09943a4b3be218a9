#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ckpt/weights.h"
#include "train/batch.h"
#include "train/init.h"

static const tri_mode mode_of[TRI_NUM_PROGRAMS] = {TRI_MODE_TRAIN, TRI_MODE_EVAL, TRI_MODE_PREDICT};

static const char *const host_names[TRI_NUM_HOST_VALUES] = {
    [TRI_HOST_TOKENS] = "tokens",       [TRI_HOST_TARGETS] = "targets",
    [TRI_HOST_POSITIONS] = "positions", [TRI_HOST_ROWS] = "rows",
    [TRI_HOST_DOCS] = "docs",           [TRI_HOST_TYPES] = "types",
    [TRI_HOST_STEP] = "step",           [TRI_HOST_SCHED] = "sched",
    [TRI_HOST_INDEX] = "index",         [TRI_HOST_X] = "x",
    [TRI_HOST_TARGET] = "target",       [TRI_HOST_LOSS] = "loss",
    [TRI_HOST_COUNT] = "count",         [TRI_HOST_RESULT] = "result",
    [TRI_HOST_LOGITS] = "logits",
};

static tr_status compile_programs(tri_session *session, tr_error *err)
{
    const tri_compile_config *config = &session->config.compile;
    tri_batch_shape batch = {.rows = tri_microbatch_rows(config),
                             .seq_len = config->seq_len,
                             .mask_documents = config->mask_documents};
    TRI_TRY(tri_model_params(&config->model, &batch, &session->params, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        tri_batch_shape shape = batch;
        if (p == TRI_PROGRAM_PREDICT) {
            shape.rows = 1;
            shape.mask_documents = false;
        }
        TRI_TRY(tri_compile(config, &session->params, mode_of[p], &shape, &session->programs[p],
                            NULL, err));
        for (int v = 0; v < TRI_NUM_HOST_VALUES; v++)
            session->host[p][v] = tri_program_find(&session->programs[p], host_names[v]);
    }
    return TR_OK;
}

tr_status tri_session_compile(tri_session *session, const tri_session_config *config, tr_error *err)
{
    *session = (tri_session){.config = *config, .compiled = true};
    tri_param_table_init(&session->params);
    tr_status status = tri_device_open(&config->device, &session->device, err);
    if (status == TR_OK) {
        session->config.compile.fusions = session->device.def->fusions;
        status = compile_programs(session, err);
    }
    if (status == TR_OK) {
        const tri_program *programs[TRI_NUM_PROGRAMS];
        for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
            programs[p] = &session->programs[p];
        tri_store_plan(&session->store, &session->device, programs, TRI_NUM_PROGRAMS);
    } else {
        tri_session_fini(session);
    }
    return status;
}

void tri_session_fini(tri_session *session)
{
    if (!session->compiled)
        return;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        tri_executor_fini(&session->executors[p]);
        tri_program_fini(&session->programs[p]);
    }
    tri_store_free(&session->store);
    tri_device_close(&session->device);
    if (session->data)
        tri_data_close(session->data);
    free(session->weights);
    tri_param_table_fini(&session->params);
    *session = (tri_session){0};
}

uint64_t tri_session_planned_bytes(const tri_session *session)
{
    return tri_store_total(&session->store);
}

static tr_status open_rows(tri_session *session, tr_error *err)
{
    if (session->row)
        return TR_OK;
    session->row_context = session;
    session->row = tri_vector_row;
    if (!tri_session_has_sequences(session))
        return TR_OK;
    session->row = tri_data_session_row;
    TRI_TRY(tri_data_open(&session->config.data, &session->data, err));
    int64_t needed = tri_data_vocab_needed(session->data);
    if (needed > session->config.compile.model.vocab)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld, but the data has tokens up to %lld; set it to %lld "
                        "or more, or leave it out",
                        (long long)session->config.compile.model.vocab, (long long)needed - 1,
                        (long long)needed);
    return TR_OK;
}

static tr_status fill_weights(tri_session *session, tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    session->weights = calloc(session->params.count + 1, sizeof *session->weights);
    if (!session->weights)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the table of weights");
    for (size_t s = 0; s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_PARAM)
            session->weights[program->states[s].param] = tri_executor_memory(
                &session->executors[TRI_PROGRAM_TRAIN], program->states[s].latest, 0);
    if (session->device.def == &tri_device_null)
        return TR_OK;
    if (session->config.weights_from && session->config.weights_from[0]) {
        tr_status status =
            tri_weights_load(session->config.weights_from, &session->params, session->weights, err);
        return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "model.from");
    }
    for (size_t i = 0; i < session->params.count; i++)
        tri_init_fill(&session->params.items[i], session->config.seed, session->weights[i]);
    return TR_OK;
}

tr_status tri_session_start(tri_session *session, tr_error *err)
{
    TRI_TRY(open_rows(session, err));
    session->store.peers = session->peers;
    TRI_TRY(tri_store_alloc(&session->store, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        TRI_TRY(tri_executor_init(&session->executors[p], &session->programs[p], &session->store,
                                  session->config.seed, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        session->executors[p].exchange = &session->exchange;
        session->executors[p].status = session->status;
    }
    TRI_TRY(fill_weights(session, err));
    session->started = true;
    return TR_OK;
}

static void fill_step_inputs(tri_session *session, double lr)
{
    const tri_optim_config *optim = &session->config.compile.optim;
    int32_t *step = tri_session_host(session, TRI_PROGRAM_TRAIN, TRI_HOST_STEP, 0);
    float *sched = tri_session_host(session, TRI_PROGRAM_TRAIN, TRI_HOST_SCHED, 0);
    double t = (double)(session->step + 1);
    if (step)
        *step = (int32_t)session->step;
    sched[TRI_SCHED_LR] = (float)lr;
    sched[TRI_SCHED_BIAS1] = (float)(1 / (1 - pow((double)optim->beta1, t)));
    sched[TRI_SCHED_BIAS2] = (float)(1 / (1 - pow((double)optim->beta2, t)));
    sched[TRI_SCHED_LOSS_SCALE] = 1;
}

static const float *result_of(const tri_session *session)
{
    return tri_session_host(session, TRI_PROGRAM_TRAIN, TRI_HOST_RESULT, 0);
}

tr_status tri_session_step(tri_session *session, tri_step_result *result, tr_error *err)
{
    *result = (tri_step_result){0};
    double start = tri_now_s(), lr = tri_lr_at(&session->config.lr, session->step);
    if (session->status)
        atomic_store_explicit(&session->status->step, session->step, memory_order_relaxed);
    tri_fill_train_batch(session);
    if (session->data)
        TRI_TRY(tri_data_problem(session->data, err));
    fill_step_inputs(session, lr);
    TRI_TRY(tri_executor_run(&session->executors[TRI_PROGRAM_TRAIN], err));
    const float *end = result_of(session);
    *result = (tri_step_result){.loss = end[TRI_RESULT_LOSS],
                                .grad_norm = end[TRI_RESULT_NORM],
                                .lr = lr,
                                .count = end[TRI_RESULT_COUNT],
                                .seconds = tri_now_s() - start};
    if (session->device.def != &tri_device_null && end[TRI_RESULT_OK] == 0)
        return tri_fail(err, TR_ERROR_NUMERIC,
                        "the %s is not finite at step %lld (loss %g, gradient norm %g); the "
                        "weights are as before this step. Lower optim.lr, add "
                        "optim.warmup_steps, or set train.clip",
                        isfinite(result->loss) ? "gradient" : "loss", (long long)session->step,
                        (double)result->loss, (double)result->grad_norm);
    session->step++;
    return TR_OK;
}

bool tri_session_can_eval(const tri_session *session)
{
    return session->row != tri_data_session_row ||
           tri_data_num_windows(session->data, TRI_SPLIT_EVAL) > 0;
}

tr_status tri_session_eval(tri_session *session, double *loss, tr_error *err)
{
    if (!tri_session_can_eval(session))
        return tri_fail(err, TR_ERROR_INPUT,
                        "no data is held out for evaluation: data.eval_fraction is 0");
    double sum = 0, count = 0;
    for (int64_t run = 0; tri_fill_eval_batch(session, run); run++) {
        if (session->data)
            TRI_TRY(tri_data_problem(session->data, err));
        TRI_TRY(tri_executor_run(&session->executors[TRI_PROGRAM_EVAL], err));
        sum += (double)*(float *)tri_session_host(session, TRI_PROGRAM_EVAL, TRI_HOST_LOSS, 0);
        count += (double)*(float *)tri_session_host(session, TRI_PROGRAM_EVAL, TRI_HOST_COUNT, 0);
    }
    *loss = sum / (count > 0 ? count : 1);
    return TR_OK;
}

const float *tri_session_predict(tri_session *session, const int32_t *tokens, int64_t length)
{
    tri_fill_prompt(session, tokens, length);
    if (tri_executor_run(&session->executors[TRI_PROGRAM_PREDICT], NULL) != TR_OK)
        return NULL; /* cannot be: prediction communicates with nobody */
    return tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_LOGITS, 0);
}

const float *tri_session_grad(const tri_session *session, tri_id param, float *factor)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    const float *end = result_of(session);
    float count = end[TRI_RESULT_COUNT] > 1 ? end[TRI_RESULT_COUNT] : 1;
    const tri_compile_config *config = &session->config.compile;
    *factor = 1 / (count * tri_loss_seed(config));
    for (size_t s = 0; s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_GRAD && program->states[s].param == param)
            return tri_executor_memory(&session->executors[TRI_PROGRAM_TRAIN],
                                       program->states[s].latest, 0);
    return NULL;
}
