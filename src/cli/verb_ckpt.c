/* trireme ckpt: weights for others to read, and what is in a file. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "ckpt/hf.h"
#include "ckpt/weights.h"
#include "cli/cli.h"
#include "cli/text.h"

/* ---- export ---- */

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

static tr_status export_weights(const tri_session_config *config, const char *run,
                                const tri_param_table *params, const char *hf_dir, tr_error *err)
{
    char *path = tri_path_join(run, "weights.safetensors");
    const float **data = calloc(params->count + 1, sizeof *data);
    tri_safetensors *file = NULL;
    tr_status status = path && data ? tri_weights_map(path, params, data, &file, err)
                                    : tri_fail(err, TR_ERROR_RUNTIME, "no memory to export");
    tri_hf_export_options options = {
        .dir = hf_dir, .shard_bytes = TRI_HF_SHARD_BYTES, .tokenizer_from = run};
    if (status == TR_OK)
        status = tri_hf_export(&options, &config->compile.model, params, data, err);
    tri_safetensors_close(file);
    free(data);
    free(path);
    return status;
}

static int export(const char *run, const char *hf_dir)
{
    tr_error err = {0};
    tr_settings *settings;
    tri_session_config config;
    if (tr_settings_create(&settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    tri_param_table params;
    tri_param_table_init(&params);
    tr_status status = load_run(settings, run, &config, &err);
    if (status == TR_OK) {
        tri_batch_shape batch = {.rows = 1, .seq_len = config.compile.seq_len};
        status = tri_model_params(&config.compile.model, &batch, &params, &err);
    }
    if (status == TR_OK)
        status = export_weights(&config, run, &params, hf_dir, &err);
    if (status == TR_OK) {
        char count[16];
        printf("wrote %s: %zu tensors, %s parameters\n", hf_dir, params.count,
               tri_text_count((double)tri_param_total(&params), count));
    }
    tri_param_table_fini(&params);
    tr_settings_destroy(settings);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

/* ---- inspect ---- */

typedef struct totals {
    size_t tensors;
    double elements, bytes;
} totals;

static void print_tensor(const tri_safetensor *t, totals *sum)
{
    char shape[200] = "[", bytes[16];
    double elements = 1;
    for (int d = 0; d < t->num_dims; d++) {
        size_t length = strlen(shape);
        snprintf(shape + length, sizeof shape - length, "%s%" PRId64, d ? ", " : "", t->dim[d]);
        elements *= (double)t->dim[d];
    }
    printf("  %-52s %-5s %-22s %10s\n", t->name, t->dtype_text, strcat(shape, "]"),
           tri_text_bytes((double)t->num_bytes, bytes));
    sum->tensors++;
    sum->elements += elements;
    sum->bytes += (double)t->num_bytes;
}

/* The header once more, for what the reader hands out by key only; it has been checked by then. */
static void print_metadata(const char *path)
{
    tri_mapping mapping;
    tr_error err = {0};
    uint64_t length;
    if (tri_mapping_open(&mapping, path, &err) != TR_OK)
        return;
    memcpy(&length, mapping.data, sizeof length);
    json_t *root = json_loadb((const char *)mapping.data + sizeof length, length, 0, NULL);
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "__metadata__"), key, value)
        printf("  metadata  %s = %s\n", key, json_string_value(value));
    json_decref(root);
    tri_mapping_close(&mapping);
}

static tr_status inspect_file(const char *path, totals *sum, tr_error *err)
{
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file, err));
    printf("%s\n", path);
    print_metadata(path);
    for (size_t i = 0; i < tri_safetensors_num(file); i++)
        print_tensor(tri_safetensors_at(file, i), sum);
    tri_safetensors_close(file);
    return TR_OK;
}

static tr_status inspect_hf(const char *dir, totals *sum, tr_error *err)
{
    tri_hf_config config;
    if (tri_hf_config_read(dir, &config, err) == TR_OK) {
        printf("%s: Hugging Face, model_type %s\n", dir, config.model_type);
        for (int i = 0; i < config.num_settings; i++)
            printf("  %-20s %s\n", config.setting[i].name, config.setting[i].value);
    } else { /* tensors can be listed all the same */
        printf("%s\n", err->message);
    }
    tri_hf_shards shards;
    TRI_TRY(tri_hf_shards_list(dir, &shards, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < shards.num; i++)
        status = inspect_file(shards.path[i], sum, err);
    tri_hf_shards_free(&shards);
    return status;
}

static int inspect(const char *path)
{
    tr_error err = {0};
    totals sum = {0};
    char *weights = tri_api_weights_path(path), count[16], bytes[16];
    tr_status status;
    if (!weights)
        status = tri_fail(&err, TR_ERROR_RUNTIME, "no memory for a path");
    else
        status =
            tri_hf_is_dir(path) ? inspect_hf(path, &sum, &err) : inspect_file(weights, &sum, &err);
    free(weights);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    printf("%zu tensors, %s elements, %s\n", sum.tensors, tri_text_count(sum.elements, count),
           tri_text_bytes(sum.bytes, bytes));
    return TRI_EXIT_OK;
}

int tri_verb_ckpt(const tri_cli *cli)
{
    const char *what = cli->num_operands > 0 ? cli->operands[0] : "";
    const char *path = cli->num_operands > 1 ? cli->operands[1] : NULL;
    const char *hf_dir = tri_cli_flag(cli, "hf");
    if (strcmp(what, "export") == 0 && cli->num_operands <= 2 && hf_dir && hf_dir[0])
        return export(path ? path : tr_settings_string(cli->settings, "run.dir"), hf_dir);
    if (strcmp(what, "inspect") == 0 && cli->num_operands == 2 && !hf_dir)
        return inspect(path);
    tri_cli_error("write `trireme ckpt export [RUN_DIR] --hf DIR`, or `trireme ckpt inspect PATH` "
                  "with a safetensors file, a run directory or a Hugging Face directory");
    return TRI_EXIT_USAGE;
}
