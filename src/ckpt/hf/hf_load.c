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

/* Where a parameter, or one expert of it, lies. */
typedef struct hf_piece {
    const tri_safetensor *tensor;
    const tri_hf_file *file;
    int64_t first; /* element of the tensor */
} hf_piece;

struct tri_hf_source {
    const tri_hf_family *family;
    const tri_hf_class *class; /* of bert, or NULL */
    const tri_param_table *params;
    tri_hf_files files;
    hf_piece *pieces;
    size_t *start; /* the first piece of each parameter, and after the last their number */
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

/* One spelling of a name, or of bert TensorFlow's name for parts of a norm. */
static const tri_safetensor *find_as(const loader *l, const char *tried, const tri_hf_file **file)
{
    char old[MAX_NAME];
    const tri_safetensor *tensor = tri_hf_files_find(&l->files, tried, file);
    const char *norm = strstr(tried, "LayerNorm.");
    if (tensor || !norm || strcmp(l->family->kind, "bert") != 0)
        return tensor;
    snprintf(old, sizeof old, "%.*sLayerNorm.%s", (int)(norm - tried), tried,
             strcmp(norm, "LayerNorm.bias") == 0 ? "beta" : "gamma");
    return tri_hf_files_find(&l->files, old, file);
}

/* By its name in the files, without what the family calls differently, without the prefix. The bias
 * of bert's decoder has two names, of which a file may hold either. */
static const tri_safetensor *find(const loader *l, const char *canonical, const tri_hf_file **file)
{
    char name[MAX_NAME], plain[MAX_NAME];
    tri_hf_name(l->family, canonical, name, sizeof name);
    snprintf(plain, sizeof plain, "%s%s", l->family->prefix, canonical);
    const char *bare = strncmp(name, l->family->prefix, strlen(l->family->prefix)) == 0
                           ? name + strlen(l->family->prefix)
                           : canonical;
    const char *const spellings[] = {name, canonical, plain, bare};
    for (int i = 0; i < (l->family->renames ? 4 : 2); i++) {
        const tri_safetensor *tensor = find_as(l, spellings[i], file);
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

static tr_status check_form(const loader *l, const hf_piece *at, int num, const int64_t *dim)
{
    const tri_safetensor *tensor = at->tensor;
    if (!tri_hf_can_widen(tensor->dtype))
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: tensor \"%s\" is of dtype %s; weights are read from F32, F16 and BF16",
                        at->file->path, tensor->name, tensor->dtype_text);
    bool same = tensor->num_dims == num;
    for (int d = 0; same && d < num; d++)
        same = tensor->dim[d] == dim[d];
    char have[160], need[96];
    if (same)
        return TR_OK;
    return tri_fail(l->err, TR_ERROR_INPUT,
                    "%s: tensor \"%s\" has shape %s, but config.json asks for %s", at->file->path,
                    tensor->name, dims_text(tensor->num_dims, tensor->dim, have, sizeof have),
                    dims_text(num, dim, need, sizeof need));
}

/* Of all experts in one tensor, [E, out, in], where out of gate and up is both. */
static tr_status take_fused(loader *l, size_t i, hf_piece whole, int half)
{
    const tri_param *param = &l->params->items[i];
    int64_t num = tri_hf_num_experts(param), dim[3] = {num};
    tri_hf_dims(l->family, param, dim + 1);
    int64_t count = dim[1] * dim[2];
    if (strstr(whole.tensor->name, "gate_up_proj"))
        dim[1] *= 2;
    TRI_TRY(check_form(l, &whole, 3, dim));
    for (int64_t e = 0; e < num; e++) {
        whole.first = e * dim[1] * dim[2] + half * count;
        l->pieces[l->start[i] + (size_t)e] = whole;
    }
    return TR_OK;
}

static tr_status take_experts(loader *l, size_t i)
{
    const tri_param *param = &l->params->items[i];
    char name[MAX_NAME];
    int half;
    hf_piece at = {0};
    int64_t dim[2], num = tri_hf_num_experts(param);
    tri_hf_dims(l->family, param, dim);
    at.tensor = find(l, tri_hf_fused_name(param->name, name, sizeof name, &half), &at.file);
    if (at.tensor)
        return take_fused(l, i, at, half);
    for (int64_t e = 0; e < num; e++) {
        at.tensor = find(l, tri_hf_expert_name(param->name, e, name, sizeof name), &at.file);
        if (!at.tensor)
            return missing(l, name);
        TRI_TRY(check_form(l, &at, 2, dim));
        l->pieces[l->start[i] + (size_t)e] = at;
    }
    return TR_OK;
}

static tr_status take(loader *l, size_t i)
{
    const tri_param *param = &l->params->items[i];
    if (tri_hf_num_experts(param) > 0)
        return take_experts(l, i);
    hf_piece at = {0};
    int64_t dim[2];
    at.tensor = find(l, param->name, &at.file);
    l->fresh[i] = !at.tensor && may_be_fresh(l, param->name);
    if (l->fresh[i])
        return TR_OK;
    if (!at.tensor)
        return missing(l, param->name);
    TRI_TRY(check_form(l, &at, tri_hf_dims(l->family, param, dim), dim));
    l->pieces[l->start[i]] = at;
    return TR_OK;
}

/* A head beside a tied table must repeat it, or the model is not tied. */
static tr_status check_tied(const loader *l, const tri_hf_file *file, const tri_safetensor *head)
{
    tri_id table = tri_param_find(l->params, l->family->table);
    const tri_safetensor *tensor = table == TRI_NONE ? NULL : l->pieces[l->start[table]].tensor;
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
    int64_t expert = tri_hf_expert_param(canonical, sizeof canonical);
    tri_id param = tri_param_find(l->params, canonical);
    size_t at = expert > 0 ? (size_t)expert : 0;
    if (param != TRI_NONE && at < l->start[param + 1] - l->start[param]) {
        const hf_piece *taken = &l->pieces[l->start[param] + at];
        if (taken->tensor == t)
            return TR_OK;
        return tri_fail(l->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" stands for the same parameter as \"%.200s\" of %s; "
                        "remove one of them",
                        file->path, t->name, taken->tensor->name, taken->file->name);
    }
    if (strcmp(canonical, l->family->head) == 0 &&
        tri_param_find(l->params, l->family->table) != TRI_NONE)
        return check_tied(l, file, t);
    if (tri_hf_ignored(l->family, canonical))
        return TR_OK;
    return tri_fail(l->err, TR_ERROR_INPUT,
                    "%s: tensor \"%.200s\" is not part of the %s that config.json describes",
                    file->path, t->name, l->family->model_type);
}

/* Elements [first, first + count) of a tensor that the file holds as [in, out]. */
static void read_turned(const hf_piece *at, int64_t rows, int64_t cols, tri_stretch run, float *to)
{
    enum { LINES = 64 }; /* whose cache lines stay while they are filled */
    tri_hf_line lines[LINES];
    int num = 0;
    for (int64_t end = run.logical + run.count; run.logical < end;) {
        int64_t row = run.logical / cols, begin = run.logical % cols;
        int64_t last = begin + end - run.logical < cols ? begin + end - run.logical : cols;
        lines[num++] = (tri_hf_line){.row = row, .begin = begin, .end = last, .to = to};
        to += last - begin;
        run.logical += last - begin;
        if (num == LINES || run.logical == end) {
            tri_hf_widen_lines(at->tensor->dtype, at->tensor->data, rows, lines, num);
            num = 0;
        }
    }
}

/* The same of a parameter whose pieces, `each` elements, lie apart. */
static void read_run(const hf_piece *pieces, int64_t each, tri_stretch run, float *to)
{
    while (run.count > 0) {
        const hf_piece *at = &pieces[run.logical / each];
        int64_t first = run.logical % each, count = each - first;
        const char *from = at->tensor->data;
        count = count < run.count ? count : run.count;
        tri_hf_widen(at->tensor->dtype,
                     from + (size_t)(at->first + first) * tri_dtype_bytes(at->tensor->dtype), to,
                     (size_t)count);
        to += count;
        run.logical += count;
        run.count -= count;
    }
}

void tri_hf_read(const tri_hf_source *l, size_t i, const tri_region *region, float *to)
{
    const tri_param *param = &l->params->items[i];
    const hf_piece *at = &l->pieces[l->start[i]];
    int64_t rows = tri_shape_span(&param->shape, 0, param->split);
    int64_t cols = tri_shape_span(&param->shape, param->split, param->shape.rank);
    int64_t num = tri_region_num_stretches(region);
    if (!at->tensor) /* fresh */
        return;
    bool turned = l->family->conv1d && param->role == TRI_ROLE_MATRIX;
    int64_t each = rows * cols / (int64_t)(l->start[i + 1] - l->start[i]);
    for (int64_t s = 0; s < num; s++) {
        tri_stretch run = tri_region_stretch(region, s);
        if (turned)
            read_turned(at, rows, cols, run, to + run.local);
        else
            read_run(at, each, run, to + run.local);
    }
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

/* Room for where each parameter lies. */
static tr_status make_pieces(loader *l, const char *dir, tr_error *err)
{
    size_t num = 0;
    l->start = calloc(l->params->count + 1, sizeof *l->start);
    for (size_t i = 0; l->start && i < l->params->count; i++) {
        int64_t experts = tri_hf_num_experts(&l->params->items[i]);
        num += experts > 0 ? (size_t)experts : 1;
        l->start[i + 1] = num;
    }
    l->pieces = calloc(num + 1, sizeof *l->pieces);
    return l->start && l->pieces ? TR_OK
                                 : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
}

tr_status tri_hf_open(const char *dir, const tri_param_table *params, bool *fresh,
                      tri_hf_source **source, tr_error *err)
{
    loader *l = calloc(1, sizeof *l);
    *source = NULL;
    if (!l)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    *l = (loader){.params = params, .fresh = fresh, .err = err};
    tr_status status = make_pieces(l, dir, err);
    if (status == TR_OK)
        status = read_family(dir, l, err);
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
    free(source->pieces);
    free(source->start);
    free(source);
}
