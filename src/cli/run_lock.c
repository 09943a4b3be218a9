#include "cli/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"

/* How much of a path names a directory that exists. */
static size_t length_there(char *path)
{
    size_t length = strlen(path);
    while (length > 0) {
        char cut = path[length];
        path[length] = 0;
        bool there = tri_path_is_dir(path);
        path[length] = cut;
        if (there)
            break;
        while (length > 0 && path[length - 1] != '/')
            length--;
        while (length > 0 && path[length - 1] == '/')
            length--;
    }
    return length;
}

static tr_status advise(tr_error *err, tr_status status)
{
    char what[sizeof err->message];
    snprintf(what, sizeof what, "%s", err->message);
    return tri_fail(err, status, "%s; set run.dir to a directory that can be written", what);
}

tr_status tri_run_lock_take(tri_run_lock *lock, const char *dir, tr_error *err)
{
    *lock = (tri_run_lock){.fd = -1};
    if (!*dir)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.dir is empty; name a directory for the run, such as runs/mine");
    lock->path = strdup(dir);
    if (!lock->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    lock->old = length_there(lock->path);
    tr_status status = tri_make_dirs(dir, err);
    if (status == TR_OK && access(dir, W_OK | X_OK) != 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", dir, strerror(errno));
    if (status != TR_OK)
        return advise(err, status);
    lock->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Where directories cannot be locked, as on some network file systems, it goes without. */
    if (lock->fd >= 0 && flock(lock->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: another run is at work there; wait for its end, or give this one a "
                        "run.dir of its own",
                        dir);
    return TR_OK;
}

void tri_run_lock_release(tri_run_lock *lock)
{
    char *path = lock->path;
    size_t length = path ? strlen(path) : 0;
    while (length > lock->old && rmdir(path) == 0) {
        while (length > 0 && path[length - 1] != '/')
            length--;
        while (length > 0 && path[length - 1] == '/')
            length--;
        path[length] = 0;
    }
    if (lock->fd >= 0)
        close(lock->fd);
    free(path);
    *lock = (tri_run_lock){.fd = -1};
}
