#include "base/staged_dir.h"
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int num_entries(const char *path)
{
    DIR *handle = opendir(path);
    int num = handle ? -2 : -1; /* . and .. */
    while (handle && readdir(handle))
        num++;
    if (handle)
        closedir(handle);
    return num;
}

static tr_status check_free(const char *path, bool replace, const char *marker, tr_error *err)
{
    if (!tri_path_exists(path) || num_entries(path) == 0)
        return TR_OK;
    if (!tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_INPUT, "%s: exists and is no directory; choose another name",
                        path);
    char *file = tri_path_join(path, marker);
    bool ours = file && tri_path_exists(file);
    free(file);
    if (!ours)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: exists and holds other things (no %s); choose another directory", path,
                        marker);
    if (!replace)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: exists already; --force replaces it, or choose another directory",
                        path);
    return TR_OK;
}

/* A new hidden directory beside path. */
static char *make_temp(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("./"), *temp = NULL;
    for (int i = 0; parent && i < 10000; i++) {
        if (asprintf(&temp, "%s.trireme-%ld-%d.tmp", parent, (long)getpid(), i) < 0) {
            temp = NULL;
            break;
        }
        if (mkdir(temp, 0777) == 0)
            break;
        int reason = errno;
        free(temp);
        temp = NULL;
        errno = reason;
        if (reason != EEXIST)
            break;
    }
    free(parent);
    return temp;
}

tr_status tri_staged_begin(tri_staged_dir *dir, const char *path, bool replace, const char *marker,
                           tr_error *err)
{
    *dir = (tri_staged_dir){.path = strdup(path)};
    if (!dir->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    size_t length = strlen(dir->path);
    while (length > 1 && dir->path[length - 1] == '/')
        dir->path[--length] = 0;
    tr_status status = length == 0 ? tri_fail(err, TR_ERROR_INPUT,
                                              "the name of the directory to "
                                              "write is empty")
                                   : check_free(dir->path, replace, marker, err);
    char *slash = strrchr(dir->path, '/');
    if (status == TR_OK && slash && slash != dir->path) {
        *slash = 0;
        status = tri_make_dirs(dir->path, err);
        *slash = '/';
    }
    if (status == TR_OK && !(dir->temp = make_temp(dir->path)))
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be made: %s", path, strerror(errno));
    if (status != TR_OK)
        tri_staged_abort(dir);
    return status;
}

void tri_remove_dir(const char *path)
{
    DIR *handle = opendir(path);
    const struct dirent *entry;
    while (handle && (entry = readdir(handle)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(handle), entry->d_name, 0);
    if (handle)
        closedir(handle);
    (void)rmdir(path);
}

tr_status tri_staged_commit(tri_staged_dir *dir, tr_error *err)
{
    char *old = NULL;
    if (num_entries(dir->path) > 0) { /* begin has made sure that it may go */
        if (!(old = make_temp(dir->path)) || rename(dir->path, old) != 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be replaced: %s", dir->path,
                            strerror(errno));
    }
    if (rename(dir->temp, dir->path) != 0) {
        int reason = errno;
        if (old)
            (void)rename(old, dir->path);
        free(old);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", dir->path,
                        strerror(reason));
    }
    if (old)
        tri_remove_dir(old);
    free(old);
    free(dir->temp);
    dir->temp = NULL;
    tri_staged_abort(dir);
    return TR_OK;
}

void tri_staged_abort(tri_staged_dir *dir)
{
    if (dir->temp)
        tri_remove_dir(dir->temp);
    free(dir->temp);
    free(dir->path);
    *dir = (tri_staged_dir){0};
}
