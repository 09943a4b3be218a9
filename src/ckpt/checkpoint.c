#include "ckpt/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "ckpt/ckpt_best.h"

#define NO_FILE SIZE_MAX

bool tri_checkpoint_is_dir(const char *path)
{
    char manifest[PATH_MAX]; /* not on the heap: no memory is no reason to say no */
    struct stat info;
    int num = snprintf(manifest, sizeof manifest, "%s/%s", path, TRI_CKPT_MANIFEST);
    bool is = num > 0 && (size_t)num < sizeof manifest && tri_path_is_dir(path) &&
              (stat(manifest, &info) == 0 || (errno != ENOENT && errno != ENOTDIR));
    return is; /* one that may not be looked at counts: whoever opens it learns why */
}

static char *file_path(const tri_checkpoint *ckpt, size_t file)
{
    return tri_path_join(ckpt->path, ckpt->manifest.files[file].name);
}

/* Of a file that cannot be read. Only what is certainly gone makes a checkpoint a damaged one: a
 * disk that does not answer, a right that is missing, no memory say nothing about its bytes. */
static tr_status unreadable(const char *dir, const char *path, int reason, tr_error *err)
{
    const char *slash = strrchr(path, '/');
    if (reason == ENOENT && tri_dir_lacks(dir, slash ? slash + 1 : path))
        return tri_fail(err, TR_ERROR_DAMAGED, "%s: is missing: the checkpoint is not complete",
                        path);
    tri_fail_open(err, path, reason);
    if (err)
        err->status = TR_ERROR_RUNTIME;
    return TR_ERROR_RUNTIME;
}

/* The size of an open file, which is asked for anew also where a network file system has kept an
 * older answer. */
static tr_status check_size(int fd, const char *path, int64_t wanted, tr_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return tri_fail_kind(err, path, info.st_mode);
    if (info.st_size == wanted)
        return TR_OK;
    return tri_fail(err, TR_ERROR_DAMAGED,
                    "%s: has %lld bytes, and the manifest says %lld: it was cut off, or is not the "
                    "file that was written",
                    path, (long long)info.st_size, (long long)wanted);
}

static tr_status open_file(const tri_checkpoint *ckpt, size_t i, int *fd, tr_error *err)
{
    char *path = file_path(ckpt, i);
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", ckpt->path);
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tr_status status = *fd < 0 ? unreadable(ckpt->path, path, errno, err)
                               : check_size(*fd, path, ckpt->manifest.files[i].bytes, err);
    free(path);
    if (status != TR_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

static tr_status check_file(const tri_checkpoint *ckpt, size_t i, tr_error *err)
{
    int fd = -1;
    TRI_TRY(open_file(ckpt, i, &fd, err));
    close(fd);
    return TR_OK;
}

static tr_status read_manifest(tri_checkpoint *ckpt, tr_error *err)
{
    char *path = tri_path_join(ckpt->path, TRI_CKPT_MANIFEST);
    struct stat info;
    tr_status status = TR_OK;
    if (!path)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", ckpt->path);
    else if (stat(path, &info) != 0)
        status = unreadable(ckpt->path, path, errno, err);
    else
        status = tri_manifest_read(path, false, &ckpt->manifest, err);
    free(path);
    return status;
}

tr_status tri_checkpoint_open(tri_checkpoint *ckpt, const char *path, tr_error *err)
{
    *ckpt = (tri_checkpoint){.path = strdup(path), .file = NO_FILE, .fd = -1};
    if (!ckpt->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", path);
    tr_status status = read_manifest(ckpt, err);
    for (size_t i = 0; i < ckpt->manifest.num_files && status == TR_OK; i++)
        status = check_file(ckpt, i, err);
    if (status != TR_OK)
        tri_checkpoint_close(ckpt);
    return status;
}

void tri_checkpoint_close(tri_checkpoint *ckpt)
{
    if (!ckpt->path)
        return;
    if (ckpt->fd >= 0)
        close(ckpt->fd);
    free(ckpt->window);
    tri_manifest_fini(&ckpt->manifest);
    free(ckpt->path);
    *ckpt = (tri_checkpoint){.file = NO_FILE, .fd = -1};
}

/* ---- verifying ---- */

enum { BLOCK = 1 << 20 };

/* All of the bytes. */
static tr_status read_at(int fd, const char *label, void *to, size_t num_bytes, int64_t offset,
                         tr_error *err)
{
    for (size_t done = 0; done < num_bytes;) {
        ssize_t got = pread(fd, (char *)to + done, num_bytes - done, (off_t)offset + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "%s: cannot be read: %s; nothing was changed: mend the disk, or try "
                            "again",
                            label, got < 0 ? strerror(errno) : "it became shorter meanwhile");
        done += (size_t)got;
    }
    return TR_OK;
}

/* A stretch of a file with its checksum. */
typedef struct stretch {
    size_t file;
    int64_t offset, bytes;
    uint64_t checksum;
    const char *what; /* of which tensor, or NULL */
} stretch;

typedef struct ckpt_verifier {
    const tri_checkpoint *ckpt;
    size_t open_file;
    int fd;
    char *path;
    char *block;
} ckpt_verifier;

static tr_status open_for(ckpt_verifier *v, size_t file, tr_error *err)
{
    if (v->open_file == file)
        return TR_OK;
    if (v->fd >= 0)
        close(v->fd);
    free(v->path);
    v->fd = -1;
    v->open_file = NO_FILE;
    v->path = file_path(v->ckpt, file);
    if (!v->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", v->ckpt->path);
    TRI_TRY(open_file(v->ckpt, file, &v->fd, err));
    v->open_file = file;
    return TR_OK;
}

static tr_status check_stretch(ckpt_verifier *v, const stretch *s, tr_error *err)
{
    TRI_TRY(open_for(v, s->file, err));
    tri_checksum hash;
    tri_checksum_init(&hash);
    for (int64_t done = 0; done < s->bytes;) {
        size_t want = s->bytes - done < BLOCK ? (size_t)(s->bytes - done) : BLOCK;
        TRI_TRY(read_at(v->fd, v->path, v->block, want, s->offset + done, err));
        tri_checksum_add(&hash, v->block, want);
        done += (int64_t)want;
    }
    if (tri_checksum_end(&hash) == s->checksum)
        return TR_OK;
    return tri_fail(err, TR_ERROR_DAMAGED,
                    "%s: %s%s has another checksum than when it was written: the file is damaged",
                    v->path, s->what ? "tensor " : "its beginning", s->what ? s->what : "");
}

/* Stretches are shared out by where their first byte falls in the sum of all. */
static tr_status maybe_check(ckpt_verifier *v, const stretch *s, int part, int parts, double total,
                             double *before, uint64_t *bytes, tr_error *err)
{
    int owner = (int)(*before / (total + 1) * parts);
    *before += (double)s->bytes;
    if (owner != part || s->bytes == 0)
        return TR_OK;
    *bytes += (uint64_t)s->bytes;
    return check_stretch(v, s, err);
}

static tr_status verify_all(ckpt_verifier *v, int kinds, int part, int parts, uint64_t *bytes,
                            tr_error *err)
{
    const tri_manifest *m = &v->ckpt->manifest;
    double total = 0, before = 0;
    for (size_t f = 0; f < m->num_files; f++)
        total += (double)m->files[f].bytes;
    for (size_t f = 0; f < m->num_files; f++) {
        stretch s = {f, 0, m->files[f].checked_bytes, m->files[f].checksum, NULL};
        TRI_TRY(maybe_check(v, &s, part, parts, total, &before, bytes, err));
    }
    for (size_t t = 0; t < m->num_tensors; t++)
        for (size_t i = 0; i < m->tensors[t].num_shards && kinds >> m->tensors[t].kind & 1; i++) {
            const tri_ckpt_shard *shard = &m->shards[m->tensors[t].first_shard + i];
            stretch s = {shard->file, shard->offset, shard->region.count * (int64_t)sizeof(float),
                         shard->checksum, m->tensors[t].name};
            TRI_TRY(maybe_check(v, &s, part, parts, total, &before, bytes, err));
        }
    return TR_OK;
}

tr_status tri_checkpoint_verify(const tri_checkpoint *ckpt, int kinds, int part, int parts,
                                uint64_t *bytes, tr_error *err)
{
    uint64_t ignored;
    ckpt_verifier v = {.ckpt = ckpt, .open_file = NO_FILE, .fd = -1, .block = malloc(BLOCK)};
    bytes = bytes ? bytes : &ignored;
    *bytes = 0;
    tr_status status = v.block
                           ? verify_all(&v, kinds, part, parts, bytes, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to read %s", ckpt->path);
    if (v.fd >= 0)
        close(v.fd);
    free(v.path);
    free(v.block);
    return status;
}

/* ---- reading ---- */

static tr_status turn_to(tri_checkpoint *ckpt, size_t file, tr_error *err)
{
    if (ckpt->file == file)
        return TR_OK;
    if (ckpt->fd >= 0)
        close(ckpt->fd);
    ckpt->fd = -1;
    ckpt->file = NO_FILE;
    ckpt->window_bytes = 0;
    if (!ckpt->window && !(ckpt->window = malloc(BLOCK)))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to read %s", ckpt->path);
    TRI_TRY(open_file(ckpt, file, &ckpt->fd, err));
    ckpt->file = file;
    return TR_OK;
}

typedef struct shard_copy {
    tri_checkpoint *ckpt;
    const tri_ckpt_shard *shard;
    float *to;
    uint64_t bytes;
} shard_copy;

/* Runs may be of a few elements each, as of a matrix that is cut by columns: what follows is read
 * along with a short one. */
static tr_status copy_shared(void *context, int64_t in_shard, int64_t in_region, int64_t count,
                             tr_error *err)
{
    shard_copy *c = context;
    tri_checkpoint *ckpt = c->ckpt;
    size_t bytes = (size_t)count * sizeof(float);
    c->bytes += bytes;
    if (ckpt->counts_only)
        return TR_OK;
    const char *label = ckpt->manifest.files[ckpt->file].name;
    int64_t at = c->shard->offset + in_shard * (int64_t)sizeof(float);
    tr_status status = TR_OK;
    if (bytes >= BLOCK) {
        status = read_at(ckpt->fd, label, c->to + in_region, bytes, at, err);
        return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "%s", ckpt->path);
    }
    if (at < ckpt->window_at ||
        at + (int64_t)bytes > ckpt->window_at + (int64_t)ckpt->window_bytes) {
        int64_t end = c->shard->offset + c->shard->region.count * (int64_t)sizeof(float);
        size_t ahead = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
        ckpt->window_bytes = 0;
        status = read_at(ckpt->fd, label, ckpt->window, ahead, at, err);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "%s", ckpt->path);
        ckpt->window_at = at;
        ckpt->window_bytes = ahead;
    }
    memcpy(c->to + in_region, ckpt->window + (at - ckpt->window_at), bytes);
    return TR_OK;
}

tr_status tri_checkpoint_read(tri_checkpoint *ckpt, const char *name, const tri_region *region,
                              float *to, tr_error *err)
{
    const tri_manifest *m = &ckpt->manifest;
    const tri_ckpt_tensor *tensor = tri_manifest_find(m, name);
    if (!tensor)
        return tri_fail(err, TR_ERROR_INPUT, "%s: holds no tensor %s", ckpt->path, name);
    if (tensor->num_dims != region->num_dims ||
        memcmp(tensor->dim, region->dim, (size_t)region->num_dims * sizeof *region->dim) != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: tensor %s has another shape than the model's; it is the checkpoint of "
                        "another model",
                        ckpt->path, name);
    for (size_t s = 0; s < tensor->num_shards; s++) {
        const tri_ckpt_shard *shard = &m->shards[tensor->first_shard + s];
        if (!tri_region_boxes_meet(&shard->region, region) || region->count == 0)
            continue;
        if (!ckpt->counts_only)
            TRI_TRY(turn_to(ckpt, shard->file, err));
        shard_copy c = {.ckpt = ckpt, .shard = shard, .to = to};
        TRI_TRY(tri_region_shared(&shard->region, region, copy_shared, &c, err));
        ckpt->bytes_read += c.bytes;
    }
    return TR_OK;
}

/* ---- finding ---- */

tr_status tri_checkpoint_look(const char *path, char **found, tr_error *err)
{
    TRI_TRY(tri_ckpt_find_best(path, found, err));
    if (*found)
        return TR_OK;
    char *inside = tri_path_join(path, "ckpt");
    const char *places[] = {path, inside};
    tr_status status = inside ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    bool is_there = status == TR_OK && tri_checkpoint_is_dir(path);
    if (is_there)
        *found = strdup(path);
    for (int i = 0; i < 2 && status == TR_OK && !is_there; i++) {
        tri_ckpt_steps steps;
        status = tri_ckpt_steps_read(&steps, places[i], err);
        is_there = status == TR_OK && steps.num > 0;
        if (is_there)
            *found = tri_ckpt_path(places[i], steps.step[0]);
        tri_ckpt_steps_free(&steps);
    }
    free(inside);
    if (is_there && !*found)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    return status;
}

tr_status tri_checkpoint_locate(const char *path, char **found, tr_error *err)
{
    TRI_TRY(tri_checkpoint_look(path, found, err));
    if (*found)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    tri_path_exists(path)
                        ? "%s: holds no checkpoint; name a step-N directory (which holds "
                          "manifest.json) or a run.dir with checkpoints in it"
                        : "%s: does not exist; name a step-N directory of a run, or a run.dir with "
                          "checkpoints in it",
                    path);
}

/* The folder that a path like dir/step-10 is in, on the heap. */
static char *folder_of(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length > 0 ? strndup(path, length) : strdup(".");
}

tr_status tri_checkpoint_advise(tr_error *err, tr_status status, const char *path)
{
    if (status != TR_ERROR_DAMAGED)
        return status;
    char *folder = folder_of(path), *other = NULL;
    tri_ckpt_steps steps = {0};
    if (folder && tri_ckpt_steps_read(&steps, folder, NULL) != TR_OK)
        steps.num = 0;
    bool all_damaged = true;
    for (size_t i = 0; i < steps.num && !other; i++) {
        tri_checkpoint ckpt;
        other = tri_ckpt_path(folder, steps.step[i]);
        tr_status there = other ? tri_checkpoint_open(&ckpt, other, NULL) : TR_ERROR_RUNTIME;
        all_damaged &= there == TR_ERROR_DAMAGED;
        if (there == TR_OK) {
            tri_checkpoint_close(&ckpt);
        } else {
            free(other);
            other = NULL;
        }
    }
    if (other)
        tri_advise(err, status,
                   "take another checkpoint, %s for example (`trireme ckpt inspect %s` lists them)",
                   other, folder);
    else if (!all_damaged)
        tri_advise(err, status, "`trireme ckpt verify %s` tells of those beside it", folder);
    else
        tri_advise(err, status,
                   "no other checkpoint beside it is whole: copy it again from where it was "
                   "written, or train again");
    tri_ckpt_steps_free(&steps);
    free(folder);
    free(other);
    return status;
}
