#include "ckpt/safetensors.h"
#include "base/fs.h"
#include "base/json.h"
#include "ckpt/safetensors_format.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are mapped as they lie in the file, which is little-endian"
#endif

struct tri_safetensors {
    char *label;         /* the path, for messages */
    tri_mapping mapping; /* empty when the caller owns the bytes */
    json_t *root;        /* owns the names and the metadata */
    tri_safetensor *tensor;
    const tri_safetensor **by_name;
    size_t num;
};

/* What the functions below share while they look at one file. */
typedef struct header_reader {
    tri_safetensors *file;
    const unsigned char *data; /* the first byte after the header */
    int64_t data_bytes;
    tr_error *err;
} header_reader;

static tr_status read_shape(const header_reader *r, tri_safetensor *t, const json_t *shape)
{
    if (!json_is_array(shape))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has no \"shape\" list: the header is damaged",
                        r->file->label, t->name);
    if (json_array_size(shape) > TRI_SAFETENSORS_MAX_DIMS)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has %zu dims; at most %d are supported",
                        r->file->label, t->name, json_array_size(shape), TRI_SAFETENSORS_MAX_DIMS);
    t->num_dims = (int)json_array_size(shape);
    for (int d = 0; d < t->num_dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: tensor \"%.200s\": size %d of its shape is not a whole number "
                            ">= 0: the header is damaged",
                            r->file->label, t->name, d);
        t->dim[d] = json_integer_value(size);
    }
    return TR_OK;
}

static tr_status read_offsets(const header_reader *r, tri_safetensor *t, const json_t *offsets)
{
    const json_t *begin_json = json_array_get(offsets, 0), *end_json = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin_json) || !json_is_integer(end_json))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has no \"data_offsets\" of two whole numbers: the "
                        "header is damaged",
                        r->file->label, t->name);
    int64_t begin = json_integer_value(begin_json), end = json_integer_value(end_json);
    if (begin < 0 || end < begin)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" begins at byte %lld and ends at byte %lld: the "
                        "header is damaged",
                        r->file->label, t->name, (long long)begin, (long long)end);
    if (end > r->data_bytes)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" ends at byte %lld but the file holds %lld bytes of "
                        "data: it is truncated",
                        r->file->label, t->name, (long long)end, (long long)r->data_bytes);
    t->data = r->data + begin;
    t->num_bytes = (size_t)(end - begin);
    return TR_OK;
}

static tr_status read_tensor(const header_reader *r, tri_safetensor *t, const char *name,
                             const json_t *entry)
{
    t->name = name;
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has no \"dtype\": the header is damaged",
                        r->file->label, name);
    const tri_safetensors_dtype *type = tri_safetensors_dtype_named(text);
    if (!type)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has the unknown dtype \"%.40s\"; convert it to "
                        "F32, BF16 or F16",
                        r->file->label, name, text);
    t->dtype_text = type->text;
    t->dtype = type->dtype;
    TRI_TRY(read_shape(r, t, json_object_get(entry, "shape")));
    TRI_TRY(read_offsets(r, t, json_object_get(entry, "data_offsets")));
    int64_t bytes;
    if (!tri_safetensors_bytes(type, t->num_dims, t->dim, &bytes))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has an impossible shape (the product of its sizes "
                        "is out of range): the header is damaged",
                        r->file->label, name);
    if ((uint64_t)bytes != t->num_bytes)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has %zu bytes of data but its dtype %s and shape "
                        "need %lld: the header is damaged",
                        r->file->label, name, t->num_bytes, type->text, (long long)bytes);
    return TR_OK;
}

static tr_status check_metadata(const header_reader *r, const json_t *metadata)
{
    if (!json_is_object(metadata))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: __metadata__ is not a map of strings",
                        r->file->label);
    for (void *i = json_object_iter((json_t *)(uintptr_t)metadata); i;
         i = json_object_iter_next((json_t *)(uintptr_t)metadata, i))
        if (!json_is_string(json_object_iter_value(i)))
            return tri_fail(r->err, TR_ERROR_INPUT, "%s: __metadata__ key \"%.200s\" is no string",
                            r->file->label, json_object_iter_key(i));
    return TR_OK;
}

static int by_position(const void *a, const void *b)
{
    const tri_safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->num_bytes != y->num_bytes) /* empty tensors stand before the one that begins there */
        return x->num_bytes < y->num_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tri_safetensor *const *)a)->name,
                  (*(const tri_safetensor *const *)b)->name);
}

/* Tensors are sorted by position: each must begin where the one before ended. */
static tr_status check_cover(const header_reader *r)
{
    const unsigned char *end = r->data;
    for (size_t i = 0; i < r->file->num; i++) {
        const tri_safetensor *t = &r->file->tensor[i];
        const unsigned char *begin = t->data;
        if (begin < end)
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: tensors \"%.200s\" and \"%.200s\" overlap at byte %lld: the "
                            "header is damaged",
                            r->file->label, t[-1].name, t->name, (long long)(begin - r->data));
        if (begin > end)
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: %lld bytes before tensor \"%.200s\" belong to no tensor: the "
                            "header is damaged",
                            r->file->label, (long long)(begin - end), t->name);
        end = begin + t->num_bytes;
    }
    int64_t rest = r->data_bytes - (end - r->data);
    if (rest > 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: the last %lld bytes belong to no tensor: the header is damaged or "
                        "something was appended",
                        r->file->label, (long long)rest);
    return TR_OK;
}

static tr_status read_tensors(const header_reader *r)
{
    tri_safetensors *file = r->file;
    size_t capacity = json_object_size(file->root);
    file->tensor = calloc(capacity + 1, sizeof *file->tensor);
    file->by_name = calloc(capacity + 1, sizeof *file->by_name);
    if (!file->tensor || !file->by_name)
        return tri_fail(r->err, TR_ERROR_RUNTIME, "%s: out of memory", file->label);
    for (void *i = json_object_iter(file->root); i; i = json_object_iter_next(file->root, i)) {
        const char *name = json_object_iter_key(i);
        if (strcmp(name, TRI_SAFETENSORS_METADATA) == 0)
            TRI_TRY(check_metadata(r, json_object_iter_value(i)));
        else
            TRI_TRY(read_tensor(r, &file->tensor[file->num++], name, json_object_iter_value(i)));
    }
    qsort(file->tensor, file->num, sizeof *file->tensor, by_position);
    for (size_t i = 0; i < file->num; i++)
        file->by_name[i] = &file->tensor[i];
    qsort(file->by_name, file->num, sizeof *file->by_name, by_name);
    return check_cover(r);
}

static tr_status read_header(tri_safetensors *file, const unsigned char *bytes, size_t num_bytes,
                             tr_error *err)
{
    if (num_bytes < TRI_SAFETENSORS_LENGTH_BYTES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: holds only %zu bytes: it is truncated or no safetensors file",
                        file->label, num_bytes);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    const unsigned char *header = bytes + TRI_SAFETENSORS_LENGTH_BYTES;
    size_t rest = num_bytes - TRI_SAFETENSORS_LENGTH_BYTES;
    if (length > TRI_SAFETENSORS_MAX_HEADER)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its header would be %llu bytes long, more than the %d allowed: it is "
                        "no safetensors file, or it is damaged",
                        file->label, (unsigned long long)length, TRI_SAFETENSORS_MAX_HEADER);
    if (length > rest)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its header is %llu bytes long but only %zu are there: it is truncated "
                        "or no safetensors file",
                        file->label, (unsigned long long)length, rest);
    json_error_t why = {.text = "it does not begin with {"};
    tr_status status = TR_ERROR_INPUT;
    if (length > 0 && header[0] == '{')
        status = tri_json_load(file->label, (const char *)header, (size_t)length,
                               JSON_REJECT_DUPLICATES, &file->root, &why, err);
    if (status == TR_ERROR_RUNTIME)
        return status;
    if (status != TR_OK)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its header is not valid JSON: %s: it is damaged or no safetensors "
                        "file",
                        file->label, why.text);
    header_reader r = {.file = file,
                       .data = header + length,
                       .data_bytes = (int64_t)(rest - (size_t)length),
                       .err = err};
    return read_tensors(&r);
}

tr_status tri_safetensors_parse(const void *data, size_t num_bytes, const char *label,
                                tri_safetensors **out, tr_error *err)
{
    *out = NULL;
    tri_safetensors *file = calloc(1, sizeof *file);
    if (file)
        file->label = strdup(label);
    if (!file || !file->label) {
        free(file);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", label);
    }
    tr_status status = read_header(file, data, num_bytes, err);
    if (status != TR_OK) {
        tri_safetensors_close(file);
        return tri_advise(err, status, "copy or download it again, if it is the right file");
    }
    *out = file;
    return TR_OK;
}

tr_status tri_safetensors_open(const char *path, tri_safetensors **out, tr_error *err)
{
    *out = NULL;
    tri_mapping mapping;
    TRI_TRY(tri_mapping_open(&mapping, path, err));
    tr_status status = tri_safetensors_parse(mapping.data, mapping.num_bytes, path, out, err);
    if (status == TR_OK)
        (*out)->mapping = mapping;
    else
        tri_mapping_close(&mapping);
    return status;
}

void tri_safetensors_close(tri_safetensors *file)
{
    if (!file)
        return;
    json_decref(file->root);
    tri_mapping_close(&file->mapping);
    free(file->tensor);
    free(file->by_name);
    free(file->label);
    free(file);
}

size_t tri_safetensors_num(const tri_safetensors *file)
{
    return file->num;
}

const tri_safetensor *tri_safetensors_at(const tri_safetensors *file, size_t i)
{
    return &file->tensor[i];
}

const tri_safetensor *tri_safetensors_find(const tri_safetensors *file, const char *name)
{
    const tri_safetensor wanted = {.name = name}, *key = &wanted;
    const tri_safetensor **found =
        bsearch(&key, file->by_name, file->num, sizeof *file->by_name, by_name);
    return found ? *found : NULL;
}

tr_status tri_safetensors_get(const tri_safetensors *file, const char *name,
                              const tri_safetensor **tensor, tr_error *err)
{
    *tensor = NULL;
    const tri_safetensor *t = tri_safetensors_find(file, name);
    if (!t)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: holds no tensor \"%.200s\" (of its %zu the first is \"%.200s\")",
                        file->label, name, file->num, file->num ? file->tensor[0].name : "");
    if (t->dtype == TRI_NUM_DTYPES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" is of dtype %s, which cannot be loaded; convert it "
                        "to F32, BF16 or F16",
                        file->label, name, t->dtype_text);
    *tensor = t;
    return TR_OK;
}

const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(file->root, TRI_SAFETENSORS_METADATA), key));
}
