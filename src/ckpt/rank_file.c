#include "ckpt/rank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "ckpt/safetensors.h"

char *tri_rank_file_name(int rank, char name[64])
{
    snprintf(name, 64, "rank-%d.safetensors", rank);
    return name;
}

char *tri_rank_file_report_name(int rank, char name[64])
{
    snprintf(name, 64, "rank-%d.report.json", rank);
    return name;
}

char *tri_rank_file_failed_name(int rank, char name[64])
{
    snprintf(name, 64, "rank-%d.failed", rank);
    return name;
}

static tr_status cannot_write(const tri_rank_file *file, int reason, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: cannot be written: %s; make room or mend the directory, or set another "
                    "run.dir",
                    file->path, strerror(reason));
}

/* Bytes between two syncs. A disk that is slow then shows how far it is, in the size of the file,
 * and the last sync is a short one. */
enum { SYNC_BYTES = 256 << 20 };

static tr_status write_all(tri_rank_file *file, const void *data, size_t num_bytes, tr_error *err)
{
    const char *next = data;
    while (num_bytes > 0) {
        if (file->unsynced >= SYNC_BYTES) {
            if (fdatasync(file->fd) != 0)
                return cannot_write(file, errno, err);
            file->unsynced = 0;
        }
        ssize_t written = write(file->fd, next, num_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return cannot_write(file, written < 0 ? errno : ENOSPC, err);
        next += written;
        num_bytes -= (size_t)written;
        file->unsynced += written;
    }
    return TR_OK;
}

/* In the file a part of a box is a list; a box or a whole tensor keeps its dims. */
static tri_safetensors_item item_of(const tri_rank_item *item)
{
    const tri_region *r = &item->region;
    bool dims = tri_region_is_box(r);
    return (tri_safetensors_item){.name = item->name,
                                  .dtype = TRI_F32,
                                  .num_dims = dims ? r->num_dims : 1,
                                  .dim = dims ? r->size : &r->count};
}

static tr_status write_header(tri_rank_file *file, tr_error *err)
{
    tri_safetensors_item *items = calloc(file->num_items + 1, sizeof *items);
    if (!items)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its header", file->path);
    for (size_t i = 0; i < file->num_items; i++)
        items[i] = item_of(&file->items[i]);
    char *header;
    size_t num_bytes;
    tri_safetensors_meta meta = {"format", "trireme-checkpoint"};
    tr_status status = tri_safetensors_header(file->path, items, file->num_items, &meta, 1, &header,
                                              &num_bytes, err);
    free(items);
    TRI_TRY(status);
    char name[64];
    tri_ckpt_file entry = {.name = tri_rank_file_name(file->rank, name),
                           .bytes = (int64_t)num_bytes,
                           .checked_bytes = (int64_t)num_bytes,
                           .checksum = tri_checksum_bytes(header, num_bytes)};
    status = write_all(file, header, num_bytes, err);
    free(header);
    if (status == TR_OK && !tri_manifest_add_file(&file->report, &entry))
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its report", file->path);
    file->offset = (int64_t)num_bytes;
    return status;
}

static void begin_item(tri_rank_file *file)
{
    if (file->at < file->num_items)
        file->left = file->items[file->at].region.count * (int64_t)sizeof(float);
    tri_checksum_init(&file->hash);
}

tr_status tri_rank_file_begin(tri_rank_file *file, const char *dir, int rank, int64_t step,
                              const tri_rank_item *items, size_t num_items, tr_error *err)
{
    char name[64];
    *file = (tri_rank_file){.fd = -1,
                            .rank = rank,
                            .dir = strdup(dir),
                            .path = tri_path_join(dir, tri_rank_file_name(rank, name)),
                            .items = items,
                            .num_items = num_items};
    tri_manifest_init(&file->report);
    file->report.step = step;
    if (!file->dir || !file->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    TRI_TRY(tri_make_dirs(dir, err));
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd < 0)
        return cannot_write(file, errno, err);
    begin_item(file);
    return write_header(file, err);
}

/* An item's last byte has been written. */
static bool report_item(tri_rank_file *file)
{
    const tri_rank_item *item = &file->items[file->at];
    int64_t bytes = item->region.count * (int64_t)sizeof(float);
    tri_ckpt_shard shard = {.offset = file->offset - bytes,
                            .checksum = tri_checksum_end(&file->hash),
                            .region = item->region};
    return tri_manifest_add_tensor(&file->report, item->name, item->kind, item->region.num_dims,
                                   item->region.dim) &&
           tri_manifest_add_shard(&file->report, &shard);
}

tr_status tri_rank_file_write(tri_rank_file *file, const void *data, size_t num_bytes,
                              tr_error *err)
{
    const char *next = data;
    while (num_bytes > 0) {
        if (file->at == file->num_items)
            return tri_fail(err, TR_ERROR_INTERNAL, "%s: more data than items", file->path);
        size_t bytes = num_bytes < (size_t)file->left ? num_bytes : (size_t)file->left;
        tri_checksum_add(&file->hash, next, bytes);
        TRI_TRY(write_all(file, next, bytes, err));
        next += bytes;
        num_bytes -= bytes;
        file->left -= (int64_t)bytes;
        file->offset += (int64_t)bytes;
        if (file->left > 0)
            continue;
        if (!report_item(file))
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its report", file->path);
        file->at++;
        begin_item(file);
    }
    return TR_OK;
}

tr_status tri_rank_file_end(tri_rank_file *file, tr_error *err)
{
    if (file->at != file->num_items)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s: less data than items", file->path);
    if (fsync(file->fd) != 0)
        return cannot_write(file, errno, err);
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0)
        return cannot_write(file, errno, err);
    file->report.files[0].bytes = file->offset;
    char name[64];
    char *path = tri_path_join(file->dir, tri_rank_file_report_name(file->rank, name));
    tri_text text;
    tri_text_init(&text);
    tri_manifest_print(&file->report, &text);
    tr_status status = path && !text.failed
                           ? tri_file_replace(path, text.chars, text.length, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its report", name);
    tri_text_fini(&text);
    free(path);
    return status;
}

void tri_rank_file_fini(tri_rank_file *file)
{
    if (file->fd >= 0 && file->dir)
        close(file->fd);
    file->fd = -1;
    free(file->dir);
    free(file->path);
    file->dir = file->path = NULL;
    tri_manifest_fini(&file->report);
}
