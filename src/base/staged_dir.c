#include "base/staged_dir.h"
#include "base/fs.h"
#include "base/temporary.h"

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
    if (!tri_dir_has(path, marker))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: exists and holds other things (no %s); choose another directory", path,
                        marker);
    if (!replace)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: exists already; --force replaces it, or choose another directory",
                        path);
    return TR_OK;
}

/* A new hidden directory in parent, held; *fd may be -1. */
static char *make_temp(const char *parent, int *fd)
{
    char *temp = NULL;
    *fd = -1;
    for (int i = 0; i < 10000; i++) {
        free(temp);
        temp = tri_temporary_path(parent, i);
        if (!temp)
            break;
        if (mkdir(temp, 0777) == 0) {
            *fd = open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (*fd >= 0)
                (void)tri_temporary_hold(*fd);
            return temp;
        }
        if (errno != EEXIST)
            break;
    }
    int reason = temp ? errno : ENOMEM;
    free(temp);
    errno = reason;
    return NULL;
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == path ? strdup("/")
           : slash       ? strndup(path, (size_t)(slash - path))
                         : strdup(".");
}

tr_status tri_staged_begin(tri_staged_dir *dir, const char *path, bool replace, const char *marker,
                           tr_error *err)
{
    *dir = (tri_staged_dir){.path = strdup(path), .held = -1};
    if (!dir->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    size_t length = strlen(dir->path);
    while (length > 1 && dir->path[length - 1] == '/')
        dir->path[--length] = 0;
    tr_status status = length == 0 ? tri_fail(err, TR_ERROR_INPUT,
                                              "the name of the directory to "
                                              "write is empty")
                                   : check_free(dir->path, replace, marker, err);
    char *parent = parent_of(dir->path);
    if (status == TR_OK && !parent)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    if (status == TR_OK)
        status = tri_make_dirs(parent, err);
    if (status == TR_OK) {
        tri_temporaries_remove(parent, 0, 0);
        dir->temp = make_temp(parent, &dir->held);
        if (!dir->temp)
            status =
                tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be made: %s", path, strerror(errno));
    }
    free(parent);
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

/* Where names cannot be exchanged: what was there goes to a name that nobody takes away, until the
 * new one stands in its place. */
static int replace_in_steps(const tri_staged_dir *dir)
{
    char *old = NULL;
    if (asprintf(&old, "%s.old", dir->temp) < 0)
        return -1;
    int failed = rename(dir->path, old);
    if (failed == 0 && (failed = rename(dir->temp, dir->path)) != 0) {
        int reason = errno;
        (void)rename(old, dir->path);
        errno = reason;
    }
    if (failed == 0)
        tri_remove_dir(old);
    free(old);
    return failed;
}

/* At every moment either the old one or the new one has the name. 0, or -1 with errno set. */
static int replace(const tri_staged_dir *dir)
{
    if (num_entries(dir->path) <= 0)
        return rename(dir->temp, dir->path);
    if (renameat2(AT_FDCWD, dir->temp, AT_FDCWD, dir->path, RENAME_EXCHANGE) != 0)
        return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP ? replace_in_steps(dir)
                                                                         : -1;
    tri_remove_dir(dir->temp); /* begin has made sure that what was there may go */
    return 0;
}

tr_status tri_staged_commit(tri_staged_dir *dir, tr_error *err)
{
    TRI_TRY(tri_sync_dir(dir->temp, err));
    if (replace(dir) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", dir->path,
                        strerror(errno));
    free(dir->temp);
    dir->temp = NULL;
    char *parent = parent_of(dir->path);
    tr_status status = parent ? tri_sync_dir(parent, err)
                              : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir->path);
    free(parent);
    tri_staged_abort(dir);
    return status;
}

void tri_staged_abort(tri_staged_dir *dir)
{
    if (dir->temp)
        tri_remove_dir(dir->temp);
    if (dir->path && dir->held >= 0)
        close(dir->held);
    free(dir->temp);
    free(dir->path);
    *dir = (tri_staged_dir){.held = -1};
}
