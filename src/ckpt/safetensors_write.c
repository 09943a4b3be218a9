/* Files of tensors, written; safetensors.c reads them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "ckpt/safetensors_format.h"

typedef struct file_writer {
    const char *path;
    const tri_safetensors_item *item;
    size_t num_items;
    size_t *order;  /* item numbers as they go into the file */
    int64_t *bytes; /* of item i */
    json_t *root;
    tr_error *err;
} file_writer;

static tr_status check_item(const file_writer *w, size_t i)
{
    const tri_safetensors_item *item = &w->item[i];
    const tri_safetensors_dtype *type = tri_safetensors_dtype_of(item->dtype);
    bool good = type && item->num_dims >= 0 && item->num_dims <= TRI_SAFETENSORS_MAX_DIMS;
    for (int d = 0; good && d < item->num_dims; d++)
        good = item->dim[d] >= 0;
    good = good && tri_safetensors_bytes(type, item->num_dims, item->dim, &w->bytes[i]);
    if (!good)
        return tri_fail(w->err, TR_ERROR_INTERNAL,
                        "%s: tensor \"%.200s\" cannot be written: its dtype, shape or data is "
                        "not valid",
                        w->path, item->name);
    if (strcmp(item->name, TRI_SAFETENSORS_METADATA) == 0 || json_object_get(w->root, item->name))
        return tri_fail(w->err, TR_ERROR_INTERNAL,
                        "%s: tensor \"%.200s\" cannot be written: the name is taken", w->path,
                        item->name);
    return TR_OK;
}

static tr_status add_item(const file_writer *w, size_t i, int64_t *offset)
{
    const tri_safetensors_item *item = &w->item[i];
    TRI_TRY(check_item(w, i));
    tri_json_begin();
    json_t *shape = json_array();
    int failed = !shape;
    for (int d = 0; d < item->num_dims; d++)
        failed |= json_array_append_new(shape, json_integer(item->dim[d]));
    int64_t end;
    failed |= __builtin_add_overflow(*offset, w->bytes[i], &end);
    json_t *entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", tri_safetensors_dtype_of(item->dtype)->text,
                  "shape", shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    failed |= json_object_set_new(w->root, item->name, entry);
    if (failed)
        return tri_fail(w->err, TR_ERROR_RUNTIME, "%s: tensor \"%.200s\" cannot be written: %s",
                        w->path, item->name,
                        tri_json_built() ? "its name is not UTF-8" : "no memory");
    *offset = end;
    return TR_OK;
}

static tr_status build_header(const file_writer *w, const tri_safetensors_meta *meta,
                              size_t num_meta)
{
    tri_json_begin();
    json_t *map = num_meta ? json_object() : NULL;
    int failed = 0;
    for (size_t i = 0; i < num_meta; i++)
        failed |= json_object_set_new(map, meta[i].key, json_string(meta[i].value));
    if (num_meta)
        failed |= json_object_set_new(w->root, TRI_SAFETENSORS_METADATA, map);
    if (failed)
        return tri_fail(w->err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", w->path,
                        tri_json_built() ? "its metadata are not UTF-8" : "no memory");
    /* Widest first: every tensor then begins at a multiple of its own element size. */
    size_t placed = 0;
    for (size_t width = TRI_SAFETENSORS_ALIGNMENT; width >= 1; width /= 2)
        for (size_t i = 0; i < w->num_items; i++)
            if (w->item[i].dtype < TRI_NUM_DTYPES && tri_dtype_bytes(w->item[i].dtype) == width)
                w->order[placed++] = i;
    if (placed != w->num_items)
        return tri_fail(w->err, TR_ERROR_INTERNAL, "%s: a tensor has an unknown dtype", w->path);
    int64_t offset = 0;
    for (size_t i = 0; i < w->num_items; i++)
        TRI_TRY(add_item(w, w->order[i], &offset));
    return TR_OK;
}

/* The header as it stands in the file: its length, the text, and blanks up to the data. */
static tr_status dump_header(const file_writer *w, char **bytes, size_t *num_bytes)
{
    tri_json_begin();
    char *text = tri_json_dump(w->root, JSON_COMPACT);
    size_t length = text ? strlen(text) : 0;
    uint64_t padded = (length + TRI_SAFETENSORS_ALIGNMENT - 1) / TRI_SAFETENSORS_ALIGNMENT *
                      TRI_SAFETENSORS_ALIGNMENT;
    *num_bytes = sizeof padded + padded;
    *bytes = text ? malloc(*num_bytes) : NULL;
    tr_status status = TR_OK;
    if (!*bytes) {
        status = tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->path);
    } else if (padded > TRI_SAFETENSORS_MAX_HEADER) {
        status = tri_fail(w->err, TR_ERROR_INPUT, "%s: too many tensors for one file", w->path);
        free(*bytes);
        *bytes = NULL;
    } else {
        memset(*bytes, ' ', *num_bytes);
        memcpy(*bytes, &padded, sizeof padded);
        memcpy(*bytes + sizeof padded, text, length);
    }
    free(text);
    return status;
}

/* Every step closes and removes the temporary itself when it fails. */
static tr_status write_file(const file_writer *w, const char *header, size_t header_bytes)
{
    tri_atomic_file file;
    TRI_TRY(tri_atomic_begin(&file, w->path, w->err));
    TRI_TRY(tri_atomic_write(&file, header, header_bytes, w->err));
    for (size_t i = 0; i < w->num_items; i++) {
        size_t which = w->order[i];
        TRI_TRY(tri_atomic_write(&file, w->item[which].data, (size_t)w->bytes[which], w->err));
    }
    return tri_atomic_commit(&file, w->err);
}

/* Header, and then the file when it is asked for. */
static tr_status make_file(file_writer *w, const tri_safetensors_meta *meta, size_t num_meta,
                           char **header, size_t *header_bytes, bool writes)
{
    w->order = calloc(w->num_items + 1, sizeof *w->order);
    w->bytes = calloc(w->num_items + 1, sizeof *w->bytes);
    w->root = json_object();
    *header = NULL;
    tr_status status = w->order && w->bytes && w->root
                           ? build_header(w, meta, num_meta)
                           : tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->path);
    for (size_t i = 0; i < w->num_items && status == TR_OK && writes; i++)
        if (w->bytes[i] > 0 && !w->item[i].data)
            status = tri_fail(w->err, TR_ERROR_INTERNAL, "%s: tensor \"%.200s\" has no data",
                              w->path, w->item[i].name);
    if (status == TR_OK)
        status = dump_header(w, header, header_bytes);
    if (status == TR_OK && writes)
        status = write_file(w, *header, *header_bytes);
    json_decref(w->root);
    free(w->order);
    free(w->bytes);
    return status;
}

tr_status tri_safetensors_write(const char *path, const tri_safetensors_item *item,
                                size_t num_items, const tri_safetensors_meta *meta, size_t num_meta,
                                tr_error *err)
{
    file_writer w = {.path = path, .item = item, .num_items = num_items, .err = err};
    char *header;
    size_t header_bytes;
    tr_status status = make_file(&w, meta, num_meta, &header, &header_bytes, true);
    free(header);
    return status;
}

tr_status tri_safetensors_header(const char *label, const tri_safetensors_item *item,
                                 size_t num_items, const tri_safetensors_meta *meta,
                                 size_t num_meta, char **header, size_t *num_bytes, tr_error *err)
{
    file_writer w = {.path = label, .item = item, .num_items = num_items, .err = err};
    return make_file(&w, meta, num_meta, header, num_bytes, false);
}
