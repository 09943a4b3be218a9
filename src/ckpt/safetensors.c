#include "ckpt/safetensors.h"
#include "base/fs.h"
#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are mapped as they lie in the file, which is little-endian"
#endif

enum {
    LENGTH_BYTES = 8,
    /* The limit of the format's own library. It keeps a damaged length from costing memory. */
    MAX_HEADER_BYTES = 100 * 1000 * 1000,
    ALIGNMENT = 8
};

static const char METADATA[] = "__metadata__";

/* Every type of the format. Those without a tri_dtype can be listed and skipped, not loaded: a
 * checkpoint with a stray F64 table is still a good checkpoint for the rest. */
typedef struct format_dtype {
    const char *text;
    int bits;
    tri_dtype dtype;
} format_dtype;

static const format_dtype FORMAT_DTYPES[] = {
    {"F32", 32, TRI_F32},
    {"BF16", 16, TRI_BF16},
    {"F16", 16, TRI_F16},
    {"I32", 32, TRI_I32},
    {"I64", 64, TRI_I64},
    {"U8", 8, TRI_U8},
    {"BOOL", 8, TRI_NUM_DTYPES},
    {"I8", 8, TRI_NUM_DTYPES},
    {"I16", 16, TRI_NUM_DTYPES},
    {"U16", 16, TRI_NUM_DTYPES},
    {"U32", 32, TRI_NUM_DTYPES},
    {"U64", 64, TRI_NUM_DTYPES},
    {"F64", 64, TRI_NUM_DTYPES},
    {"C64", 64, TRI_NUM_DTYPES},
    {"F8_E4M3", 8, TRI_NUM_DTYPES},
    {"F8_E5M2", 8, TRI_NUM_DTYPES},
    {"F8_E8M0", 8, TRI_NUM_DTYPES},
    {"F8_E4M3FNUZ", 8, TRI_NUM_DTYPES},
    {"F8_E5M2FNUZ", 8, TRI_NUM_DTYPES},
    {"F6_E2M3", 6, TRI_NUM_DTYPES},
    {"F6_E3M2", 6, TRI_NUM_DTYPES},
    {"F4", 4, TRI_NUM_DTYPES},
};
enum { NUM_FORMAT_DTYPES = sizeof FORMAT_DTYPES / sizeof FORMAT_DTYPES[0] };

static const format_dtype *dtype_by_text(const char *text)
{
    for (int i = 0; i < NUM_FORMAT_DTYPES; i++)
        if (strcmp(FORMAT_DTYPES[i].text, text) == 0)
            return &FORMAT_DTYPES[i];
    return NULL;
}

static const format_dtype *dtype_by_value(tri_dtype dtype)
{
    for (int i = 0; i < NUM_FORMAT_DTYPES && dtype != TRI_NUM_DTYPES; i++)
        if (FORMAT_DTYPES[i].dtype == dtype)
            return &FORMAT_DTYPES[i];
    return NULL;
}

/* The bytes of a tensor; false when the product overflows or is not a whole number of bytes. */
static bool tensor_bytes(const format_dtype *type, int num_dims, const int64_t *dim, int64_t *bytes)
{
    int64_t count = 1, bits;
    for (int d = 0; d < num_dims; d++)
        if (__builtin_mul_overflow(count, dim[d], &count))
            return false;
    if (__builtin_mul_overflow(count, (int64_t)type->bits, &bits) || bits % 8 != 0)
        return false;
    *bytes = bits / 8;
    return true;
}

/* ---- reading ---- */

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
    const format_dtype *type = dtype_by_text(text);
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
    if (!tensor_bytes(type, t->num_dims, t->dim, &bytes))
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
        if (strcmp(name, METADATA) == 0)
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
    if (num_bytes < LENGTH_BYTES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: holds only %zu bytes: it is truncated or no safetensors file",
                        file->label, num_bytes);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    const unsigned char *header = bytes + LENGTH_BYTES;
    size_t rest = num_bytes - LENGTH_BYTES;
    if (length > MAX_HEADER_BYTES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its header would be %llu bytes long, more than the %d allowed: it is "
                        "no safetensors file, or it is damaged",
                        file->label, (unsigned long long)length, MAX_HEADER_BYTES);
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
    return json_string_value(json_object_get(json_object_get(file->root, METADATA), key));
}

/* ---- writing ---- */

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
    const format_dtype *type = dtype_by_value(item->dtype);
    bool good = type && item->num_dims >= 0 && item->num_dims <= TRI_SAFETENSORS_MAX_DIMS;
    for (int d = 0; good && d < item->num_dims; d++)
        good = item->dim[d] >= 0;
    good = good && tensor_bytes(type, item->num_dims, item->dim, &w->bytes[i]);
    if (!good)
        return tri_fail(w->err, TR_ERROR_INTERNAL,
                        "%s: tensor \"%.200s\" cannot be written: its dtype, shape or data is "
                        "not valid",
                        w->path, item->name);
    if (strcmp(item->name, METADATA) == 0 || json_object_get(w->root, item->name))
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
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_by_value(item->dtype)->text,
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
        failed |= json_object_set_new(w->root, METADATA, map);
    if (failed)
        return tri_fail(w->err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", w->path,
                        tri_json_built() ? "its metadata are not UTF-8" : "no memory");
    /* Widest first: every tensor then begins at a multiple of its own element size. */
    size_t placed = 0;
    for (size_t width = ALIGNMENT; width >= 1; width /= 2)
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
    uint64_t padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *num_bytes = sizeof padded + padded;
    *bytes = text ? malloc(*num_bytes) : NULL;
    tr_status status = TR_OK;
    if (!*bytes) {
        status = tri_fail(w->err, TR_ERROR_RUNTIME, "%s: out of memory", w->path);
    } else if (padded > MAX_HEADER_BYTES) {
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
