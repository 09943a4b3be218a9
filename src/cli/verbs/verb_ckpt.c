/* trireme ckpt: what is in a file or a checkpoint; the table of its other parts. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/text.h"
#include "ckpt/hf/hf.h"
#include "ckpt/weights.h"
#include "cli/cli.h"
#include "cli/doc/docs.h"
#include "cli/text.h"
#include "cli/verbs/ckpt_verbs.h"

/* ---- inspect ---- */

typedef struct tensor_totals {
    size_t tensors;
    double elements, bytes;
} tensor_totals;

static void print_tensor(const tri_safetensor *t, tensor_totals *sum)
{
    char shape[200] = "[", bytes[16];
    double elements = 1;
    for (int d = 0; d < t->num_dims; d++) {
        size_t length = strlen(shape);
        snprintf(shape + length, sizeof shape - length, "%s%" PRId64, d ? ", " : "", t->dim[d]);
        elements *= (double)t->dim[d];
    }
    tri_text_print(stdout, "  %-52s %-5s %-22s %10s\n", t->name, t->dtype_text, strcat(shape, "]"),
                   tri_text_bytes((double)t->num_bytes, bytes));
    sum->tensors++;
    sum->elements += elements;
    sum->bytes += (double)t->num_bytes;
}

/* The header once more, for what the reader hands out by key only; it has been checked by then. */
static tr_status print_metadata(const char *path, tr_error *err)
{
    tri_mapping mapping;
    uint64_t length;
    TRI_TRY(tri_mapping_open(&mapping, path, err));
    memcpy(&length, mapping.data, sizeof length);
    json_t *root;
    tr_status status = tri_json_load(path, (const char *)mapping.data + sizeof length, length, 0,
                                     &root, NULL, err);
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "__metadata__"), key, value)
        tri_text_print(stdout, "  metadata  %s = %s\n", key, json_string_value(value));
    json_decref(root);
    tri_mapping_close(&mapping);
    return status;
}

static tr_status inspect_file(const char *path, tensor_totals *sum, tr_error *err)
{
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file, err));
    tri_text_print(stdout, "%s\n", path);
    tr_status status = print_metadata(path, err);
    for (size_t i = 0; status == TR_OK && i < tri_safetensors_num(file); i++)
        print_tensor(tri_safetensors_at(file, i), sum);
    tri_safetensors_close(file);
    return status;
}

static tr_status inspect_hf(const char *dir, tensor_totals *sum, tr_error *err)
{
    tri_hf_config config;
    if (tri_hf_config_read(dir, &config, err) == TR_OK) {
        tri_text_print(stdout, "%s: Hugging Face, model_type %s\n", dir, config.model_type);
        for (int i = 0; i < config.num_settings; i++)
            tri_text_print(stdout, "  %-20s %s\n", config.setting[i].name, config.setting[i].value);
    } else { /* tensors can be listed all the same */
        tri_text_print(stdout, "%s\n", err->message);
    }
    tri_hf_shards shards;
    TRI_TRY(tri_hf_shards_list(dir, &shards, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < shards.num; i++)
        status = inspect_file(shards.path[i], sum, err);
    tri_hf_shards_free(&shards);
    return status;
}

/* Of a run with weights, a file or a Hugging Face directory; path is the file's where there is one.
 */
static int inspect_json(const char *run_dir, const char *path, bool is_hf)
{
    tr_error err = {0};
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "kind", run_dir ? "run" : is_hf ? "huggingface" : "file");
    tr_status status = path ? tri_doc_tensors(doc, path, is_hf, &err) : TR_OK;
    if (status == TR_OK && run_dir)
        status = tri_doc_run_checkpoints(doc, run_dir, &err);
    if (status == TR_OK)
        return tri_doc_print(doc, stdout, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    json_decref(doc);
    return tri_cli_fail(&err);
}

static int inspect(const char *path, bool json)
{
    tr_error err = {0};
    tensor_totals sum = {0};
    if (tri_ckpt_can_inspect(path))
        return tri_ckpt_inspect(path, json);
    char *weights = tri_path_join(path, "weights.safetensors"), count[16], bytes[16];
    bool is_run = tri_path_is_dir(path) && !tri_hf_is_dir(path);
    tr_status status = TR_OK;
    if (!weights)
        status = tri_fail(&err, TR_ERROR_RUNTIME, "no memory for a path");
    else if (tri_hf_is_dir(path) && !json)
        status = inspect_hf(path, &sum, &err);
    else if (!is_run && !tri_path_exists(path))
        status = tri_advise(&err, tri_fail_open(&err, path, ENOENT),
                            "name a checkpoint, a run directory, a safetensors file or a Hugging "
                            "Face directory (`trireme train` writes to run.dir)");
    else if (is_run && !tri_path_exists(weights) && !tri_ckpt_has_any(path))
        status =
            tri_fail(&err, TR_ERROR_INPUT,
                     "%s: holds neither weights.safetensors nor checkpoints nor a Hugging Face "
                     "model; name the run.dir of a run (`trireme train` writes them there)",
                     path);
    else if (!json && (!is_run || tri_path_exists(weights)))
        status = inspect_file(is_run ? weights : path, &sum, &err);
    int code = TRI_EXIT_OK;
    if (status == TR_OK && json)
        code = inspect_json(is_run ? path : NULL,
                            !is_run                    ? path
                            : tri_path_exists(weights) ? weights
                                                       : NULL,
                            tri_hf_is_dir(path));
    free(weights);
    if (status == TR_OK && json)
        return code;
    if (status != TR_OK && is_run &&
        !json) /* what else there is, for whoever cannot use the weights */
        tri_ckpt_print_list(path);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    if (sum.tensors > 0)
        printf("%zu tensors, %s elements, %s\n", sum.tensors, tri_text_count(sum.elements, count),
               tri_text_bytes(sum.bytes, bytes));
    if (is_run)
        tri_ckpt_print_list(path);
    return TRI_EXIT_OK;
}

static const char usage[] =
    "write `trireme ckpt inspect PATH` (a checkpoint, a run directory, a safetensors file or a "
    "Hugging Face directory), `ckpt verify PATH`, `ckpt diff A B` (each with --json), or `ckpt "
    "export [PATH] --hf "
    "DIR` "
    "or `--weights FILE`";

int tri_verb_ckpt(const tri_cli *cli)
{
    int num = cli->num_operands;
    const char *what = num > 0 ? cli->operands[0] : "";
    const char *path = num > 1 ? cli->operands[1] : NULL;
    const char *hf_dir = tri_cli_flag(cli, "hf"), *weights = tri_cli_flag(cli, "weights");
    bool one = (hf_dir && hf_dir[0]) != (weights && weights[0]);
    bool json = tri_cli_flag(cli, "json") != NULL;
    if (strcmp(what, "export") == 0 && num <= 2 && one && !json)
        return tri_ckpt_export(cli, path ? path : tr_settings_string(cli->settings, "run.dir"),
                               hf_dir, weights);
    if (!hf_dir && !weights) {
        if (strcmp(what, "inspect") == 0 && num == 2)
            return inspect(path, json);
        if (strcmp(what, "verify") == 0 && num == 2)
            return tri_ckpt_verify(path, json);
        if (strcmp(what, "diff") == 0 && num == 3)
            return tri_ckpt_diff(path, cli->operands[2], json);
    }
    tri_cli_error("%s", usage);
    return TRI_EXIT_USAGE;
}
