#include "ckpt/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf/hf.h"

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

struct tri_weights_source {
    const tri_param_table *params;
    /* One of the three: */
    tri_safetensors *file;
    tri_hf_source *hf;
    bool is_checkpoint;
    const float **from; /* of a file: each parameter */
    tri_checkpoint checkpoint;
};

static tr_status check_names(const tri_checkpoint *checkpoint, const char *path,
                             const tri_param_table *params, tr_error *err)
{
    for (size_t t = 0; t < checkpoint->manifest.num_tensors; t++) {
        const tri_ckpt_tensor *tensor = &checkpoint->manifest.tensors[t];
        if (tensor->kind == TRI_CKPT_WEIGHT && tri_param_find(params, tensor->name) == TRI_NONE)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: tensor \"%s\" is not part of this model; check model.* against "
                            "the run that wrote it",
                            path, tensor->name);
    }
    return TR_OK;
}

static tr_status open_source(tri_weights_source *s, const char *path, bool *fresh, tr_error *err)
{
    if (tri_checkpoint_is_dir(path)) {
        tr_status status = tri_checkpoint_open(&s->checkpoint, path, err);
        s->is_checkpoint = status == TR_OK;
        if (status == TR_OK)
            status = tri_checkpoint_verify(&s->checkpoint, TRI_VERIFY_WEIGHTS, 0, 1, NULL, err);
        TRI_TRY(tri_checkpoint_advise(err, status, path));
        return check_names(&s->checkpoint, path, s->params, err);
    }
    if (tri_path_is_dir(path))
        return tri_hf_open(path, s->params, fresh, &s->hf, err);
    s->from = calloc(s->params->count + 1, sizeof *s->from);
    if (!s->from)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to load %s", path);
    return tri_weights_map(path, s->params, s->from, &s->file, err);
}

tr_status tri_weights_open(const char *path, const tri_param_table *params, bool *fresh,
                           tri_weights_source **source, tr_error *err)
{
    tri_weights_source *s = calloc(1, sizeof *s);
    *source = NULL;
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to load %s", path);
    s->params = params;
    tr_status status = open_source(s, path, fresh, err);
    if (status == TR_OK)
        *source = s;
    else
        tri_weights_close(s);
    return status;
}

void tri_weights_take(const float *whole, const tri_region *region, float *to)
{
    int64_t num = tri_region_num_stretches(region);
    for (int64_t i = 0; i < num; i++) {
        tri_stretch run = tri_region_stretch(region, i);
        memcpy(to + run.local, (const char *)whole + (size_t)run.logical * sizeof *to,
               (size_t)run.count * sizeof *to);
    }
}

tr_status tri_weights_read(tri_weights_source *s, size_t i, const tri_region *region, float *to,
                           tr_error *err)
{
    if (s->is_checkpoint)
        return tri_checkpoint_read(&s->checkpoint, s->params->items[i].name, region, to, err);
    if (s->hf)
        tri_hf_read(s->hf, i, region, to);
    else
        tri_weights_take(s->from[i], region, to);
    return TR_OK;
}

void tri_weights_close(tri_weights_source *s)
{
    if (!s)
        return;
    tri_safetensors_close(s->file);
    tri_hf_close(s->hf);
    if (s->is_checkpoint)
        tri_checkpoint_close(&s->checkpoint);
    free(s->from);
    free(s);
}

static tri_region whole_of(const tri_param *param)
{
    int64_t dim[TRI_MAX_RANK];
    for (int d = 0; d < param->shape.rank; d++)
        dim[d] = param->shape.dim[d].size;
    return tri_region_whole(param->shape.rank, dim);
}

tr_status tri_weights_load(const char *path, const tri_param_table *params, float *const *data,
                           bool *fresh, tr_error *err)
{
    tri_weights_source *source;
    TRI_TRY(tri_weights_open(path, params, fresh, &source, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < params->count; i++) {
        tri_region whole = whole_of(&params->items[i]);
        status = tri_weights_read(source, i, &whole, data[i], err);
    }
    tri_weights_close(source);
    return status;
}
