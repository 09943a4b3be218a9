#include "ckpt/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"

typedef struct dims {
    int64_t size[TRI_MAX_RANK];
} dims;

/* What the file begins with. */
static tr_status write_header(tri_atomic_file *file, const char *path,
                              const tri_param_table *params, int64_t step, tr_error *err)
{
    tri_safetensors_item *items = calloc(params->count + 1, sizeof *items);
    dims *sizes = calloc(params->count + 1, sizeof *sizes);
    char *header = NULL, step_text[24];
    size_t num_bytes = 0;
    tr_status status = TR_OK;
    if (!items || !sizes)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to save %s", path);
    for (size_t i = 0; status == TR_OK && i < params->count; i++) {
        const tri_param *param = &params->items[i];
        for (int d = 0; d < param->shape.rank; d++)
            sizes[i].size[d] = param->shape.dim[d].size;
        items[i] = (tri_safetensors_item){.name = param->name,
                                          .dtype = TRI_F32,
                                          .num_dims = param->shape.rank,
                                          .dim = sizes[i].size};
    }
    snprintf(step_text, sizeof step_text, "%" PRId64, step);
    tri_safetensors_meta meta[] = {{"format", "trireme"}, {"version", "1"}, {"step", step_text}};
    if (status == TR_OK)
        status =
            tri_safetensors_header(path, items, params->count, meta, 3, &header, &num_bytes, err);
    if (status == TR_OK)
        status = tri_atomic_write(file, header, num_bytes, err);
    free(header);
    free(items);
    free(sizes);
    return status;
}

tr_status tri_weights_save_each(const char *path, const tri_param_table *params, int64_t step,
                                tri_weights_fetch fetch, void *context, tr_error *err)
{
    tri_atomic_file file = {.fd = -1};
    tr_status status = path ? tri_atomic_begin(&file, path, err) : TR_OK;
    bool begun = path && status == TR_OK;
    if (begun)
        status = write_header(&file, path, params, step, err);
    for (size_t i = 0; i < params->count && status == TR_OK; i++) {
        const float *data = NULL;
        size_t bytes = (size_t)tri_shape_count(&params->items[i].shape) * sizeof *data;
        status = fetch(context, i, &data, err);
        if (status == TR_OK && path)
            status = tri_atomic_write(&file, data, bytes, err);
    }
    if (status == TR_OK && path)
        return tri_atomic_commit(&file, err);
    if (begun)
        tri_atomic_abort(&file);
    return status;
}

static tr_status fetch_from(void *context, size_t param, const float **data, tr_error *err)
{
    (void)err;
    const float *const *all = context;
    *data = all[param];
    return TR_OK;
}

tr_status tri_weights_save(const char *path, const tri_param_table *params,
                           const float *const *data, int64_t step, tr_error *err)
{
    return tri_weights_save_each(path, params, step, fetch_from, (void *)(uintptr_t)data, err);
}

static bool same_shape(const tri_param *param, const tri_safetensor *tensor)
{
    if (tensor->num_dims != param->shape.rank)
        return false;
    for (int d = 0; d < tensor->num_dims; d++)
        if (tensor->dim[d] != param->shape.dim[d].size)
            return false;
    return true;
}

static tr_status map_one(const tri_safetensors *file, const char *path, const tri_param *param,
                         const float **data, tr_error *err)
{
    const tri_safetensor *tensor;
    TRI_TRY(tri_safetensors_get(file, param->name, &tensor, err));
    char shape[128];
    if (tensor->dtype != TRI_F32)
        return tri_fail(err, TR_ERROR_INPUT, "%s: tensor \"%s\" is %s; weights are read as F32",
                        path, param->name, tensor->dtype_text);
    if (!same_shape(param, tensor))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: tensor \"%s\" has %zu bytes in another shape than the model's %s; "
                        "check model.* against the run that wrote it",
                        path, param->name, tensor->num_bytes,
                        tri_shape_text(&param->shape, shape, sizeof shape));
    *data = tensor->data;
    return TR_OK;
}

static tr_status map_all(const tri_safetensors *file, const char *path,
                         const tri_param_table *params, const float **data, tr_error *err)
{
    for (size_t i = 0; i < params->count; i++)
        TRI_TRY(map_one(file, path, &params->items[i], &data[i], err));
    for (size_t i = 0; i < tri_safetensors_num(file); i++) {
        const char *name = tri_safetensors_at(file, i)->name;
        if (tri_param_find(params, name) == TRI_NONE)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: tensor \"%s\" is not part of this model; check model.* against "
                            "the run that wrote it",
                            path, name);
    }
    return TR_OK;
}

tr_status tri_weights_map(const char *path, const tri_param_table *params, const float **data,
                          tri_safetensors **file, tr_error *err)
{
    TRI_TRY(tri_safetensors_open(path, file, err));
    tr_status status = map_all(*file, path, params, data, err);
    if (status != TR_OK) {
        tri_safetensors_close(*file);
        *file = NULL;
    }
    return status;
}

/* The weights of a checkpoint, out of its shards. */
static tr_status load_checkpoint(const char *path, const tri_param_table *params,
                                 float *const *data, tr_error *err)
{
    tri_checkpoint ckpt;
    TRI_TRY(tri_checkpoint_open(&ckpt, path, err));
    tr_status status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_WEIGHTS, 0, 1, NULL, err);
    for (size_t i = 0; status == TR_OK && i < params->count; i++) {
        const tri_param *param = &params->items[i];
        int64_t dim[TRI_MAX_RANK];
        for (int d = 0; d < param->shape.rank; d++)
            dim[d] = param->shape.dim[d].size;
        tri_region whole = tri_region_whole(param->shape.rank, dim);
        status = tri_checkpoint_read(&ckpt, param->name, &whole, data[i], err);
    }
    for (size_t t = 0; status == TR_OK && t < ckpt.manifest.num_tensors; t++) {
        const tri_ckpt_tensor *tensor = &ckpt.manifest.tensors[t];
        if (tensor->kind == TRI_CKPT_WEIGHT && tri_param_find(params, tensor->name) == TRI_NONE)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "%s: tensor \"%s\" is not part of this model; check model.* against "
                              "the run that wrote it",
                              path, tensor->name);
    }
    tri_checkpoint_close(&ckpt);
    return status;
}

tr_status tri_weights_load(const char *path, const tri_param_table *params, float *const *data,
                           bool *fresh, tr_error *err)
{
    if (tri_checkpoint_is_dir(path))
        return load_checkpoint(path, params, data, err);
    if (tri_path_is_dir(path))
        return tri_hf_load(path, params, data, fresh, err);
    tri_safetensors *file = NULL;
    const float **from = calloc(params->count + 1, sizeof *from);
    if (!from)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to load %s", path);
    tr_status status = tri_weights_map(path, params, from, &file, err);
    for (size_t i = 0; status == TR_OK && i < params->count; i++) /* at any address: memcpy */
        memcpy(data[i], from[i], (size_t)tri_shape_count(&params->items[i].shape) * sizeof **data);
    tri_safetensors_close(file);
    free(from);
    return status;
}
