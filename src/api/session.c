#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "ckpt/checkpoint.h"
#include "ckpt/ckpt_best.h"
#include "ckpt/hf/hf.h"
#include "ckpt/weights.h"
#include "train/step.h"
#include "train/step_stats.h"
#include "trireme/trireme.h"

/* The step that a weights file was written after; -1 when it does not say. */
static tr_status step_of_file(const char *path, int64_t *step, tr_error *err)
{
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file, err));
    const char *text = tri_safetensors_metadata(file, "step");
    *step = text ? strtoll(text, NULL, 10) : -1;
    tri_safetensors_close(file);
    return TR_OK;
}

tr_status tri_api_weights_step(const char *path, int64_t *step, tr_error *err)
{
    const char *dash = strrchr(path, '-');
    *step = -1;
    if (tri_checkpoint_is_dir(path))
        *step = dash ? strtoll(dash + 1, NULL, 10) : -1;
    return tri_path_is_dir(path) ? TR_OK : step_of_file(path, step, err);
}

/* A run holds weights, written at its end, and perhaps checkpoints: the later of the two. Weights
 * that cannot be read are not passed over for a checkpoint: whoever names a run wants what it ended
 * with, and must know when that is not to be had. */
static tr_status weights_of_run(const char *dir, char **path, tr_error *err)
{
    char *weights = tri_path_join(dir, "weights.safetensors"), *ckpt = NULL;
    if (!weights)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    *path = weights;
    tr_status looked = tri_checkpoint_look(dir, &ckpt, err);
    if (looked != TR_OK) { /* what cannot be listed may be newer than the weights */
        free(weights);
        *path = NULL;
        return looked;
    }
    if (!ckpt)
        return TR_OK;
    const char *dash = strrchr(ckpt, '-');
    int64_t step = -1;
    tr_status status = tri_path_exists(weights) ? step_of_file(weights, &step, err) : TR_OK;
    bool newer = !tri_path_exists(weights) || (dash && strtoll(dash + 1, NULL, 10) > step);
    if (status != TR_OK) {
        tri_advise(err, status,
                   "the newest checkpoint of this run is %s: name that instead of %s to use it",
                   ckpt, dir);
        free(weights);
        free(ckpt);
        *path = NULL;
        return status;
    }
    free(newer ? weights : ckpt);
    *path = newer ? ckpt : weights;
    return TR_OK;
}

tr_status tri_api_weights_path(const char *from, char **path, tr_error *err)
{
    *path = NULL;
    bool is_run = tri_path_is_dir(from) && !tri_hf_is_dir(from) && !tri_checkpoint_is_dir(from);
    if (is_run)
        return weights_of_run(from, path, err);
    TRI_TRY(tri_ckpt_find_best(from, path, err));
    if (*path)
        return TR_OK;
    *path = strdup(from);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

/* Before anything is made of it. */
static tr_status check_weights(const char *weights, tr_error *err)
{
    if (!weights[0] || tri_path_exists(weights))
        return TR_OK;
    tr_status status = tri_fail_missing(
        err, weights,
        "give a safetensors file, a run directory (which holds weights.safetensors or "
        "checkpoints), a checkpoint (step-N of a run) or a Hugging Face directory (which holds "
        "config.json)");
    return tri_fail_prefix(err, status, "model.from");
}

static tr_status check_data(const tri_session_config *config, tr_error *err)
{
    int64_t rows = TRI_DATA_ENDLESS;
    if (tri_model_of(&config->compile.model)->sequences) {
        tri_data *data;
        TRI_TRY(tri_data_open(&config->data, &data, err));
        rows = tri_data_epoch_rows(data);
        tri_data_close(data);
    }
    tri_epochs epochs;
    return tri_epochs_init(&epochs, config->epochs, rows, config->compile.batch, err);
}

tr_status tri_api_prepare(tr_settings *settings,
                          void (*progress)(void *context, const tri_prepare_progress *now),
                          void *context, tr_error *err)
{
    tri_data_config data;
    TRI_TRY(tri_data_config_from(settings, &data, err));
    data.progress = progress;
    data.progress_context = context;
    return tri_data_prepare(&data, err);
}

/* The plan of the first rank, so that most refusals are said once; every rank looks at its own. A
 * GPU is for the ranks to open. */
static tr_status check_memory(const tri_session_config *config, tr_error *err)
{
    tri_session session;
    if (config->memory_limit == 0 || strcmp(config->device.kind, "cuda") == 0)
        return TR_OK;
    TRI_TRY(tri_session_compile(&session, config, err));
    tr_status status = tri_session_check_memory(&session, err);
    tri_session_fini(&session);
    return status;
}

/* Who asks for text must have a model that writes some. */
static tr_status check_samples(const tr_settings *settings, const tri_session_config *config,
                               tr_error *err)
{
    const tri_model_config *model = &config->compile.model;
    const char *why = !tri_model_of(model)->sequences ? "has no tokens"
                      : model->task != TRI_TASK_LM    ? "does not predict the next token"
                      : strcmp(config->device.kind, "null") == 0
                          ? "computes nothing with run.device=null"
                          : NULL;
    if (tr_settings_int(settings, "run.sample_every") == 0 || !why)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.sample_every asks for text, and this model (model.kind %s, model.task %s) "
                    "%s; set run.sample_every=0",
                    model->kind, tr_settings_string(settings, "model.task"), why);
}

tr_status tri_api_check(tr_settings *settings, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tri_settings_complete(settings, err));
    TRI_TRY(tri_session_config_from(settings, &config, err));
    TRI_TRY(tri_device_check(config.device.kind, err));
    tri_param_table params;
    tri_param_table_init(&params);
    tri_batch_shape batch = {.rows = tri_microbatch_rows(&config.compile),
                             .seq_len = config.compile.seq_len};
    tr_status status = tri_model_params(&config.compile.model, &batch, &params, err);
    tri_param_table_fini(&params);
    if (status == TR_OK)
        status = check_samples(settings, &config, err);
    if (status == TR_OK)
        status = check_memory(&config, err);
    return status == TR_OK ? check_data(&config, err) : status;
}

static tr_status compile(const tr_settings *settings, int rank, unsigned programs,
                         const tri_generate_shape *shape, tr_session **session, tr_error *err)
{
    *session = NULL;
    tr_session *made = calloc(1, sizeof *made);
    if (!made)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a session");
    made->settings = settings;
    tri_session_config config;
    const char *from = tr_settings_string(settings, "model.from");
    tr_status status = tri_api_weights_path(from, &made->weights_from, err);
    /* A run that goes on does not need what it began with. */
    bool goes_on = strcmp(tr_settings_string(settings, "run.resume"), "false") != 0 &&
                   programs == TRI_PROGRAMS_TRAIN;
    if (status != TR_OK && goes_on && from[0]) { /* without one it is memory */
        made->weights_from = tri_path_join(from, "weights.safetensors");
        status =
            made->weights_from ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a session");
    }
    if (status == TR_OK)
        status = tri_session_config_from(settings, &config, err);
    if (status == TR_OK && !goes_on)
        status = check_weights(made->weights_from, err);
    if (status == TR_OK) {
        config.weights_from = made->weights_from;
        config.compile.rank = rank;
        config.programs = programs;
        if (shape)
            config.generate = *shape;
        status = tri_session_compile(&made->session, &config, err);
    }
    if (status != TR_OK) {
        tr_session_destroy(made);
        return status;
    }
    *session = made;
    return TR_OK;
}

tr_status tri_api_describe(tr_settings *settings, tri_session_config *config, tr_error *err)
{
    TRI_TRY(tr_settings_set(settings, "run.device=cuda", err)); /* what only GPUs do is allowed */
    TRI_TRY(tri_settings_complete(settings, err));
    TRI_TRY(tri_session_config_from(settings, config, err));
    config->device.kind = tri_device_described.kind;
    config->compile.overlap_min_bytes = 0;
    config->compile.in_place = true; /* as messages that a GPU sends by itself */
    config->programs = TRI_PROGRAMS_TRAIN;
    return TR_OK;
}

tr_status tri_api_compile(tr_settings *settings, int rank, tr_session **session, tr_error *err)
{
    *session = NULL;
    TRI_TRY(tri_settings_complete(settings, err));
    return tri_api_compile_rank(settings, rank, session, err);
}

tr_status tri_api_compile_rank(const tr_settings *settings, int rank, tr_session **session,
                               tr_error *err)
{
    return compile(settings, rank, TRI_PROGRAMS_TRAIN, NULL, session, err);
}

tr_status tri_api_compile_programs(tr_settings *settings, int rank, unsigned programs,
                                   const tri_generate_shape *shape, tr_session **session,
                                   tr_error *err)
{
    *session = NULL;
    TRI_TRY(tri_settings_complete(settings, err));
    return compile(settings, rank, programs, shape, session, err);
}

tr_status tri_api_share_cores(tr_settings *settings, int local_ranks, tr_error *err)
{
    int share = tri_device_num_cores() / local_ranks;
    char threads[48];
    snprintf(threads, sizeof threads, "run.threads=%d", share > 1 ? share : 1);
    return local_ranks > 1 && tr_settings_int(settings, "run.threads") == 0
               ? tr_settings_fill(settings, threads, err)
               : TR_OK;
}

tr_status tri_api_start(tr_session *session, tr_error *err)
{
    int ranks = tri_mesh_ranks(&session->session.config.compile.mesh);
    if (ranks > 1 && !session->session.exchange.run)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "this layout has %d ranks; train it with tr_train or `trireme train`, or set "
            "layout.dp, layout.cp, layout.tp and layout.pp to 1",
            ranks);
    return tri_session_start(&session->session, err);
}

tr_status tr_session_create(tr_settings *settings, tr_session **session, tr_error *err)
{
    TRI_TRY(tri_api_compile(settings, 0, session, err));
    tr_status status = tri_api_start(*session, err);
    if (status != TR_OK) {
        tr_session_destroy(*session);
        *session = NULL;
    }
    return status;
}

void tr_session_destroy(tr_session *session)
{
    if (!session)
        return;
    tri_session_fini(&session->session);
    free(session->weights_from);
    free(session);
}

tr_status tr_session_step(tr_session *session, tr_step *step, tr_error *err)
{
    return tri_step_once(&session->session, step, err);
}

size_t tr_session_num_stats(const tr_session *session)
{
    return tri_session_num_shown(&session->session);
}

tr_stat tr_session_stat(const tr_session *session, size_t i)
{
    tri_shown shown = tri_session_shown(&session->session, i);
    return (tr_stat){shown.name, shown.value};
}

int64_t tr_session_num_steps(const tr_session *session)
{
    return session->session.num_steps;
}

tr_status tr_session_eval(tr_session *session, tr_eval *eval, tr_error *err)
{
    tri_eval_result result;
    tr_status status = tri_session_eval(&session->session, &result, err);
    *eval = (tr_eval){.loss = result.loss, .accuracy = result.accuracy};
    return status;
}

tr_status tr_session_save(tr_session *session, const char *path, tr_error *err)
{
    tri_session *s = &session->session;
    if (tri_mesh_ranks(&s->config.compile.mesh) == 1)
        TRI_TRY(tri_session_pull_weights(s, err));
    return tri_weights_save(path, &s->params, (const float *const *)s->weights, s->step, err);
}

tr_status tr_session_pull(tr_session *session, tr_error *err)
{
    return tri_session_pull_weights(&session->session, err);
}

size_t tr_session_num_params(const tr_session *session)
{
    return session->session.params.count;
}

tr_param tr_session_param(const tr_session *session, size_t i)
{
    const tri_param *param = &session->session.params.items[i];
    tr_param view = {.name = param->name,
                     .rank = param->shape.rank,
                     .count = tri_shape_count(&param->shape),
                     .data = session->session.weights ? session->session.weights[i] : NULL};
    for (int d = 0; d < view.rank; d++)
        view.size[d] = param->shape.dim[d].size;
    return view;
}

uint64_t tr_session_planned_bytes(const tr_session *session)
{
    return tri_session_planned_bytes(&session->session);
}

tr_status tr_explain(tr_settings *settings, char **text, tr_error *err)
{
    tr_session *session;
    TRI_TRY(tri_api_compile(settings, 0, &session, err));
    tri_text out;
    tri_text_init(&out);
    tri_program_explain(&session->session.programs[TRI_PROGRAM_TRAIN], &(tri_explain_options){0},
                        &out);
    tr_session_destroy(session);
    if (out.failed) {
        tri_text_fini(&out);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the text of the program");
    }
    *text = out.chars;
    return TR_OK;
}
