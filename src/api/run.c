/* Runs inside another program: what its calls mean to the ranks. */
#include <math.h>
#include <stdlib.h>

#include "api/run_processes.h"
#include "api/run_ranks.h"
#include "trireme/trireme.h"

static tr_status check_ranks(const tr_run_options *options, int64_t num_ranks, tr_error *err)
{
    enum { MOST_RANKS = 128 }; /* threads are started one by one, and share a machine */
    bool processes = options && options->ranks == TR_RANKS_PROCESSES;
    if (processes && options->row)
        return tri_fail(err, TR_ERROR_INPUT,
                        "tr_run_options.row fills rows in this program, which ranks that are "
                        "processes (TR_RANKS_PROCESSES) cannot ask; use TR_RANKS_THREADS, or write "
                        "the rows to a file for data.source");
    if (!processes && num_ranks > MOST_RANKS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this layout has %lld ranks; a program has at most %d as threads: use "
                        "TR_RANKS_PROCESSES",
                        (long long)num_ranks, MOST_RANKS);
    return TR_OK;
}

/* All that can be found wrong before anything is started. */
static tr_status check(tr_settings *settings, const tr_run_options *options, tr_run *run,
                       tr_error *err)
{
    TRI_TRY(tri_run_dir_judge(settings, err));
    if (!options || !options->row)
        TRI_TRY(tri_api_prepare(settings, NULL, NULL, err));
    int64_t ranks = tri_settings_num_ranks(settings);
    TRI_TRY(check_ranks(options, ranks, err));
    TRI_TRY(tri_api_share_cores(settings, (int)ranks, err));
    TRI_TRY(tri_api_check(settings, err));
    tri_run_config_from(settings, &run->config);
    run->num_ranks = (int)ranks;
    return tri_run_ckpt_check(&run->config.ckpt, tr_settings_string(settings, "run.device"), err);
}

tr_status tr_run_create(tr_settings *settings, const tr_run_options *options, tr_run **out,
                        tr_error *err)
{
    *out = NULL;
    if (options && options->ranks == TR_RANKS_PROCESSES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "tr_run_create has ranks as threads; tr_train runs a whole run with ranks "
                        "as processes (TR_RANKS_PROCESSES)");
    tr_run *run = calloc(1, sizeof *run);
    if (!run)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a run");
    *run = (tr_run){.settings = settings,
                    .options = options ? *options : (tr_run_options){0},
                    .dir.lock.fd = -1,
                    .saved = -1,
                    .state.eval = {NAN, NAN},
                    .mutex = PTHREAD_MUTEX_INITIALIZER,
                    .changed = PTHREAD_COND_INITIALIZER};
    tr_status status = check(settings, options, run, err);
    if (status == TR_OK)
        status = tri_run_dir_open(&run->dir, settings, run->num_ranks, err);
    if (status == TR_OK)
        status = tri_run_ranks_start(run, err);
    if (status == TR_OK)
        *out = run;
    else
        tr_run_destroy(run);
    return status;
}

/* Of rank 0, between two commands; a failed run has none any more. */
static tr_status session_of(tr_run *run, tri_session **session, tr_error *err)
{
    pthread_mutex_lock(&run->mutex);
    tr_status status = run->failure.status;
    pthread_mutex_unlock(&run->mutex);
    if (status != TR_OK)
        return tri_fail(err, status, "%s", run->failure.message);
    *session = &run->ranks[0].session->session;
    return TR_OK;
}

tr_status tr_run_advance(tr_run *run, int64_t num_steps, tr_error *err)
{
    return tri_run_ranks_give(
        run, &(tri_command){.kind = TRI_COMMAND_ADVANCE, .num_steps = num_steps}, err);
}

tr_run_state tr_run_now(const tr_run *run)
{
    return run->state;
}

tr_status tr_run_evaluate(tr_run *run, tr_eval *eval, tr_error *err)
{
    tri_session *session = NULL;
    TRI_TRY(session_of(run, &session, err));
    if (!tri_session_can_eval(session))
        return tri_fail(err, TR_ERROR_INPUT,
                        "there are no held-out rows to evaluate on; set data.eval_fraction, or "
                        "give more data");
    TRI_TRY(tri_run_ranks_give(run, &(tri_command){.kind = TRI_COMMAND_EVALUATE}, err));
    *eval = run->state.eval;
    return TR_OK;
}

tr_status tr_run_save(tr_run *run, tr_error *err)
{
    tri_session *session = NULL;
    TRI_TRY(session_of(run, &session, err));
    if (session->device.def == &tri_device_null)
        return tri_fail(err, TR_ERROR_INPUT, "run.device is null, which computes nothing to save");
    return tri_run_ranks_give(run, &(tri_command){.kind = TRI_COMMAND_SAVE}, err);
}

tr_status tr_run_logits(tr_run *run, const int32_t *tokens, int64_t length, float *logits,
                        int64_t num_logits, tr_error *err)
{
    tri_session *session = NULL;
    TRI_TRY(session_of(run, &session, err));
    const tri_compile_config *config = &session->config.compile;
    if (!tri_model_of(&config->model)->sequences)
        return tri_fail(err, TR_ERROR_INPUT, "model.kind %s has no logits", config->model.kind);
    if (length < 1 || length > config->seq_len)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%lld tokens to predict from; it takes 1 to data.seq_len, which is %lld",
                        (long long)length, (long long)config->seq_len);
    for (int64_t i = 0; i < length; i++)
        if (tokens[i] < 0 || tokens[i] >= config->model.vocab)
            return tri_fail(err, TR_ERROR_INPUT, "token %d at place %lld is not one of model.vocab",
                            tokens[i], (long long)i);
    tri_command c = {.kind = TRI_COMMAND_LOGITS,
                     .tokens = tokens,
                     .length = length,
                     .num_logits = num_logits,
                     .logits = logits};
    TRI_TRY(tri_run_ranks_give(run, &c, err));
    return run->has_logits ? TR_OK
                           : tri_fail(err, TR_ERROR_INPUT,
                                      "room for %lld logits, and the model has another number",
                                      (long long)num_logits);
}

tr_status tr_run_finish(tr_run *run, tr_error *err)
{
    if (run->finished)
        return TR_OK;
    TRI_TRY(tri_run_ranks_give(run, &(tri_command){.kind = TRI_COMMAND_FINISH}, err));
    run->finished = true;
    return TR_OK;
}

void tr_run_destroy(tr_run *run)
{
    if (!run)
        return;
    tri_run_ranks_end(run);
    bool failed = run->failure.status != TR_OK;
    if (run->dir.settings)
        tri_run_dir_close(&run->dir, failed ? &run->failure : NULL,
                          !run->finished || run->state.stopped,
                          run->state.num_steps > 0 ? run->state.step : -1, run->saved);
    tri_world_destroy(run->world);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->mutex);
    free(run->ranks);
    free(run);
}

tr_status tr_train(tr_settings *settings, const tr_run_options *options, tr_run_state *state,
                   tr_error *err)
{
    tr_run *run;
    if (state)
        *state = (tr_run_state){.eval = {NAN, NAN}};
    if (options && options->ranks == TR_RANKS_PROCESSES) {
        tr_run checked = {0};
        TRI_TRY(check(settings, options, &checked, err));
        return tri_train_processes(settings, options, state, err);
    }
    TRI_TRY(tr_run_create(settings, options, &run, err));
    tr_status status = tr_run_advance(run, INT64_MAX, err);
    if (status == TR_OK)
        status = tr_run_finish(run, err);
    if (state)
        *state = tr_run_now(run);
    tr_run_destroy(run);
    return status;
}

const char *tr_version(void)
{
    return TRIREME_VERSION;
}
