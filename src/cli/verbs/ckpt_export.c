/* trireme ckpt export: weights for others to read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "ckpt/hf/hf.h"
#include "ckpt/weights.h"
#include "cli/cli.h"
#include "cli/guard.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "cli/verbs/ckpt_verbs.h"

static tr_status load_run(tr_settings *settings, const char *dir, tri_session_config *config,
                          tr_error *err)
{
    char *path = tri_path_join(dir, "config.yaml");
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = TR_OK;
    if (!tri_path_exists(path))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s has no config.yaml, so it is not a run; name the run.dir of a "
                          "training: `trireme ckpt export runs/demo --hf DIR`",
                          dir);
    if (status == TR_OK)
        status = tr_settings_load(settings, path, err);
    free(path);
    TRI_TRY(status);
    /* Where the run began does not matter any more, and may be gone. */
    TRI_TRY(tr_settings_set(settings, "model.from=", err));
    TRI_TRY(tri_settings_complete(settings, err));
    return tri_session_config_from(settings, config, err);
}

/* All parameters in memory, one after the other; *data and *values are the heap's. */
static tr_status load_weights(const char *path, const tri_param_table *params, float ***data,
                              float **values, tr_error *err)
{
    *data = calloc(params->count + 1, sizeof **data);
    *values = malloc((size_t)tri_param_total(params) * sizeof **values + 1);
    bool *fresh = calloc(params->count + 1, sizeof *fresh);
    tr_status status = *data && *values && fresh
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to export %s", path);
    float *next = *values;
    for (size_t i = 0; i < params->count && status == TR_OK; i++) {
        (*data)[i] = next;
        next += tri_shape_count(&params->items[i].shape);
    }
    if (status == TR_OK)
        status = tri_weights_load(path, params, *data, fresh, err);
    free(fresh);
    return status;
}

/* The step of a checkpoint; of other weights 0. */
static int64_t step_of(const char *path)
{
    const char *dash = tri_path_is_dir(path) ? strrchr(path, '-') : NULL;
    return dash ? strtoll(dash + 1, NULL, 10) : 0;
}

static tr_status export_to(const tri_session_config *config, const char *from, const char *path,
                           const tri_param_table *params, const char *hf_dir, const char *weights,
                           tr_error *err)
{
    float **data = NULL, *values = NULL;
    tri_safetensors *file = NULL;
    tr_status status;
    if (tri_path_is_dir(path)) {
        status = load_weights(path, params, &data, &values, err);
    } else { /* a file need not be copied */
        data = calloc(params->count + 1, sizeof *data);
        status = data ? tri_weights_map(path, params, (const float **)data, &file, err)
                      : tri_fail(err, TR_ERROR_RUNTIME, "no memory to export %s", path);
    }
    tri_hf_export_options options = {
        .dir = hf_dir, .shard_bytes = TRI_HF_SHARD_BYTES, .run_dir = from};
    if (status == TR_OK && hf_dir)
        status = tri_hf_export(&options, &config->compile.model, params, (const float *const *)data,
                               err);
    else if (status == TR_OK)
        status = tri_weights_save(weights, params, (const float *const *)data, step_of(path), err);
    tri_safetensors_close(file);
    free(values);
    free(data);
    return status;
}

static tr_status export_from(tr_settings *settings, const char *from, tri_param_table *params,
                             const char *hf_dir, const char *weights, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tri_check_output(hf_dir ? hf_dir : weights, hf_dir != NULL, err));
    TRI_TRY(load_run(settings, from, &config, err));
    tri_batch_shape batch = {.rows = 1, .seq_len = config.compile.seq_len};
    TRI_TRY(tri_model_params(&config.compile.model, &batch, params, err));
    char *path;
    TRI_TRY(tri_api_weights_path(from, &path, err));
    tr_status status = export_to(&config, from, path, params, hf_dir, weights, err);
    free(path);
    return status;
}

/* The model of the run may be of a plug-in: its settings name the file, and only --plugin loads it.
 */
static tr_status settings_of(const tri_cli *cli, tr_settings **settings, tr_error *err)
{
    tr_status status = tr_settings_create(settings, err);
    for (int i = 0; i < cli->num_plugins && status == TR_OK; i++) {
        char *assignment = NULL;
        if (asprintf(&assignment, "run.plugins=%s", cli->plugins[i]) < 0)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for --plugin");
        else
            status = tr_settings_set(*settings, assignment, err);
        free(assignment);
        if (status != TR_OK)
            tr_settings_destroy(*settings);
    }
    return status;
}

int tri_ckpt_export(const tri_cli *cli, const char *from, const char *hf_dir, const char *weights)
{
    tr_error err = {0};
    tr_settings *settings;
    if (settings_of(cli, &settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    tri_param_table params;
    tri_param_table_init(&params);
    tri_signals_outlive_readers();
    tri_guard guard;
    tri_guard_begin(&guard, hf_dir ? hf_dir : weights);
    tr_status status = export_from(settings, from, &params, hf_dir, weights, &err);
    tri_guard_end(&guard);
    if (status == TR_OK) {
        char count[16];
        tri_text_print(stdout, "wrote %s: %zu tensors, %s parameters\n", hf_dir ? hf_dir : weights,
                       params.count, tri_text_count((double)tri_param_total(&params), count));
    }
    tri_param_table_fini(&params);
    tr_settings_destroy(settings);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
