#include "ckpt/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/fs.h"

#define NO_FILE SIZE_MAX

bool tri_checkpoint_is_dir(const char *path)
{
    char *manifest = tri_path_join(path, TRI_CKPT_MANIFEST);
    bool is = manifest && tri_path_is_dir(path) && tri_path_exists(manifest);
    free(manifest);
    return is;
}

static char *file_path(const tri_checkpoint *ckpt, size_t file)
{
    return tri_path_join(ckpt->path, ckpt->manifest.files[file].name);
}

/* A file that is gone makes a checkpoint a damaged one; no right to read it does not. */
static tr_status missing_or(int reason)
{
    return reason == ENOENT ? TR_ERROR_INPUT : TR_ERROR_RUNTIME;
}

static tr_status check_file(const tri_checkpoint *ckpt, size_t i, tr_error *err)
{
    char *path = file_path(ckpt, i);
    struct stat info;
    tr_status status = TR_OK;
    long long wanted = (long long)ckpt->manifest.files[i].bytes;
    if (!path)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", ckpt->path);
    else if (stat(path, &info) != 0)
        status = tri_fail(err, missing_or(errno), "%s: cannot be read: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode) || info.st_size != wanted)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: has %lld bytes, and the manifest says %lld: it was cut off, or is "
                          "not the file that was written",
                          path, (long long)info.st_size, wanted);
    free(path);
    return status;
}

tr_status tri_checkpoint_open(tri_checkpoint *ckpt, const char *path, tr_error *err)
{
    *ckpt = (tri_checkpoint){.path = strdup(path), .mapped = NO_FILE};
    char *manifest = tri_path_join(path, TRI_CKPT_MANIFEST);
    tr_status status = ckpt->path && manifest
                           ? tri_manifest_read(manifest, false, &ckpt->manifest, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", path);
    free(manifest);
    for (size_t i = 0; i < ckpt->manifest.num_files && status == TR_OK; i++)
        status = check_file(ckpt, i, err);
    if (status != TR_OK)
        tri_checkpoint_close(ckpt);
    return status;
}

static void unmap(tri_checkpoint *ckpt)
{
    if (ckpt->mapped != NO_FILE && ckpt->data)
        munmap((void *)(uintptr_t)ckpt->data, (size_t)ckpt->manifest.files[ckpt->mapped].bytes);
    ckpt->mapped = NO_FILE;
    ckpt->data = NULL;
}

void tri_checkpoint_close(tri_checkpoint *ckpt)
{
    if (!ckpt->path)
        return;
    unmap(ckpt);
    tri_manifest_fini(&ckpt->manifest);
    free(ckpt->path);
    *ckpt = (tri_checkpoint){.mapped = NO_FILE};
}

/* ---- verifying ---- */

enum { BLOCK = 1 << 20 };

/* A stretch of a file with its checksum, read and not mapped: a disk that cannot give the bytes is
 * then an error and not a signal. */
typedef struct stretch {
    size_t file;
    int64_t offset, bytes;
    uint64_t checksum;
    const char *what; /* of which tensor, or NULL */
} stretch;

typedef struct verifier {
    const tri_checkpoint *ckpt;
    size_t open_file;
    int fd;
    char *path;
    char *block;
} verifier;

static tr_status open_for(verifier *v, size_t file, tr_error *err)
{
    if (v->open_file == file)
        return TR_OK;
    if (v->fd >= 0)
        close(v->fd);
    free(v->path);
    v->open_file = NO_FILE;
    v->path = file_path(v->ckpt, file);
    v->fd = v->path ? open(v->path, O_RDONLY | O_CLOEXEC) : -1;
    if (v->fd < 0)
        return tri_fail(err, missing_or(errno), "%s: cannot be read: %s",
                        v->path ? v->path : v->ckpt->path, strerror(errno));
    v->open_file = file;
    return TR_OK;
}

static tr_status check_stretch(verifier *v, const stretch *s, tr_error *err)
{
    TRI_TRY(open_for(v, s->file, err));
    tri_checksum hash;
    tri_checksum_init(&hash);
    for (int64_t done = 0; done < s->bytes;) {
        size_t want = s->bytes - done < BLOCK ? (size_t)(s->bytes - done) : BLOCK;
        ssize_t got = pread(v->fd, v->block, want, (off_t)(s->offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tri_fail(err, TR_ERROR_INPUT, "%s: cannot be read: %s", v->path,
                            got < 0 ? strerror(errno) : "it ends too early");
        tri_checksum_add(&hash, v->block, (size_t)got);
        done += got;
    }
    if (tri_checksum_end(&hash) == s->checksum)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: %s%s has another checksum than when it was written: the file is damaged",
                    v->path, s->what ? "tensor " : "its beginning", s->what ? s->what : "");
}

/* Stretches are shared out by where their first byte falls in the sum of all. */
static tr_status maybe_check(verifier *v, const stretch *s, int part, int parts, double total,
                             double *before, uint64_t *bytes, tr_error *err)
{
    int owner = (int)(*before / (total + 1) * parts);
    *before += (double)s->bytes;
    if (owner != part || s->bytes == 0)
        return TR_OK;
    *bytes += (uint64_t)s->bytes;
    return check_stretch(v, s, err);
}

static tr_status verify_all(verifier *v, int kinds, int part, int parts, uint64_t *bytes,
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
    verifier v = {.ckpt = ckpt, .open_file = NO_FILE, .fd = -1, .block = malloc(BLOCK)};
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

static tr_status map_file(tri_checkpoint *ckpt, size_t file, tr_error *err)
{
    if (ckpt->mapped == file)
        return TR_OK;
    unmap(ckpt);
    tr_status status = check_file(ckpt, file, err); /* nobody has cut it off meanwhile */
    if (status != TR_OK)
        return status;
    char *path = file_path(ckpt, file);
    size_t bytes = (size_t)ckpt->manifest.files[file].bytes;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *data = fd >= 0 ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (data == MAP_FAILED)
        status = tri_fail(err, TR_ERROR_INPUT, "%s: cannot be read: %s", path ? path : ckpt->path,
                          strerror(errno));
    if (fd >= 0)
        close(fd);
    free(path);
    TRI_TRY(status);
    ckpt->mapped = file;
    ckpt->data = data;
    return TR_OK;
}

typedef struct copying {
    const unsigned char *from;
    float *to;
    uint64_t bytes;
    bool counts_only;
} copying;

static tr_status copy_shared(void *context, int64_t in_shard, int64_t in_region, int64_t count,
                             tr_error *err)
{
    copying *c = context;
    (void)err;
    size_t bytes = (size_t)count * sizeof(float);
    if (!c->counts_only)
        memcpy(c->to + in_region, c->from + (size_t)in_shard * sizeof(float), bytes);
    c->bytes += bytes;
    return TR_OK;
}

/* Pages that have been copied are not needed again: they go from the mapping, and stay in the
 * system's cache as long as there is room. */
static void let_go(const tri_checkpoint *ckpt, const tri_ckpt_shard *shard)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)ckpt->data + (uintptr_t)shard->offset) & ~(page - 1);
    uintptr_t end = (uintptr_t)ckpt->data + (uintptr_t)shard->offset +
                    (uintptr_t)shard->region.count * sizeof(float);
    (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
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
            TRI_TRY(map_file(ckpt, shard->file, err));
        copying c = {.from = ckpt->data ? ckpt->data + shard->offset : NULL,
                     .to = to,
                     .counts_only = ckpt->counts_only};
        TRI_TRY(tri_region_shared(&shard->region, region, copy_shared, &c, err));
        ckpt->bytes_read += c.bytes;
        if (c.bytes > 0 && ckpt->data)
            let_go(ckpt, shard);
    }
    return TR_OK;
}

/* ---- finding ---- */

tr_status tri_checkpoint_look(const char *path, char **found, tr_error *err)
{
    *found = NULL;
    char *inside = tri_path_join(path, "ckpt");
    const char *places[] = {path, inside};
    tr_status status = inside ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (status == TR_OK && tri_checkpoint_is_dir(path))
        *found = strdup(path);
    for (int i = 0; i < 2 && status == TR_OK && !*found; i++) {
        tri_ckpt_steps steps;
        status = tri_ckpt_steps_read(&steps, places[i], err);
        if (status == TR_OK && steps.num > 0)
            *found = tri_ckpt_path(places[i], steps.step[0]);
        tri_ckpt_steps_free(&steps);
    }
    free(inside);
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
    char *folder = status == TR_ERROR_INPUT ? folder_of(path) : NULL, *other = NULL;
    tri_ckpt_steps steps = {0};
    if (folder && tri_ckpt_steps_read(&steps, folder, NULL) != TR_OK)
        steps.num = 0;
    for (size_t i = 0; i < steps.num && !other; i++) {
        tri_checkpoint ckpt;
        other = tri_ckpt_path(folder, steps.step[i]);
        if (other && tri_checkpoint_open(&ckpt, other, NULL) == TR_OK) {
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
    else
        tri_advise(err, status,
                   "no other checkpoint beside it is whole: copy it again from where it was "
                   "written, or train again");
    tri_ckpt_steps_free(&steps);
    free(folder);
    free(other);
    return status;
}

static tr_status verify_at(const char *dir, int64_t step, tr_error *err)
{
    char *path = tri_ckpt_path(dir, step);
    tri_checkpoint ckpt;
    tr_status status = path ? tri_checkpoint_open(&ckpt, path, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    if (status == TR_OK) {
        status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, NULL, err);
        tri_checkpoint_close(&ckpt);
    }
    free(path);
    return status;
}

tr_status tri_checkpoint_find(const char *dir, int64_t *step, char **note, tr_error *err)
{
    tri_ckpt_steps steps;
    tri_text text;
    tri_text_init(&text);
    *step = -1;
    *note = NULL;
    tr_status status = tri_ckpt_steps_read(&steps, dir, err);
    for (size_t i = 0; status == TR_OK && *step < 0 && i < steps.num; i++) {
        tr_error why = {0};
        tr_status found = verify_at(dir, steps.step[i], &why);
        char *aside = NULL;
        if (found == TR_OK)
            *step = steps.step[i];
        else if (found != TR_ERROR_INPUT) /* no memory: nothing is known of the checkpoint */
            status = tri_fail(err, found, "%s", why.message);
        else
            status = tri_ckpt_set_aside(dir, steps.step[i], &aside, err);
        if (aside)
            tri_text_add(&text, "%sdamaged, now %s: %s", text.length ? "\n" : "", aside,
                         why.message);
        free(aside);
    }
    tri_ckpt_steps_free(&steps);
    *note = text.chars;
    return status;
}
