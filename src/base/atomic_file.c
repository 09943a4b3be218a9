/* Replacing a file whole: see tri_atomic_file in fs.h. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temporary.h"

static tr_status no_memory(tr_error *err, const char *path)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
}

/* "." or "/" or everything before the last name; on the heap. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* A file takes its name by rename, which would replace /dev/null, or the pipe behind /dev/stdout,
 * by a file. */
static tr_status refuse_special(const char *path, tr_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s: is a %s, which a file would replace; name a file",
                    path,
                    S_ISFIFO(info.st_mode)   ? "pipe"
                    : S_ISSOCK(info.st_mode) ? "socket"
                                             : "device");
}

tr_status tri_check_output(const char *path, bool makes_dirs, tr_error *err)
{
    if (!*path)
        return tri_fail(err, TR_ERROR_INPUT, "the name of what is to be written is empty");
    if (!makes_dirs && tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: cannot be written: it is a directory; name a file in it", path);
    TRI_TRY(refuse_special(path, err));
    char *above = parent_of(path);
    while (above && makes_dirs && !tri_path_exists(above) && strcmp(above, "/") != 0 &&
           strcmp(above, ".") != 0) {
        char *next = parent_of(above);
        free(above);
        above = next;
    }
    if (!above)
        return no_memory(err, path);
    tr_status status = TR_OK;
    if (!tri_path_exists(above))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: there is no directory %s; make it first (mkdir "
                          "-p %s), or name another place",
                          path, above, above);
    else if (!tri_path_is_dir(above))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: %s is a file, not a directory; name another "
                          "place",
                          path, above);
    else if (access(above, W_OK | X_OK) != 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: %s: %s; name a place that you may write to", path,
                          above, strerror(errno));
    else
        tri_temporaries_remove(above, 0, 0);
    free(above);
    return status;
}

/* Opens a new hidden file beside path. The name does not contain that of path, which may already
 * be as long as names can be, and several ranks of one process may ask at once: O_EXCL decides. */
static int open_temporary(const char *path, char **temporary)
{
    const int max_tries = 10000;
    char *parent = parent_of(path);
    char *name = NULL;
    int fd = -1;
    errno = ENOMEM;
    for (int i = 0; parent && fd < 0 && i < max_tries; i++) {
        free(name);
        name = tri_temporary_path(parent, i);
        if (!name)
            break;
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
        if (fd >= 0 && !tri_temporary_hold(fd)) {
            close(fd);
            fd = -1;
            errno = EEXIST;
        }
    }
    int reason = errno;
    free(parent);
    if (fd < 0) {
        free(name);
        name = NULL;
    }
    *temporary = name;
    errno = reason;
    return fd;
}

tr_status tri_atomic_begin(tri_atomic_file *file, const char *path, tr_error *err)
{
    *file = (tri_atomic_file){.fd = -1};
    if (!*path)
        return tri_fail(err, TR_ERROR_INPUT, "cannot write a file: its name is empty");
    /* Found out now rather than by rename after everything has been written. */
    if (tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: it is a directory", path);
    TRI_TRY(refuse_special(path, err));
    file->path = strdup(path);
    if (!file->path)
        return no_memory(err, path);
    file->fd = open_temporary(path, &file->temporary);
    if (file->fd >= 0)
        return TR_OK;
    int reason = errno;
    tri_atomic_abort(file);
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(reason));
}

void tri_atomic_abort(tri_atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (tri_atomic_file){.fd = -1};
}

/* Names the file and the reason, then takes the temporary away. */
static tr_status atomic_failed(tri_atomic_file *file, int reason, tr_error *err)
{
    tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s; what was there before is untouched",
             file->path, strerror(reason));
    tri_atomic_abort(file);
    return TR_ERROR_RUNTIME;
}

tr_status tri_atomic_write(tri_atomic_file *file, const void *data, size_t num_bytes, tr_error *err)
{
    if (file->fd < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "a write to a file that is not open");
    const unsigned char *next = data;
    while (num_bytes > 0) {
        ssize_t written = write(file->fd, next, num_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return atomic_failed(file, written < 0 ? errno : EIO, err);
        next += written;
        num_bytes -= (size_t)written;
    }
    return TR_OK;
}

tr_status tri_sync_dir(const char *path, tr_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) /* it may be written to, but not read */
        return TR_OK;
    int failed = fd < 0 ? -1 : fsync(fd), reason = errno;
    if (fd >= 0)
        close(fd);
    /* Some file systems cannot do this for a directory. */
    if (failed == 0 || reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP ||
        reason == EBADF || reason == EROFS)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: the directory cannot be synced: %s", path,
                    strerror(reason));
}

/* A rename survives a power cut only once its directory is on the disk. */
static tr_status sync_parent(const char *path, tr_error *err)
{
    char *parent = parent_of(path);
    tr_status status = parent ? tri_sync_dir(parent, err) : no_memory(err, path);
    free(parent);
    if (status == TR_OK)
        return TR_OK;
    return tri_fail_prefix(err, status, "%s: was written, but may be lost when the power fails",
                           path);
}

/* Closes first, since network file systems report a full disk there, and then renames. */
static int close_and_rename(tri_atomic_file *file)
{
    int held = dup(file->fd), fd = file->fd; /* the name stays one of a living process */
    file->fd = -1;
    int failed = close(fd);
    if (failed == 0)
        failed = rename(file->temporary, file->path);
    int reason = errno;
    if (held >= 0)
        close(held);
    errno = reason;
    return failed;
}

tr_status tri_atomic_commit(tri_atomic_file *file, tr_error *err)
{
    if (file->fd < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "a commit of a file that is not open");
    if (fsync(file->fd) != 0)
        return atomic_failed(file, errno, err);
    if (close_and_rename(file) != 0)
        return atomic_failed(file, errno, err);
    free(file->temporary);
    file->temporary = NULL;
    tr_status status = sync_parent(file->path, err);
    tri_atomic_abort(file);
    return status;
}

tr_status tri_file_replace(const char *path, const void *data, size_t num_bytes, tr_error *err)
{
    tri_atomic_file file;
    TRI_TRY(tri_atomic_begin(&file, path, err));
    TRI_TRY(tri_atomic_write(&file, data, num_bytes, err));
    return tri_atomic_commit(&file, err);
}
