/* The tensors of a directory: one file, or an index with shards. */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/hf/hf_parts.h"

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

static tr_status no_memory(const char *dir, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
}

static tri_hf_file *find_file(const tri_hf_files *files, const char *name)
{
    for (size_t i = 0; i < files->num; i++)
        if (strcmp(files->file[i].name, name) == 0)
            return &files->file[i];
    return NULL;
}

/* name must outlive the files. */
static tr_status open_file(tri_hf_files *files, const char *dir, const char *name, tr_error *err)
{
    tri_hf_file *grown = realloc(files->file, (files->num + 1) * sizeof *grown);
    if (!grown)
        return no_memory(dir, err);
    files->file = grown;
    tri_hf_file *file = &grown[files->num];
    *file = (tri_hf_file){.name = name, .path = tri_path_join(dir, name)};
    if (!file->path)
        return no_memory(dir, err);
    files->num++;
    return tri_safetensors_open(file->path, &file->file, err);
}

/* One entry of weight_map. */
static tr_status open_entry(tri_hf_files *files, const char *dir, const char *name,
                            const json_t *value, tr_error *err)
{
    const char *shard = json_string_value(value);
    if (!shard || !shard[0] || shard[0] == '.' || strchr(shard, '/'))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: tensor \"%.200s\" has no name of a file in this directory; download "
                        "the model again",
                        files->index_path, name);
    if (!find_file(files, shard)) {
        tr_status status = open_file(files, dir, shard, err);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "shard of tensor \"%.200s\"", name);
    }
    const tri_hf_file *file = find_file(files, shard);
    if (!tri_safetensors_find(file->file, name))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: holds no tensor \"%.200s\", though %s says so; copy or download both "
                        "again",
                        file->path, name, INDEX);
    return TR_OK;
}

static tr_status open_index(tri_hf_files *files, const char *dir, tr_error *err)
{
    TRI_TRY(tri_advise(err, tri_hf_json_read(dir, INDEX, &files->index, &files->index_path, err),
                       "download the model again"));
    files->weight_map = json_object_get(files->index, "weight_map");
    if (!json_is_object(files->weight_map) || json_object_size(files->weight_map) == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: has no \"weight_map\" from tensors to files; "
                        "download the model again",
                        files->index_path);
    const char *name;
    json_t *value;
    json_object_foreach(files->weight_map, name, value)
        TRI_TRY(open_entry(files, dir, name, value, err));
    return TR_OK;
}

tr_status tri_hf_files_open(tri_hf_files *files, const char *dir, tr_error *err)
{
    *files = (tri_hf_files){0};
    tr_status status;
    if (tri_dir_has(dir, SINGLE))
        status = open_file(files, dir, SINGLE, err);
    else if (tri_dir_has(dir, INDEX))
        status = open_index(files, dir, err);
    else
        status = tri_fail(err, TR_ERROR_INPUT, "%s: has neither %s nor %s%s", dir, SINGLE, INDEX,
                          tri_dir_has(dir, "pytorch_model.bin")
                              ? "; pytorch_model.bin is not read: load it with transformers and "
                                "write it by save_pretrained"
                              : "; download the *.safetensors of the model into it");
    if (status != TR_OK)
        tri_hf_files_close(files);
    return status;
}

void tri_hf_files_close(tri_hf_files *files)
{
    for (size_t i = 0; i < files->num; i++) {
        tri_safetensors_close(files->file[i].file);
        free(files->file[i].path);
    }
    free(files->file);
    free(files->index_path);
    json_decref(files->index);
    *files = (tri_hf_files){0};
}

const tri_safetensor *tri_hf_files_find(const tri_hf_files *files, const char *name,
                                        const tri_hf_file **file)
{
    const tri_hf_file *found = files->file;
    if (files->weight_map) {
        const char *shard = json_string_value(json_object_get(files->weight_map, name));
        found = shard ? find_file(files, shard) : NULL;
    }
    if (file)
        *file = found;
    return found ? tri_safetensors_find(found->file, name) : NULL;
}

const char *tri_hf_files_label(const tri_hf_files *files)
{
    return files->index_path ? files->index_path : files->file[0].path;
}

tr_status tri_hf_shards_list(const char *dir, tri_hf_shards *shards, tr_error *err)
{
    *shards = (tri_hf_shards){0};
    tri_hf_files files;
    TRI_TRY(tri_hf_files_open(&files, dir, err));
    shards->path = calloc(files.num, sizeof *shards->path);
    for (size_t i = 0; shards->path && i < files.num; i++) {
        shards->path[shards->num++] = files.file[i].path;
        files.file[i].path = NULL;
    }
    tri_hf_files_close(&files);
    return shards->path ? TR_OK : no_memory(dir, err);
}

void tri_hf_shards_free(tri_hf_shards *shards)
{
    for (size_t i = 0; i < shards->num; i++)
        free(shards->path[i]);
    free(shards->path);
    *shards = (tri_hf_shards){0};
}
