/* Tensors of a model directory into parameters. First each parameter finds its tensor, then the
 * tensors that no parameter took are looked at, and only then are bytes moved, when they are asked
 * for: a directory that is refused costs nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf_parts.h"

enum { MAX_NAME = 512 };

typedef struct tri_hf_source loader;

struct tri_hf_source {
    const tri_hf_family *family;
    const tri_hf_class *class; /* of bert, or NULL */
    const tri_param_table *params;
    tri_hf_files files;
    const tri_safetensor **taken; /* by each parameter */
    const tri_hf_file **from;
    bool *fresh;   /* parameters of heads that the files do not have */
    tr_error *err; /* while it is opened */
};

static char *dims_text(int num, const int64_t *dim, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < num && length < size; d++)
        length +=
            (size_t)snprintf(text + length, size - length, "%s%" PRId64, d ? ", " : "", dim[d]);
    if (length < size)
        snprintf(text + length, size - length, "]");
    return text;
}

/* By its name in the files, without the prefix, or by TensorFlow's name for parts of a norm. The
 * bias of bert's decoder has two names, of which a file may hold either. */
static const tri_safetensor *find(const loader *l, const char *canonical, const tri_hf_file **file)
{
    char name[MAX_NAME], old[MAX_NAME];
    tri_hf_name(l->family, canonical, name, sizeof name);
    for (int bare = 0; bare < 2; bare++) {
        const char *tried = bare ? canonical : name;
        const tri_safetensor *tensor = tri_hf_files_find(&l->files, tried, file);
        const char *norm = strstr(tried, "LayerNorm.");
        if (!tensor && norm && strcmp(l->family->kind, "bert") == 0) {
            snprintf(old, sizeof old, "%.*sLayerNorm.%s", (int)(norm - tried), tried,
                     strcmp(norm, "LayerNorm.bias") == 0 ? "beta" : "gamma");
            tensor = tri_hf_files_find(&l->files, old, file);
        }
        if (tensor)
            return tensor;
    }
    if (strcmp(canonical, "cls.predictions.bias") == 0)
        return tri_hf_files_find(&l->files, "cls.predictions.decoder.bias", file);
    return NULL;
}

static tr_status missing(const loader *l, const char *canonical)
{
    char name[MAX_NAME];
    const char *label = tri_hf_files_label(&l->files);
    tri_hf_name(l->family, canonical, name, sizeof name);
    if (strcmp(canonical, l->family->head) == 0)
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: holds no tensor \"%s\", but config.json has tie_word_embeddings false "
                        "or leaves it out; set it to true if the head shares the token table",
                        label, name);
    return tri_fail(l->err, TR_ERROR_INPUT,
                    "%s: holds no tensor \"%s\"; it is incomplete, or belongs to another model "
                    "than config.json describes",
                    label, name);
}

/* A head may be missing when the files are of a class without it, and then as a whole. */
static bool may_be_fresh(const loader *l, const char *canonical)
{
    const char *head = tri_hf_head_of(l->family, canonical);
    if (!head || (l->class && strstr(l->class->heads, head)))
        return false;
    const tri_hf_file *file;
    for (size_t i = 0; i < l->params->count; i++)
        if (strncmp(l->params->items[i].name, head, strlen(head)) == 0 &&
            find(l, l->params->items[i].name, &file))
            return false;
    return true;
}

static tr_status take(loader *l, size_t i)
{
    const tri_param *param = &l->params->items[i];
    const tri_safetensor *tensor = find(l, param->name, &l->from[i]);
    l->fresh[i] = !tensor && may_be_fresh(l, param->name);
    if (l->fresh[i])
        return TR_OK;
    if (!tensor)
        return missing(l, param->name);
    const char *path = l->from[i]->path;
    int64_t dim[2];
    int num = tri_hf_dims(l->family, param, dim);
    if (!tri_hf_can_widen(tensor->dtype))
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: tensor \"%s\" is of dtype %s; weights are read from F32, F16 and BF16",
                        path, tensor->name, tensor->dtype_text);
    bool same = tensor->num_dims == num;
    for (int d = 0; same && d < num; d++)
        same = tensor->dim[d] == dim[d];
    char have[160], need[64];
    if (!same)
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: tensor \"%s\" has shape %s, but config.json asks for %s", path,
                        tensor->name, dims_text(tensor->num_dims, tensor->dim, have, sizeof have),
                        dims_text(num, dim, need, sizeof need));
    l->taken[i] = tensor;
    return TR_OK;
}

/* A head beside a tied table must repeat it, or the model is not tied. */
static tr_status check_tied(const loader *l, const tri_hf_file *file, const tri_safetensor *head)
{
    tri_id table = tri_param_find(l->params, l->family->table);
    const tri_safetensor *tensor = table == TRI_NONE ? NULL : l->taken[table];
    enum { PIECE = 4096 };
    float a[PIECE], b[PIECE];
    size_t count = 0;
    bool same = tensor && tri_hf_can_widen(head->dtype) && head->num_dims == 2 &&
                head->dim[0] == tensor->dim[0] && head->dim[1] == tensor->dim[1];
    if (same)
        count = head->num_bytes / tri_dtype_bytes(head->dtype);
    for (size_t at = 0; same && at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        const char *x = head->data, *y = tensor->data;
        tri_hf_widen(head->dtype, x + at * tri_dtype_bytes(head->dtype), a, n);
        tri_hf_widen(tensor->dtype, y + at * tri_dtype_bytes(tensor->dtype), b, n);
        same = memcmp(a, b, n * sizeof *a) == 0;
    }
    if (same)
        return TR_OK;
    return tri_fail(l->err, TR_ERROR_INPUT,
                    "%s: tensor \"%s\" differs from the token table, though the head is tied to "
                    "it; if the model has a head of its own, config.json needs "
                    "\"tie_word_embeddings\": false",
                    file->path, head->name);
}

/* A tensor of the files: taken, known to carry nothing, or a sign of another model. */
static tr_status check_tensor(const loader *l, const tri_hf_file *file, const tri_safetensor *t)
{
    char canonical[MAX_NAME];
    tri_hf_canonical(l->family, t->name, canonical, sizeof canonical);
    tri_id param = tri_param_find(l->params, canonical);
    if (param != TRI_NONE && l->taken[param] == t)
        return TR_OK;
    if (param != TRI_NONE)
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" stands for the same parameter as \"%.200s\" of %s",
                        file->path, t->name, l->taken[param]->name, l->from[param]->name);
    if (strcmp(canonical, l->family->head) == 0 &&
        tri_param_find(l->params, l->family->table) != TRI_NONE)
        return check_tied(l, file, t);
    if (tri_hf_ignored(l->family, canonical))
        return TR_OK;
    return tri_fail(l->err, TR_ERROR_INPUT,
                    "%s: tensor \"%.200s\" is not part of the %s that config.json describes",
                    file->path, t->name, l->family->model_type);
}

void tri_hf_read(const tri_hf_source *l, size_t i, float *to)
{
    const tri_param *param = &l->params->items[i];
    const tri_safetensor *tensor = l->taken[i];
    int64_t rows = tri_shape_span(&param->shape, 0, param->split);
    int64_t cols = tri_shape_span(&param->shape, param->split, param->shape.rank);
    if (!tensor) /* fresh */
        return;
    if (l->family->conv1d && param->role == TRI_ROLE_MATRIX)
        tri_hf_widen_transposed(tensor->dtype, tensor->data, to, (size_t)rows, (size_t)cols);
    else
        tri_hf_widen(tensor->dtype, tensor->data, to, (size_t)tri_shape_count(&param->shape));
}

static tr_status match(loader *l)
{
    for (size_t i = 0; i < l->params->count; i++)
        TRI_TRY(take(l, i));
    for (size_t f = 0; f < l->files.num; f++)
        for (size_t i = 0; i < tri_safetensors_num(l->files.file[f].file); i++)
            TRI_TRY(
                check_tensor(l, &l->files.file[f], tri_safetensors_at(l->files.file[f].file, i)));
    return TR_OK;
}

static tr_status read_family(const char *dir, loader *l, tr_error *err)
{
    json_t *root;
    char *path;
    tr_status status = tri_hf_json_read(dir, "config.json", &root, &path, err);
    if (status == TR_OK)
        status = tri_hf_family_read(root, path, &l->family, err);
    if (status == TR_OK)
        status = tri_hf_class_read(l->family, root, path, &l->class, err);
    json_decref(root);
    free(path);
    return status;
}

tr_status tri_hf_open(const char *dir, const tri_param_table *params, bool *fresh,
                      tri_hf_source **source, tr_error *err)
{
    loader *l = calloc(1, sizeof *l);
    *source = NULL;
    if (!l)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    *l = (loader){.params = params, .fresh = fresh, .err = err};
    l->taken = calloc(params->count + 1, sizeof *l->taken);
    l->from = calloc(params->count + 1, sizeof *l->from);
    tr_status status = l->taken && l->from
                           ? read_family(dir, l, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    if (status == TR_OK)
        status = tri_hf_files_open(&l->files, dir, err);
    if (status == TR_OK)
        status = match(l);
    l->err = NULL; /* the caller's, and for this call only */
    if (status == TR_OK)
        *source = l;
    else
        tri_hf_close(l);
    return status;
}

void tri_hf_close(tri_hf_source *source)
{
    if (!source)
        return;
    tri_hf_files_close(&source->files);
    free(source->taken);
    free(source->from);
    free(source);
}
