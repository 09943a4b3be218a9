#include "ckpt/manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/json.h"
#include "ckpt/manifest_text.h"

static const char *const kind_names[TRI_NUM_CKPT_KINDS] = {"weight", "moment"};

const char *tri_ckpt_kind_name(tri_ckpt_kind kind)
{
    return kind_names[kind];
}

void tri_manifest_init(tri_manifest *manifest)
{
    *manifest = (tri_manifest){0};
    tri_arena_init(&manifest->arena);
}

void tri_manifest_fini(tri_manifest *manifest)
{
    free(manifest->numbers);
    free(manifest->files);
    free(manifest->tensors);
    free(manifest->shards);
    tri_arena_fini(&manifest->arena);
    *manifest = (tri_manifest){0};
}

static const char *keep(tri_manifest *manifest, const char *name)
{
    return tri_arena_printf(&manifest->arena, "%s", name);
}

bool tri_manifest_add_file(tri_manifest *m, const tri_ckpt_file *file)
{
    tri_ckpt_file *grown =
        tri_array_grow(m->files, m->num_files, &m->files_capacity, sizeof *grown);
    if (!grown)
        return false;
    m->files = grown;
    grown[m->num_files] = *file;
    grown[m->num_files++].name = keep(m, file->name);
    return !m->arena.failed;
}

bool tri_manifest_add_number(tri_manifest *m, const char *name, double value)
{
    tri_ckpt_number *grown =
        tri_array_grow(m->numbers, m->num_numbers, &m->numbers_capacity, sizeof *grown);
    if (!grown)
        return false;
    m->numbers = grown;
    grown[m->num_numbers++] = (tri_ckpt_number){keep(m, name), value};
    return !m->arena.failed;
}

bool tri_manifest_add_tensor(tri_manifest *m, const char *name, tri_ckpt_kind kind, int num_dims,
                             const int64_t *dim)
{
    tri_ckpt_tensor *grown =
        tri_array_grow(m->tensors, m->num_tensors, &m->tensors_capacity, sizeof *grown);
    if (!grown)
        return false;
    m->tensors = grown;
    tri_ckpt_tensor *tensor = &grown[m->num_tensors++];
    *tensor = (tri_ckpt_tensor){
        .name = keep(m, name), .kind = kind, .num_dims = num_dims, .first_shard = m->num_shards};
    for (int d = 0; d < num_dims; d++)
        tensor->dim[d] = dim[d];
    return !m->arena.failed;
}

bool tri_manifest_add_shard(tri_manifest *m, const tri_ckpt_shard *shard)
{
    tri_ckpt_shard *grown =
        tri_array_grow(m->shards, m->num_shards, &m->shards_capacity, sizeof *grown);
    if (!grown)
        return false;
    m->shards = grown;
    grown[m->num_shards++] = *shard;
    m->tensors[m->num_tensors - 1].num_shards++;
    return true;
}

const tri_ckpt_tensor *tri_manifest_find(const tri_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->num_tensors; i++)
        if (strcmp(manifest->tensors[i].name, name) == 0)
            return &manifest->tensors[i];
    return NULL;
}

double tri_manifest_number(const tri_manifest *manifest, const char *name, double otherwise)
{
    for (size_t i = 0; i < manifest->num_numbers; i++)
        if (strcmp(manifest->numbers[i].name, name) == 0)
            return manifest->numbers[i].value;
    return otherwise;
}

/* ---- merging ---- */

/* A shard with the tensor it is of, to bring those of one tensor together. */
typedef struct loose_shard {
    const tri_ckpt_tensor *tensor;
    const tri_ckpt_shard *shard;
    uint32_t file;
} loose_shard;

static int by_place(const tri_region *a, const tri_region *b)
{
    for (int d = 0; d < a->num_dims && d < b->num_dims; d++)
        if (a->begin[d] != b->begin[d])
            return a->begin[d] < b->begin[d] ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Weights before moments, then by name, so that the same state has the same manifest; within a
 * tensor by place, then by file, of which the first counts. */
static int loose_order(const void *left, const void *right)
{
    const loose_shard *a = left, *b = right;
    if (a->tensor->kind != b->tensor->kind)
        return a->tensor->kind < b->tensor->kind ? -1 : 1;
    int order = strcmp(a->tensor->name, b->tensor->name);
    if (order == 0)
        order = by_place(&a->shard->region, &b->shard->region);
    return order ? order : a->file < b->file ? -1 : a->file > b->file;
}

static bool same_region(const tri_region *a, const tri_region *b)
{
    return tri_region_same_box(a, b) && a->first == b->first && a->count == b->count;
}

static tr_status add_loose(tri_manifest *whole, const loose_shard *all, size_t i, tr_error *err)
{
    const loose_shard *s = &all[i], *before = i > 0 ? &all[i - 1] : NULL;
    bool begins = !before || before->tensor->kind != s->tensor->kind ||
                  strcmp(before->tensor->name, s->tensor->name) != 0;
    bool good = true;
    if (begins)
        good = tri_manifest_add_tensor(whole, s->tensor->name, s->tensor->kind, s->tensor->num_dims,
                                       s->tensor->dim);
    else if (before->tensor->num_dims != s->tensor->num_dims ||
             memcmp(before->tensor->dim, s->tensor->dim, sizeof s->tensor->dim) != 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "ranks disagree on the shape of %s",
                        s->tensor->name);
    else if (same_region(&before->shard->region, &s->shard->region))
        return TR_OK; /* two ranks hold it */
    tri_ckpt_shard shard = *s->shard;
    shard.file = s->file;
    return good && tri_manifest_add_shard(whole, &shard)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
}

tr_status tri_manifest_merge(tri_manifest *whole, const tri_manifest *const *parts,
                             size_t num_parts, tr_error *err)
{
    size_t num = 0;
    for (size_t p = 0; p < num_parts; p++)
        num += parts[p]->num_shards;
    loose_shard *all = calloc(num + 1, sizeof *all);
    tr_status status = all ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
    num = 0;
    for (size_t p = 0; p < num_parts && status == TR_OK; p++) {
        size_t base = whole->num_files;
        for (size_t f = 0; f < parts[p]->num_files && status == TR_OK; f++)
            if (!tri_manifest_add_file(whole, &parts[p]->files[f]))
                status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
        for (size_t t = 0; t < parts[p]->num_tensors; t++) {
            const tri_ckpt_tensor *tensor = &parts[p]->tensors[t];
            for (size_t s = 0; s < tensor->num_shards; s++) {
                const tri_ckpt_shard *shard = &parts[p]->shards[tensor->first_shard + s];
                all[num++] = (loose_shard){tensor, shard, (uint32_t)(base + shard->file)};
            }
        }
    }
    if (status == TR_OK)
        qsort(all, num, sizeof *all, loose_order);
    for (size_t i = 0; i < num && status == TR_OK; i++)
        status = add_loose(whole, all, i, err);
    free(all);
    return status;
}

/* ---- as text ---- */

static void add_list(tri_text *text, const char *key, const int64_t *list, int num)
{
    tri_text_add(text, ",\"%s\":[", key);
    for (int i = 0; i < num; i++)
        tri_text_add(text, "%s%lld", i ? "," : "", (long long)list[i]);
    tri_text_add(text, "]");
}

static void add_string(tri_text *text, const char *value)
{
    tri_json_begin();
    json_t *string = json_string(value);
    char *quoted = tri_json_dump(string, JSON_ENCODE_ANY);
    tri_text_add(text, "%s", quoted ? quoted : "\"\"");
    text->failed |= !quoted;
    free(quoted);
    json_decref(string);
}

static void add_shard(tri_text *text, const tri_ckpt_shard *shard)
{
    const tri_region *r = &shard->region;
    tri_text_add(text, "   {\"file\":%u,\"offset\":%lld", shard->file, (long long)shard->offset);
    if (tri_region_box_count(r) != tri_region_tensor_count(r)) {
        add_list(text, "begin", r->begin, r->num_dims);
        add_list(text, "size", r->size, r->num_dims);
    }
    if (!tri_region_is_box(r))
        tri_text_add(text, ",\"first\":%lld,\"count\":%lld", (long long)r->first,
                     (long long)r->count);
    tri_text_add(text, ",\"checksum\":\"%016llx\"}", (unsigned long long)shard->checksum);
}

static void add_tensor(tri_text *text, const tri_manifest *m, const tri_ckpt_tensor *tensor)
{
    tri_text_add(text, "  {\"name\":");
    add_string(text, tensor->name);
    tri_text_add(text, ",\"kind\":\"%s\",\"dtype\":\"F32\"", kind_names[tensor->kind]);
    add_list(text, "shape", tensor->dim, tensor->num_dims);
    tri_text_add(text, ",\"shards\":[\n");
    for (size_t s = 0; s < tensor->num_shards; s++) {
        add_shard(text, &m->shards[tensor->first_shard + s]);
        tri_text_add(text, "%s\n", s + 1 < tensor->num_shards ? "," : "");
    }
    tri_text_add(text, "  ]}");
}

static void add_file(tri_text *text, const tri_ckpt_file *file)
{
    tri_text_add(text, "  {\"name\":");
    add_string(text, file->name);
    tri_text_add(text, ",\"bytes\":%lld,\"checked_bytes\":%lld,\"checksum\":\"%016llx\"}",
                 (long long)file->bytes, (long long)file->checked_bytes,
                 (unsigned long long)file->checksum);
}

void tri_manifest_print(const tri_manifest *m, tri_text *text)
{
    size_t begin = text->length;
    tri_text_add(text, TRI_MANIFEST_OPENING "0000000000000000\",\n");
    tri_text_add(text, "\"format\":\"%s\",\n\"version\":%d,\n\"step\":%lld,\n\"numbers\":{",
                 TRI_MANIFEST_FORMAT, TRI_CKPT_VERSION, (long long)m->step);
    for (size_t i = 0; i < m->num_numbers; i++) {
        tri_text_add(text, "%s", i ? "," : "");
        add_string(text, m->numbers[i].name);
        tri_text_add(text, ":%.17g", m->numbers[i].value);
    }
    tri_text_add(text, "},\n\"files\":[\n");
    for (size_t i = 0; i < m->num_files; i++) {
        add_file(text, &m->files[i]);
        tri_text_add(text, "%s\n", i + 1 < m->num_files ? "," : "");
    }
    tri_text_add(text, "],\n\"tensors\":[\n");
    for (size_t i = 0; i < m->num_tensors; i++) {
        add_tensor(text, m, &m->tensors[i]);
        tri_text_add(text, "%s\n", i + 1 < m->num_tensors ? "," : "");
    }
    tri_text_add(text, "]}\n");
    if (text->failed)
        return;
    char digits[20];
    uint64_t sum = tri_checksum_bytes(text->chars + begin, text->length - begin);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
    memcpy(text->chars + begin + TRI_MANIFEST_DIGITS_AT, digits, 16);
}
