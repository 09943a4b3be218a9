/* trireme ckpt --json: checkpoints, and files of weights. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "ckpt/ckpt_best.h"
#include "ckpt/hf/hf.h"
#include "ckpt/safetensors.h"
#include "cli/doc/docs.h"

size_t tri_ckpt_num_writers(const tri_manifest *m)
{
    size_t num = 0;
    for (size_t i = 0; i < m->num_files; i++)
        num += strncmp(m->files[i].name, "rank-", 5) == 0;
    return num;
}

double tri_ckpt_num_bytes(const tri_manifest *m)
{
    double bytes = 0;
    for (size_t i = 0; i < m->num_files; i++)
        bytes += (double)m->files[i].bytes;
    return bytes;
}

/* Reading another text begins to count anew what there was no memory for: before that, whether all
 * of the document is there so far. */
static tr_status is_whole(tr_error *err)
{
    return tri_json_built() ? TR_OK
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for what --json prints");
}

/* Returns the elements. */
static int64_t put_shape(json_t *item, const int64_t *dim, int num_dims)
{
    json_t *shape = tri_doc_list(item, "shape");
    int64_t elements = 1;
    for (int d = 0; d < num_dims; d++) {
        json_array_append_new(shape, json_integer(dim[d]));
        elements *= dim[d];
    }
    tri_doc_count(item, "elements", elements);
    return elements;
}

void tri_doc_checkpoint(json_t *doc, const tri_checkpoint *ckpt)
{
    const tri_manifest *m = &ckpt->manifest;
    int64_t parameters = 0;
    tri_doc_text(doc, "path", ckpt->path);
    tri_doc_count(doc, "step", m->step);
    json_t *numbers = tri_doc_object(doc, "numbers"), *files = tri_doc_list(doc, "files");
    for (size_t i = 0; i < m->num_numbers; i++)
        tri_doc_number(numbers, m->numbers[i].name, m->numbers[i].value);
    for (size_t i = 0; i < m->num_files; i++) {
        json_t *item = tri_doc_item(files);
        tri_doc_text(item, "name", m->files[i].name);
        tri_doc_count(item, "bytes", (int64_t)m->files[i].bytes);
    }
    json_t *tensors = tri_doc_list(doc, "tensors");
    for (size_t i = 0; i < m->num_tensors; i++) {
        const tri_ckpt_tensor *t = &m->tensors[i];
        json_t *item = tri_doc_item(tensors);
        tri_doc_text(item, "name", t->name);
        tri_doc_text(item, "kind", tri_ckpt_kind_name(t->kind));
        int64_t elements = put_shape(item, t->dim, t->num_dims);
        tri_doc_count(item, "shards", (int64_t)t->num_shards);
        parameters += t->kind == TRI_CKPT_WEIGHT ? elements : 0;
    }
    tri_doc_count(doc, "num_tensors", (int64_t)m->num_tensors);
    tri_doc_count(doc, "num_shards", (int64_t)m->num_shards);
    tri_doc_count(doc, "parameters", parameters);
    tri_doc_number(doc, "bytes", tri_ckpt_num_bytes(m));
    tri_doc_count(doc, "num_ranks", (int64_t)tri_ckpt_num_writers(m));
}

static tr_status put_row(json_t *list, const char *dir, int64_t step, int64_t best, tr_error *why)
{
    char *path = tri_ckpt_path(dir, step);
    tri_checkpoint ckpt;
    tr_error err = {0};
    if (!path)
        return tri_fail(why, TR_ERROR_RUNTIME, "no memory for a path");
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "path", path);
    tri_doc_count(item, "step", step);
    tr_status whole = is_whole(why), status = tri_checkpoint_open(&ckpt, path, &err);
    tri_doc_flag(item, "damaged", status == TR_ERROR_DAMAGED);
    tri_doc_text(item, "error", status == TR_OK ? NULL : err.message);
    if (status == TR_OK) {
        tri_doc_number(item, "bytes", tri_ckpt_num_bytes(&ckpt.manifest));
        tri_doc_count(item, "num_ranks", (int64_t)tri_ckpt_num_writers(&ckpt.manifest));
        tri_doc_number(item, "eval_loss",
                       tri_manifest_number(&ckpt.manifest, TRI_CKPT_EVAL_LOSS, (double)NAN));
        tri_doc_flag(item, "best", step == best);
        tri_checkpoint_close(&ckpt);
    }
    free(path);
    return whole;
}

tr_status tri_doc_checkpoints(json_t *doc, const char *dir, tr_error *err)
{
    json_t *list = tri_doc_list(doc, "checkpoints");
    tri_ckpt_steps steps;
    int64_t best = -1;
    double loss;
    TRI_TRY(is_whole(err));
    if (tri_ckpt_steps_read(&steps, dir, NULL) != TR_OK)
        return TR_OK;
    if (tri_ckpt_best(dir, &best, &loss, NULL) != TR_OK)
        best = -1;
    tr_status status = TR_OK;
    for (size_t i = steps.num; i-- > 0 && status == TR_OK;)
        status = put_row(list, dir, steps.step[i], best, err);
    tri_ckpt_steps_free(&steps);
    return status;
}

tr_status tri_doc_run_checkpoints(json_t *doc, const char *run_dir, tr_error *err)
{
    char *dir = tri_path_join(run_dir, "ckpt");
    tr_status status = dir ? tri_doc_checkpoints(doc, dir, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    free(dir);
    return status;
}

/* The header once more, for what the reader hands out by key only; it has been checked by then. */
static tr_status put_metadata(json_t *item, const char *path, tr_error *err)
{
    tri_mapping mapping;
    uint64_t length;
    json_t *root, *object = tri_doc_object(item, "metadata");
    TRI_TRY(is_whole(err));
    TRI_TRY(tri_mapping_open(&mapping, path, err));
    memcpy(&length, mapping.data, sizeof length);
    tr_status status = tri_json_load(path, (const char *)mapping.data + sizeof length, length, 0,
                                     &root, NULL, err);
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "__metadata__"), key, value)
        tri_doc_text(object, key, json_string_value(value));
    json_decref(root);
    tri_mapping_close(&mapping);
    return status;
}

static tr_status put_file(json_t *list, const char *path, json_t *doc, tr_error *err)
{
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file, err));
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "path", path);
    tr_status status = put_metadata(item, path, err);
    json_t *tensors = tri_doc_list(item, "tensors");
    int64_t elements = json_integer_value(json_object_get(doc, "elements"));
    int64_t bytes = json_integer_value(json_object_get(doc, "bytes"));
    int64_t num = json_integer_value(json_object_get(doc, "num_tensors"));
    for (size_t i = 0; i < tri_safetensors_num(file); i++) {
        const tri_safetensor *t = tri_safetensors_at(file, i);
        json_t *tensor = tri_doc_item(tensors);
        tri_doc_text(tensor, "name", t->name);
        tri_doc_text(tensor, "dtype", t->dtype_text);
        elements += put_shape(tensor, t->dim, t->num_dims);
        tri_doc_count(tensor, "bytes", (int64_t)t->num_bytes);
        bytes += (int64_t)t->num_bytes;
        num++;
    }
    tri_doc_count(doc, "num_tensors", num);
    tri_doc_count(doc, "elements", elements);
    tri_doc_count(doc, "bytes", bytes);
    tri_safetensors_close(file);
    return status;
}

static void put_hf(json_t *doc, const char *dir)
{
    tri_hf_config config;
    tr_error why = {0};
    bool known = tri_hf_config_read(dir, &config, &why) == TR_OK;
    tri_doc_text(doc, "model_type", known ? config.model_type : NULL);
    tri_doc_text(doc, "error", known ? NULL : why.message);
    json_t *settings = tri_doc_object(doc, "settings");
    for (int i = 0; known && i < config.num_settings; i++)
        tri_doc_text(settings, config.setting[i].name, config.setting[i].value);
}

tr_status tri_doc_tensors(json_t *doc, const char *path, bool is_hf, tr_error *err)
{
    tri_doc_count(doc, "num_tensors", 0);
    tri_doc_count(doc, "elements", 0);
    tri_doc_count(doc, "bytes", 0);
    TRI_TRY(is_whole(err));
    if (is_hf)
        put_hf(doc, path);
    json_t *files = tri_doc_list(doc, "files");
    if (!is_hf)
        return put_file(files, path, doc, err);
    tri_hf_shards shards;
    TRI_TRY(tri_hf_shards_list(path, &shards, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < shards.num; i++)
        status = put_file(files, shards.path[i], doc, err);
    tri_hf_shards_free(&shards);
    return status;
}

void tri_doc_difference(json_t *list, const tri_difference *d)
{
    static const char *const kinds[] = {[TRI_DIFFERENCE_NUMBER] = "number",
                                        [TRI_DIFFERENCE_MISSING] = "missing",
                                        [TRI_DIFFERENCE_SHAPE] = "shape",
                                        [TRI_DIFFERENCE_ELEMENTS] = "elements"};
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "name", d->name);
    tri_doc_text(item, "kind", kinds[d->kind]);
    if (d->kind == TRI_DIFFERENCE_NUMBER) {
        tri_doc_number(item, "a", d->a);
        tri_doc_number(item, "b", d->b);
    } else if (d->kind == TRI_DIFFERENCE_MISSING) {
        tri_doc_text(item, "only_in", d->a != 0 ? "a" : "b");
    } else if (d->kind == TRI_DIFFERENCE_ELEMENTS) {
        tri_doc_count(item, "different", d->count);
        tri_doc_count(item, "elements", d->of);
        tri_doc_number(item, "largest_difference", d->largest);
        tri_doc_count(item, "first_element", d->first);
        tri_doc_number(item, "first_a", (double)d->first_a);
        tri_doc_number(item, "first_b", (double)d->first_b);
    }
}
