#include "ckpt/ckpt_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/staged_dir.h"
#include "ckpt/ckpt_best.h"

/* What a link points to may be a disk that is not mounted yet: that is no empty directory. */
#define DANGLING ": is a link to what is not there; mount or make what it points to, or remove it"

/* The step of a name such as "step-10", or -1. */
static int64_t step_of(const char *name)
{
    const char *digits = name + 5;
    size_t num = strncmp(name, "step-", 5) == 0 ? strlen(digits) : 0;
    if (num == 0 || num > 15 || strspn(digits, "0123456789") != num || (num > 1 && *digits == '0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

char *tri_ckpt_path(const char *dir, int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%" PRId64, step);
    return tri_path_join(dir, name);
}

char *tri_ckpt_temp_path(const char *dir, int64_t step, uint64_t nonce)
{
    char name[80];
    snprintf(name, sizeof name, ".step-%" PRId64 ".%" PRIx64 ".tmp", step, nonce);
    return tri_path_join(dir, name);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* Whether it is one that was set aside: "step-10.damaged", "step-10.damaged-2". */
static bool is_set_aside(const char *name)
{
    const char *end = strncmp(name, "step-", 5) == 0 ? strstr(name, ".damaged") : NULL;
    return end && (end[8] == 0 || end[8] == '-');
}

static tr_status note_entry(tri_ckpt_steps *steps, size_t *capacity, DIR *handle, const char *name,
                            const char *dir, tr_error *err)
{
    struct stat info;
    int64_t step = step_of(name);
    if (step < 0 && !is_set_aside(name))
        return TR_OK;
    if (fstatat(dirfd(handle), name, &info, 0) != 0) {
        if (errno == ENOENT && fstatat(dirfd(handle), name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s/%s" DANGLING, dir, name);
        return errno == ENOENT ? TR_OK
                               : tri_fail(err, TR_ERROR_RUNTIME, "%s/%s: cannot be read: %s", dir,
                                          name, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode))
        return TR_OK;
    if (step < 0) {
        steps->num_damaged++;
        return TR_OK;
    }
    int64_t *grown = tri_array_grow(steps->step, steps->num, capacity, sizeof *grown);
    if (!grown)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to list it", dir);
    steps->step = grown;
    grown[steps->num++] = step;
    return TR_OK;
}

tr_status tri_ckpt_steps_read(tri_ckpt_steps *steps, const char *dir, tr_error *err)
{
    *steps = (tri_ckpt_steps){0};
    DIR *handle = opendir(dir);
    struct stat link;
    if (!handle && errno == ENOENT && lstat(dir, &link) == 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s" DANGLING, dir);
    if (!handle && (errno == ENOENT || errno == ENOTDIR))
        return TR_OK;
    if (!handle)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: the directory cannot be read: %s", dir,
                        strerror(errno));
    size_t capacity = 0;
    tr_status status = TR_OK;
    while (status == TR_OK) {
        errno = 0;
        const struct dirent *entry = readdir(handle);
        if (!entry &&
            errno != 0) /* a part of the list is none: what is missing may be the newest */
            status = tri_fail(err, TR_ERROR_RUNTIME, "%s: the directory cannot be read: %s", dir,
                              strerror(errno));
        if (!entry)
            break;
        status = note_entry(steps, &capacity, handle, entry->d_name, dir, err);
    }
    closedir(handle);
    if (steps->num > 1)
        qsort(steps->step, steps->num, sizeof *steps->step, newest_first);
    if (status != TR_OK)
        tri_ckpt_steps_free(steps);
    return status;
}

void tri_ckpt_steps_free(tri_ckpt_steps *steps)
{
    free(steps->step);
    *steps = (tri_ckpt_steps){0};
}

tr_status tri_ckpt_lock(const char *dir, int *fd, tr_error *err)
{
    *fd = -1;
    TRI_TRY(tri_make_dirs(dir, err));
    char *path = tri_path_join(dir, ".lock");
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    tr_status status = TR_OK;
    if (*fd < 0)
        status = tri_fail(err, TR_ERROR_RUNTIME,
                          "%s: cannot be written: %s; checkpoints need a directory that can be "
                          "written, so set another run.dir, or ckpt.every=0",
                          path, strerror(errno));
    else if (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: another run is writing checkpoints here; wait for it, or give this "
                          "one a run.dir of its own",
                          dir);
    if (status != TR_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    free(path);
    return status;
}

void tri_ckpt_unlock(int fd)
{
    if (fd >= 0)
        close(fd);
}

void tri_ckpt_clean(const char *dir)
{
    DIR *handle = opendir(dir);
    const struct dirent *entry;
    while (handle && (entry = readdir(handle))) {
        size_t length = strlen(entry->d_name);
        bool stale = strncmp(entry->d_name, ".step-", 6) == 0 && length > 4 &&
                     strcmp(entry->d_name + length - 4, ".tmp") == 0;
        char *path = stale ? tri_path_join(dir, entry->d_name) : NULL;
        if (path)
            tri_remove_dir(path);
        free(path);
    }
    if (handle)
        closedir(handle);
}

/* Renames to the first free of "BASE", "BASE-2", ...; the new name on the heap, or NULL with errno
 * set. */
static char *rename_to_free(const char *path, const char *base)
{
    char *name = NULL;
    for (int i = 1; i < 10000; i++) {
        char suffix[24] = "";
        if (i > 1)
            snprintf(suffix, sizeof suffix, "-%d", i);
        free(name);
        if (asprintf(&name, "%s%s", base, suffix) < 0)
            return NULL;
        if (tri_path_exists(name))
            continue;
        if (rename(path, name) == 0)
            return name;
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
    }
    int reason = errno;
    free(name);
    errno = reason;
    return NULL;
}

tr_status tri_ckpt_set_aside(const char *dir, int64_t step, char **path, tr_error *err)
{
    char *from = tri_ckpt_path(dir, step), *base = NULL;
    *path = NULL;
    if (from && asprintf(&base, "%s.damaged", from) < 0)
        base = NULL;
    if (base)
        *path = rename_to_free(from, base);
    tr_status status = TR_OK;
    if (!*path)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: is damaged and cannot be renamed: %s",
                          from ? from : dir, strerror(base ? errno : ENOMEM));
    free(from);
    free(base);
    return status == TR_OK ? tri_sync_dir(dir, err) : status;
}

static void remove_step(const char *dir, int64_t step)
{
    char *path = tri_ckpt_path(dir, step), *gone = tri_ckpt_temp_path(dir, step, 0);
    if (path && gone && rename(path, gone) == 0)
        tri_remove_dir(gone);
    free(path);
    free(gone);
}

/* Whether fewer than `best` come before number i. */
static bool is_among_best(const tri_ckpt_steps *steps, const double *loss, size_t i, int64_t best)
{
    int64_t before = 0;
    for (size_t k = 0; k < steps->num; k++)
        before += tri_ckpt_is_better(loss[k], steps->step[k], loss[i], steps->step[i]);
    return !isnan(loss[i]) && before < best;
}

void tri_ckpt_prune(const char *dir, const tri_ckpt_keep *keep)
{
    tri_ckpt_steps steps;
    if (keep->last == 0 || tri_ckpt_steps_read(&steps, dir, NULL) != TR_OK)
        return;
    double *loss = calloc(steps.num + 1, sizeof *loss);
    bool *read = calloc(steps.num + 1, sizeof *read);
    bool ready = loss && read;
    for (size_t i = 0; i < steps.num && ready; i++)
        read[i] =
            keep->best == 0 || tri_ckpt_eval_loss(dir, steps.step[i], &loss[i], NULL) == TR_OK;
    for (size_t i = (size_t)keep->last; i < steps.num && ready; i++)
        if (read[i] && (keep->every == 0 || steps.step[i] % keep->every != 0) &&
            (keep->best == 0 || !is_among_best(&steps, loss, i, keep->best)))
            remove_step(dir, steps.step[i]);
    free(loss);
    free(read);
    tri_ckpt_steps_free(&steps);
}
