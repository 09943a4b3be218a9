/* Reading manifest.json, which may be damaged or lie. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "base/json.h"
#include "ckpt/manifest.h"
#include "ckpt/manifest_text.h"

enum { MOST_BOXES = 4096, MOST_NAME = 200 };
/* Elements of a tensor, bytes of a file: far beyond any, and sums of a few do not overflow. */
#define MOST_COUNT ((int64_t)1 << 53)

typedef struct parser {
    const char *label;
    tri_manifest *m;
    tr_error *err;
} parser;

/* What stands there is what was written, by its checksum, so this is no damage. */
static tr_status wrong(const parser *p, const char *what, const char *where)
{
    return tri_fail(p->err, TR_ERROR_INPUT, "%s: %s%s%.*s; the manifest was not written by Trireme",
                    p->label, what, where[0] ? " in " : "", MOST_NAME, where);
}

static tr_status damaged(const parser *p, const char *what)
{
    return tri_fail(p->err, TR_ERROR_DAMAGED, "%s: %s; the manifest is damaged", p->label, what);
}

static tr_status no_memory(const parser *p)
{
    return tri_fail(p->err, TR_ERROR_RUNTIME, "%s: no memory for the manifest", p->label);
}

/* A whole number in [0, MOST_COUNT]. */
static bool read_count(const json_t *object, const char *key, int64_t *value)
{
    const json_t *number = json_object_get(object, key);
    *value = json_integer_value(number);
    return json_is_integer(number) && *value >= 0 && *value <= MOST_COUNT;
}

static bool read_hex(const json_t *object, const char *key, uint64_t *value)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *value = strtoull(text, NULL, 16);
    return true;
}

/* Dims whose product is at most MOST_COUNT; returns their number or -1. */
static int read_dims(const json_t *list, int64_t dim[TRI_REGION_MAX_DIMS])
{
    if (!json_is_array(list) || json_array_size(list) > TRI_REGION_MAX_DIMS)
        return -1;
    int num = (int)json_array_size(list);
    int64_t product = 1;
    for (int d = 0; d < num; d++) {
        const json_t *size = json_array_get(list, (size_t)d);
        dim[d] = json_integer_value(size);
        if (!json_is_integer(size) || dim[d] < 0 || dim[d] > MOST_COUNT)
            return -1;
        if (__builtin_mul_overflow(product, dim[d] > 0 ? dim[d] : 1, &product) ||
            product > MOST_COUNT)
            return -1;
    }
    return num;
}

static tr_status parse_numbers(const parser *p, json_t *numbers)
{
    const char *name;
    json_t *value;
    if (!json_is_object(numbers))
        return wrong(p, "\"numbers\" is missing or no object", "");
    json_object_foreach(numbers, name, value)
    {
        if (!json_is_number(value) || !isfinite(json_number_value(value)))
            return wrong(p, "a value that is no number", name);
        if (!tri_manifest_add_number(p->m, name, json_number_value(value)))
            return no_memory(p);
    }
    return TR_OK;
}

/* A name that stays within the directory. */
static bool is_plain(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) <= MOST_NAME;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names in order; returns one that comes twice, or NULL. false: no memory. */
static bool find_double(const char **names, size_t num, const char **twice)
{
    *twice = NULL;
    if (!names)
        return false;
    qsort(names, num, sizeof *names, compare_names);
    for (size_t i = 1; i < num; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            *twice = names[i];
    free(names);
    return true;
}

static tr_status parse_files(const parser *p, const json_t *files)
{
    if (!json_is_array(files))
        return wrong(p, "\"files\" is missing or no list", "");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *entry = json_array_get(files, i);
        tri_ckpt_file file = {.name = json_string_value(json_object_get(entry, "name"))};
        if (!is_plain(file.name))
            return wrong(p, "a file name that is missing or leads out of the directory",
                         file.name ? file.name : "");
        if (!read_count(entry, "bytes", &file.bytes) ||
            !read_count(entry, "checked_bytes", &file.checked_bytes) ||
            !read_hex(entry, "checksum", &file.checksum) || file.checked_bytes > file.bytes)
            return wrong(p, "a size or checksum that cannot be", file.name);
        if (!tri_manifest_add_file(p->m, &file))
            return no_memory(p);
    }
    const char **names = calloc(p->m->num_files + 1, sizeof *names), *twice;
    for (size_t i = 0; names && i < p->m->num_files; i++)
        names[i] = p->m->files[i].name;
    if (!find_double(names, p->m->num_files, &twice))
        return no_memory(p);
    return twice ? wrong(p, "the same file twice", twice) : TR_OK;
}

/* begin and size of the box; both are left out for the whole tensor. */
static bool read_box(const json_t *entry, tri_region *region)
{
    const json_t *begin = json_object_get(entry, "begin"), *size = json_object_get(entry, "size");
    if (!begin && !size)
        return true;
    if (read_dims(begin, region->begin) != region->num_dims ||
        read_dims(size, region->size) != region->num_dims)
        return false;
    for (int d = 0; d < region->num_dims; d++)
        if (region->size[d] < 1 || region->begin[d] + region->size[d] > region->dim[d])
            return false;
    return true;
}

static tr_status parse_shard(const parser *p, const json_t *entry, const tri_ckpt_tensor *tensor)
{
    const char *name = tensor->name;
    tri_ckpt_shard shard = {.region = tri_region_whole(tensor->num_dims, tensor->dim)};
    tri_region *region = &shard.region;
    int64_t file;
    if (!read_count(entry, "file", &file) || file >= (int64_t)p->m->num_files)
        return wrong(p, "a shard in a file that is not listed", name);
    shard.file = (uint32_t)file;
    if (!read_box(entry, region))
        return wrong(p, "a shard that is not within its tensor", name);
    int64_t box = tri_region_box_count(region);
    region->count = box;
    const json_t *first = json_object_get(entry, "first"), *count = json_object_get(entry, "count");
    if ((first || count) && (!read_count(entry, "first", &region->first) ||
                             !read_count(entry, "count", &region->count) || region->count < 1 ||
                             region->first + region->count > box))
        return wrong(p, "a shard that is not within its box", name);
    const tri_ckpt_file *in = &p->m->files[shard.file];
    if (!read_count(entry, "offset", &shard.offset) || shard.offset % 4 != 0 ||
        shard.offset < in->checked_bytes || region->count > MOST_COUNT / 8 ||
        shard.offset + region->count * 4 > in->bytes)
        return wrong(p, "a shard that is not within its file", name);
    if (!read_hex(entry, "checksum", &shard.checksum))
        return wrong(p, "a shard without a checksum", name);
    return tri_manifest_add_shard(p->m, &shard) ? TR_OK : no_memory(p);
}

static tr_status parse_tensor(const parser *p, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *kind = json_string_value(json_object_get(entry, "kind"));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!name || !name[0])
        return wrong(p, "a tensor without a name", "");
    int k = 0;
    while (k < TRI_NUM_CKPT_KINDS && (!kind || strcmp(kind, tri_ckpt_kind_name(k)) != 0))
        k++;
    if (k == TRI_NUM_CKPT_KINDS)
        return wrong(p, "a kind that is neither weight nor moment", name);
    if (!dtype || strcmp(dtype, "F32") != 0)
        return wrong(p, "a dtype other than F32", name);
    int64_t dim[TRI_REGION_MAX_DIMS] = {0};
    int num_dims = read_dims(json_object_get(entry, "shape"), dim);
    if (num_dims < 0)
        return wrong(p, "a shape that cannot be", name);
    if (!tri_manifest_add_tensor(p->m, name, k, num_dims, dim))
        return no_memory(p);
    const json_t *shards = json_object_get(entry, "shards");
    if (!json_is_array(shards))
        return wrong(p, "no list of shards", name);
    for (size_t s = 0; s < json_array_size(shards); s++) {
        tri_ckpt_tensor tensor = p->m->tensors[p->m->num_tensors - 1];
        TRI_TRY(parse_shard(p, json_array_get(shards, s), &tensor));
    }
    return TR_OK;
}

static tr_status parse_tensors(const parser *p, const json_t *tensors)
{
    if (!json_is_array(tensors))
        return wrong(p, "\"tensors\" is missing or no list", "");
    for (size_t i = 0; i < json_array_size(tensors); i++)
        TRI_TRY(parse_tensor(p, json_array_get(tensors, i)));
    const char **names = calloc(p->m->num_tensors + 1, sizeof *names), *twice;
    for (size_t i = 0; names && i < p->m->num_tensors; i++)
        names[i] = p->m->tensors[i].name;
    if (!find_double(names, p->m->num_tensors, &twice))
        return no_memory(p);
    return twice ? wrong(p, "the same tensor twice", twice) : TR_OK;
}

/* ---- every element once ---- */

static int by_first(const void *left, const void *right)
{
    const tri_region *a = *(const tri_region *const *)left, *b = *(const tri_region *const *)right;
    for (int d = 0; d < a->num_dims; d++)
        if (a->begin[d] != b->begin[d])
            return a->begin[d] < b->begin[d] ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Regions in order of box, then of place. Each box must be filled, and no two may meet. */
static const char *tiling_fault(const tri_region **r, size_t num, const tri_ckpt_tensor *tensor)
{
    tri_region whole = tri_region_whole(tensor->num_dims, tensor->dim);
    const tri_region *boxes[MOST_BOXES];
    size_t num_boxes = 0;
    int64_t total = 0, next = 0;
    for (size_t i = 0; i < num; i++) {
        bool begins = i == 0 || !tri_region_same_box(r[i - 1], r[i]);
        if (begins && i > 0 && next != tri_region_box_count(r[i - 1]))
            return "elements that are in no shard";
        if (begins && num_boxes == MOST_BOXES)
            return "more boxes than can be";
        if (begins) {
            boxes[num_boxes++] = r[i];
            total += tri_region_box_count(r[i]);
            next = 0;
        }
        if (r[i]->first != next)
            return r[i]->first < next ? "elements that are in two shards"
                                      : "elements that are in no shard";
        next += r[i]->count;
    }
    if (num > 0 && next != tri_region_box_count(r[num - 1]))
        return "elements that are in no shard";
    for (size_t a = 0; a < num_boxes; a++)
        for (size_t b = a + 1; b < num_boxes; b++)
            if (tri_region_boxes_meet(boxes[a], boxes[b]))
                return "elements that are in two shards";
    return total == whole.count ? NULL : "elements that are in no shard";
}

tr_status tri_manifest_check_tiling(const tri_manifest *m, const char *label, tr_error *err)
{
    parser p = {.label = label, .err = err};
    const tri_region **regions = calloc(m->num_shards + 1, sizeof *regions);
    if (!regions)
        return no_memory(&p);
    tr_status status = TR_OK;
    for (size_t t = 0; t < m->num_tensors && status == TR_OK; t++) {
        const tri_ckpt_tensor *tensor = &m->tensors[t];
        for (size_t s = 0; s < tensor->num_shards; s++)
            regions[s] = &m->shards[tensor->first_shard + s].region;
        qsort(regions, tensor->num_shards, sizeof *regions, by_first);
        const char *fault = tiling_fault(regions, tensor->num_shards, tensor);
        if (fault)
            status = wrong(&p, fault, tensor->name);
    }
    free(regions);
    return status;
}

/* ---- the whole ---- */

static tr_status check_sum(const parser *p, const char *text, size_t num_bytes)
{
    uint64_t stored;
    char digits[17] = "";
    if (num_bytes < TRI_MANIFEST_DIGITS_AT + 16 ||
        memcmp(text, TRI_MANIFEST_OPENING, TRI_MANIFEST_DIGITS_AT) != 0)
        return damaged(p, "it does not begin with a checksum");
    memcpy(digits, text + TRI_MANIFEST_DIGITS_AT, 16);
    if (strspn(digits, "0123456789abcdef") != 16)
        return damaged(p, "its checksum is no number");
    stored = strtoull(digits, NULL, 16);
    tri_checksum hash;
    tri_checksum_init(&hash);
    tri_checksum_add(&hash, text, TRI_MANIFEST_DIGITS_AT);
    tri_checksum_add(&hash, "0000000000000000", 16);
    tri_checksum_add(&hash, text + TRI_MANIFEST_DIGITS_AT + 16,
                     num_bytes - TRI_MANIFEST_DIGITS_AT - 16);
    return tri_checksum_end(&hash) == stored ? TR_OK : damaged(p, "its checksum does not fit");
}

static tr_status check_version(const parser *p, const json_t *root)
{
    int64_t version;
    if (!read_count(root, "version", &version) || version < 1)
        return wrong(p, "no version", "");
    if (version <= TRI_CKPT_VERSION)
        return TR_OK;
    return tri_fail(p->err, TR_ERROR_RUNTIME,
                    "%s: was written by a newer Trireme: it is of version %" PRId64
                    " of the format, and this one reads up to %d; go on with the Trireme that "
                    "wrote it, or a newer one. The checkpoint stays as it is",
                    p->label, version, TRI_CKPT_VERSION);
}

/* A newer Trireme may write its checksum in another way; what it wrote is not damaged. */
static tr_status damaged_or_newer(const parser *p, const char *text, size_t num_bytes,
                                  tr_status damage)
{
    json_t *root;
    tr_error unused;
    if (tri_json_load(p->label, text, num_bytes, 0, &root, NULL, &unused) == TR_ERROR_RUNTIME) {
        if (p->err)
            *p->err = unused;
        return TR_ERROR_RUNTIME;
    }
    const char *format = json_string_value(json_object_get(root, "format"));
    int64_t version;
    bool newer = format && strcmp(format, TRI_MANIFEST_FORMAT) == 0 &&
                 read_count(root, "version", &version) && version > TRI_CKPT_VERSION;
    tr_status status = newer ? check_version(p, root) : damage;
    json_decref(root);
    return status;
}

static tr_status parse_root(const parser *p, json_t *root, bool partial)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, TRI_MANIFEST_FORMAT) != 0)
        return wrong(p, "\"format\" is not " TRI_MANIFEST_FORMAT, "");
    TRI_TRY(check_version(p, root));
    if (!read_count(root, "step", &p->m->step))
        return wrong(p, "no step", "");
    TRI_TRY(parse_numbers(p, json_object_get(root, "numbers")));
    TRI_TRY(parse_files(p, json_object_get(root, "files")));
    TRI_TRY(parse_tensors(p, json_object_get(root, "tensors")));
    return partial ? TR_OK : tri_manifest_check_tiling(p->m, p->label, p->err);
}

tr_status tri_manifest_parse(const char *text, size_t num_bytes, const char *label, bool partial,
                             tri_manifest *manifest, tr_error *err)
{
    tri_manifest_init(manifest);
    parser p = {.label = label, .m = manifest, .err = err};
    tr_status status = check_sum(&p, text, num_bytes);
    if (status != TR_OK) {
        status = damaged_or_newer(&p, text, num_bytes, status);
    } else {
        json_t *root;
        json_error_t where;
        status = tri_json_load(label, text, num_bytes, JSON_REJECT_DUPLICATES, &root, &where, err);
        if (status == TR_OK)
            status = parse_root(&p, root, partial);
        else if (status == TR_ERROR_INPUT) /* by its checksum it is what was written: no damage */
            status =
                tri_fail(err, TR_ERROR_RUNTIME,
                         "%s: line %d: %s; its checksum fits, so it was not written by Trireme",
                         label, where.line, where.text);
        json_decref(root);
    }
    if (status != TR_OK)
        tri_manifest_fini(manifest);
    return status;
}

tr_status tri_manifest_read(const char *path, bool partial, tri_manifest *manifest, tr_error *err)
{
    char *text;
    size_t num_bytes;
    *manifest = (tri_manifest){0};
    tr_status status = tri_file_read(path, &text, &num_bytes, err);
    if (status == TR_OK)
        status = tri_manifest_parse(text, num_bytes, path, partial, manifest, err);
    else if (err) /* whatever the reason, it is nothing that the bytes can be blamed for */
        err->status = TR_ERROR_RUNTIME;
    if (!text)
        status = TR_ERROR_RUNTIME;
    free(text);
    return status;
}
