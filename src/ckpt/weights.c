#include "ckpt/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"

typedef struct dims {
    int64_t size[TRI_MAX_RANK];
} dims;

tr_status tri_weights_save(const char *path, const tri_param_table *params,
                           const float *const *data, int64_t step, tr_error *err)
{
    tri_safetensors_item *items = calloc(params->count + 1, sizeof *items);
    dims *sizes = calloc(params->count + 1, sizeof *sizes);
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
                                          .dim = sizes[i].size,
                                          .data = data[i]};
    }
    char step_text[24];
    snprintf(step_text, sizeof step_text, "%" PRId64, step);
    tri_safetensors_meta meta[] = {
        {"format", "trireme"}, {"version", "1"}, {"step", step_text}};
    if (status == TR_OK)
        status = tri_safetensors_write(path, items, params->count, meta, 3, err);
    free(items);
    free(sizes);
    return status;
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

static tr_status load_one(const tri_safetensors *file, const char *path, const tri_param *param,
                          float *data, tr_error *err)
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
    memcpy(data, tensor->data, tensor->num_bytes);
    return TR_OK;
}

tr_status tri_weights_load(const char *path, const tri_param_table *params, float *const *data,
                           tr_error *err)
{
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < params->count; i++)
        status = load_one(file, path, &params->items[i], data[i], err);
    for (size_t i = 0; status == TR_OK && i < tri_safetensors_num(file); i++) {
        const char *name = tri_safetensors_at(file, i)->name;
        if (tri_param_find(params, name) == TRI_NONE)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "%s: tensor \"%s\" is not part of this model; check model.* against "
                              "the run that wrote it",
                              path, name);
    }
    tri_safetensors_close(file);
    return status;
}
