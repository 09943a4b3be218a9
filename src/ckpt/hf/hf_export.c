/* Writing a model directory. Everything goes into a directory beside the one asked for, which takes
 * its name at the end: whoever finds it finds it complete. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "ckpt/hf/hf_parts.h"

enum { MAX_NAME = 512, MAX_PATH = 4200 };

/* A tensor of the files: a parameter, or one expert of it. */
typedef struct hf_tensor {
    size_t param, shard;
    int64_t expert; /* -1: all of the parameter */
} hf_tensor;

typedef struct export_writer {
    const tri_hf_export_options *options;
    const tri_hf_family *family;
    const tri_param_table *params;
    const float *const *data;
    char dir[MAX_PATH];  /* as asked for, without a slash at the end */
    char temp[MAX_PATH]; /* where it is written */
    hf_tensor *parts;    /* the tensors of the files, in the order of the model */
    size_t num_parts, num_shards;
    json_t *weight_map;
    tr_error *err;
} export_writer;

/* ---- one shard ---- */

/* What a shard's tensors need while it is written. */
typedef struct shard_parts {
    tri_safetensors_item *item;
    char (*name)[MAX_NAME];
    int64_t (*dim)[2];
    float **copy; /* transposed weights; NULL where ours are right as they lie */
    size_t num;
} shard_parts;

static void free_parts(shard_parts *parts)
{
    for (size_t i = 0; parts->copy && i < parts->num; i++)
        free(parts->copy[i]);
    free(parts->item);
    free(parts->name);
    free(parts->dim);
    free(parts->copy);
}

/* Ours is [out, in]; the file wants [in, out]. */
static float *transposed(const tri_param *param, const float *data)
{
    size_t rows = (size_t)tri_shape_span(&param->shape, 0, param->split);
    size_t cols = (size_t)tri_shape_span(&param->shape, param->split, param->shape.rank);
    float *copy = malloc(rows * cols * sizeof *copy);
    if (copy)
        tri_hf_widen_transposed(TRI_F32, data, copy, cols, rows);
    return copy;
}

static tr_status add_part(const export_writer *w, shard_parts *parts, const hf_tensor *from,
                          const char *file)
{
    const tri_param *param = &w->params->items[from->param];
    size_t at = parts->num++;
    char canonical[MAX_NAME];
    int num_dims = tri_hf_dims(w->family, param, parts->dim[at]);
    const float *data = w->data[from->param];
    snprintf(canonical, sizeof canonical, "%s", param->name);
    if (from->expert >= 0) {
        tri_hf_expert_name(param->name, from->expert, canonical, sizeof canonical);
        data += from->expert * parts->dim[at][0] * parts->dim[at][1];
    }
    if (w->family->conv1d && param->role == TRI_ROLE_MATRIX)
        data = parts->copy[at] = transposed(param, data);
    tri_hf_name(w->family, canonical, parts->name[at], MAX_NAME);
    parts->item[at] = (tri_safetensors_item){.name = parts->name[at],
                                             .dtype = TRI_F32,
                                             .num_dims = num_dims,
                                             .dim = parts->dim[at],
                                             .data = data};
    if (!data || json_object_set_new(w->weight_map, parts->name[at], json_string(file)) != 0)
        return tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->dir);
    return TR_OK;
}

static tr_status write_shard(const export_writer *w, size_t shard)
{
    char file[64] = "model.safetensors", path[MAX_PATH + 80];
    if (w->num_shards > 1)
        snprintf(file, sizeof file, "model-%05zu-of-%05zu.safetensors", shard + 1, w->num_shards);
    snprintf(path, sizeof path, "%s/%s", w->temp, file);
    size_t most = w->num_parts + 1;
    shard_parts parts = {.item = calloc(most, sizeof *parts.item),
                         .name = calloc(most, sizeof *parts.name),
                         .dim = calloc(most, sizeof *parts.dim),
                         .copy = calloc(most, sizeof *parts.copy)};
    tr_status status = TR_OK;
    if (!parts.item || !parts.name || !parts.dim || !parts.copy)
        status = tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->dir);
    for (size_t i = 0; status == TR_OK && i < w->num_parts; i++)
        if (w->parts[i].shard == shard)
            status = add_part(w, &parts, &w->parts[i], file);
    const tri_safetensors_meta meta = {"format", "pt"}; /* transformers insists on it */
    if (status == TR_OK)
        status = tri_safetensors_write(path, parts.item, parts.num, &meta, 1, w->err);
    free_parts(&parts);
    return status;
}

static int64_t parts_of(const tri_param *param)
{
    int64_t experts = tri_hf_num_experts(param);
    return experts > 0 ? experts : 1;
}

static tr_status list_parts(export_writer *w)
{
    size_t num = 0;
    for (size_t i = 0; i < w->params->count; i++)
        num += (size_t)parts_of(&w->params->items[i]);
    w->parts = calloc(num + 1, sizeof *w->parts);
    if (!w->parts)
        return tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->options->dir);
    for (size_t i = 0; i < w->params->count; i++) {
        const tri_param *param = &w->params->items[i];
        bool experts = tri_hf_num_experts(param) > 0;
        for (int64_t e = 0; e < parts_of(param); e++)
            w->parts[w->num_parts++] = (hf_tensor){.param = i, .expert = experts ? e : -1};
    }
    return TR_OK;
}

/* In the order of the model, a new file where the next tensor would make one too large. */
static void divide(export_writer *w)
{
    int64_t filled = 0;
    w->num_shards = 1;
    for (size_t i = 0; i < w->num_parts; i++) {
        const tri_param *param = &w->params->items[w->parts[i].param];
        int64_t bytes = tri_shape_count(&param->shape) / parts_of(param) * (int64_t)sizeof(float);
        if (filled > 0 && filled + bytes > w->options->shard_bytes) {
            w->num_shards++;
            filled = 0;
        }
        w->parts[i].shard = w->num_shards - 1;
        filled += bytes;
    }
}

/* ---- the directory ---- */

static tr_status write_json(const export_writer *w, const char *name, const json_t *root)
{
    char path[MAX_PATH + 80];
    snprintf(path, sizeof path, "%s/%s", w->temp, name);
    tri_json_begin();
    char *text = tri_json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    size_t length = text ? strlen(text) : 0;
    if (text)
        text[length] = '\n'; /* in place of the NUL: the length is known */
    tr_status status = text ? tri_file_replace(path, text, length + 1, w->err)
                            : tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->dir);
    free(text);
    return status;
}

static tr_status write_index(const export_writer *w)
{
    json_t *root = json_pack("{s:{s:I, s:I}, s:O}", "metadata", "total_size",
                             (json_int_t)tri_param_total(w->params) * (json_int_t)sizeof(float),
                             "total_parameters", (json_int_t)tri_param_total(w->params),
                             "weight_map", w->weight_map);
    tr_status status = root ? write_json(w, "model.safetensors.index.json", root)
                            : tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->dir);
    json_decref(root);
    return status;
}

static tr_status write_files(export_writer *w, const json_t *config)
{
    divide(w);
    for (size_t s = 0; s < w->num_shards; s++)
        TRI_TRY(write_shard(w, s));
    if (w->num_shards > 1)
        TRI_TRY(write_index(w));
    if (w->options->run_dir)
        TRI_TRY(tri_hf_copy_companions(w->options->run_dir, w->temp, w->err));
    return write_json(w, "config.json", config);
}

/* The directory may exist if there is nothing in it, which rename then replaces. */
static tr_status check_free(const char *dir, tr_error *err)
{
    if (!tri_path_exists(dir))
        return TR_OK;
    DIR *handle = opendir(dir);
    if (!handle)
        return tri_fail(err, TR_ERROR_INPUT, "%s: %s; choose another directory", dir,
                        strerror(errno));
    int num = 0;
    while (readdir(handle))
        num++;
    closedir(handle);
    if (num > 2) /* . and .. */
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: is not empty; choose another directory, or remove it first", dir);
    return TR_OK;
}

static tr_status name_dirs(export_writer *w)
{
    const char *dir = w->options->dir;
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    if (length == 0 || length > MAX_PATH - 40)
        return tri_fail(w->err, TR_ERROR_INPUT, "\"%.60s\" is not a name for a directory", dir);
    snprintf(w->dir, sizeof w->dir, "%.*s", (int)length, dir);
    snprintf(w->temp, sizeof w->temp, "%.*s.tmp%ld", (int)length, dir, (long)getpid());
    TRI_TRY(check_free(w->dir, w->err));
    TRI_TRY(check_free(w->temp, w->err));
    return tri_make_dirs(w->temp, w->err);
}

static void remove_temp(const export_writer *w)
{
    tri_file_list list;
    tr_error ignored = {0};
    if (tri_file_list_read(&list, w->temp, &ignored) != TR_OK)
        return;
    for (size_t i = 0; i < list.num; i++) {
        char *path = tri_path_join(w->temp, list.name[i]);
        if (path)
            unlink(path);
        free(path);
    }
    tri_file_list_free(&list);
    rmdir(w->temp);
}

static tr_status write_dir(export_writer *w, const json_t *config)
{
    TRI_TRY(name_dirs(w));
    tr_status status = write_files(w, config);
    if (status == TR_OK && rename(w->temp, w->dir) != 0)
        status =
            tri_fail(w->err, TR_ERROR_RUNTIME, "%s: cannot be made: %s", w->dir, strerror(errno));
    if (status != TR_OK)
        remove_temp(w);
    return status;
}

tr_status tri_hf_export(const tri_hf_export_options *options, const tri_model_config *model,
                        const tri_param_table *params, const float *const *data, tr_error *err)
{
    export_writer w = {.options = options, .params = params, .data = data, .err = err};
    json_t *config;
    TRI_TRY(tri_hf_config_make(model, &w.family, &config, err));
    w.weight_map = json_object();
    tr_status status = w.weight_map
                           ? list_parts(&w)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", options->dir);
    if (status == TR_OK && options->run_dir)
        status = tri_hf_token_ids(options->run_dir, config, err);
    if (status == TR_OK)
        status = write_dir(&w, config);
    json_decref(w.weight_map);
    json_decref(config);
    free(w.parts);
    return status;
}
