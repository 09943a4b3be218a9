#include "data/prepare/prepared.h"
#include "base/json.h"
#include "data/prepare/prepare.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), num = strlen(end);
    return length > num && strcmp(name + length - num, end) == 0;
}

static bool is_shard_name(const char *name)
{
    return ends_with(name, TRI_SHARD_SUFFIX) || ends_with(name, ".bin");
}

static bool holds_shards(const char *dir)
{
    tri_file_list list;
    bool found = false;
    if (tri_file_list_read(&list, dir, NULL) != TR_OK)
        return false;
    for (size_t i = 0; i < list.num && !found; i++) {
        char *path = is_shard_name(list.name[i]) ? tri_path_join(dir, list.name[i]) : NULL;
        found = path && tri_shard_is_file(path);
        free(path);
    }
    tri_file_list_free(&list);
    return found;
}

bool tri_prepared_is(const char *path)
{
    if (tri_path_is_dir(path))
        return tri_dir_has(path, TRI_PREPARED_MANIFEST) || holds_shards(path);
    return ends_with(path, TRI_SHARD_SUFFIX) || tri_shard_is_file(path);
}

void tri_prepared_close(tri_prepared *p)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < p->num[s]; i++)
            tri_shard_close(&p->shard[s][i]);
        free(p->shard[s]);
    }
    free(p->tokenizer);
    *p = (tri_prepared){0};
}

/* Shards that are read together must speak the same language. */
static tr_status check_alike(const tri_prepared *p, const tri_shard *shard, tr_error *err)
{
    const tri_shard *first = p->num[0] ? p->shard[0] : p->num[1] ? p->shard[1] : shard;
    if (first->vocab == shard->vocab && first->separator == shard->separator &&
        first->fingerprint == shard->fingerprint &&
        first->separator_first == shard->separator_first)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s and %s were made with different tokenizers or separators (vocabularies of "
                    "%d and %d); keep them in different directories",
                    first->path, shard->path, first->vocab, shard->vocab);
}

static tr_status add_shard(tri_prepared *p, tri_split split, const char *path, tr_error *err)
{
    tri_shard shard;
    TRI_TRY(tri_shard_open(path, &shard, err));
    tr_status status = check_alike(p, &shard, err);
    tri_shard *grown =
        status == TR_OK ? realloc(p->shard[split], (p->num[split] + 1) * sizeof *grown) : NULL;
    if (!grown) {
        tri_shard_close(&shard);
        return status == TR_OK ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path)
                               : status;
    }
    p->shard[split] = grown;
    grown[p->num[split]++] = shard;
    p->tokens[split] += shard.num_tokens;
    p->documents[split] += shard.num_documents;
    p->vocab = shard.vocab;
    p->separator = shard.separator;
    p->separator_first = shard.separator_first;
    p->fingerprint = shard.fingerprint;
    return TR_OK;
}

static tr_status add_named(tri_prepared *p, tri_split split, const char *dir, const char *name,
                           tr_error *err)
{
    char *path = tri_path_join(dir, name);
    tr_status status = path ? add_shard(p, split, path, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    free(path);
    return status;
}

/* ---- with a list ---- */

static tr_status read_manifest(const char *dir, json_t **root, tr_error *err)
{
    char *path = tri_path_join(dir, TRI_PREPARED_MANIFEST);
    *root = NULL;
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    tr_status status =
        tri_advise(err, tri_json_load_file(path, 0, root, NULL, err), "prepare the data again");
    free(path);
    return status;
}

static tr_status add_split(tri_prepared *p, tri_split split, const char *dir, const json_t *part,
                           tr_error *err)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(part, "shards"), i, item)
    {
        const char *name = json_string_value(item);
        if (!name || !*name || strchr(name, '/'))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s/%s: shard %zu has no name of a file in this directory; prepare the "
                            "data again",
                            dir, TRI_PREPARED_MANIFEST, i);
        TRI_TRY(add_named(p, split, dir, name, err));
    }
    json_int_t tokens = json_integer_value(json_object_get(part, "tokens"));
    if (tokens != (json_int_t)p->tokens[split])
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the shards hold %llu tokens, but %s says %lld; prepare the data again",
                        dir, (unsigned long long)p->tokens[split], TRI_PREPARED_MANIFEST,
                        (long long)tokens);
    return TR_OK;
}

static tr_status open_listed(tri_prepared *p, const char *dir, tr_error *err)
{
    json_t *root;
    TRI_TRY(read_manifest(dir, &root, err));
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    tr_status status = TR_OK;
    if (!format || strcmp(format, "trireme tokens") != 0 || version != 1)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s/%s: is no list of token shards of version 1; prepare the data again, "
                          "or use a newer program",
                          dir, TRI_PREPARED_MANIFEST);
    if (status == TR_OK)
        status = add_split(p, TRI_SPLIT_TRAIN, dir, json_object_get(root, "train"), err);
    if (status == TR_OK)
        status = add_split(p, TRI_SPLIT_EVAL, dir, json_object_get(root, "eval"), err);
    json_decref(root);
    return status;
}

uint64_t tri_prepared_made_from(const char *dir)
{
    json_t *root = NULL;
    if (tri_dir_has(dir, TRI_PREPARED_MANIFEST))
        read_manifest(dir, &root, NULL);
    const char *text = json_string_value(json_object_get(root, "fingerprint"));
    uint64_t value = text ? strtoull(text, NULL, 16) : 0;
    json_decref(root);
    return value;
}

/* ---- without ---- */

static tr_status open_unlisted(tri_prepared *p, const char *dir, tr_error *err)
{
    tri_file_list list;
    TRI_TRY(tri_file_list_read(&list, dir, err));
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < list.num; i++)
        if (is_shard_name(list.name[i]))
            status = add_named(p, strstr(list.name[i], "val") ? TRI_SPLIT_EVAL : TRI_SPLIT_TRAIN,
                               dir, list.name[i], err);
    tri_file_list_free(&list);
    return status;
}

tr_status tri_prepared_open(const char *path, tri_prepared *p, tr_error *err)
{
    *p = (tri_prepared){.separator = -1};
    bool dir = tri_path_is_dir(path);
    tr_status status = !dir ? add_shard(p, TRI_SPLIT_TRAIN, path, err)
                       : tri_dir_has(path, TRI_PREPARED_MANIFEST) ? open_listed(p, path, err)
                                                                  : open_unlisted(p, path, err);
    if (status == TR_OK && p->num[TRI_SPLIT_TRAIN] == 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: holds no shard to train on (a file named *%s or *.bin); make some "
                          "of a text: `trireme data prepare TEXT --tokenizer bytes --out DIR`",
                          path, TRI_SHARD_SUFFIX);
    if (status == TR_OK && dir && tri_dir_has(path, "tokenizer.json") &&
        !(p->tokenizer = strdup(path)))
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    if (status != TR_OK)
        tri_prepared_close(p);
    return status;
}
