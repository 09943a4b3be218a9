#include "train/run/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/temporary.h"

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

/* Wrong input, unless the machine is to blame: the same command may do once there is room. */
static tr_status unusable(tr_error *err, tr_status status, int reason)
{
    bool machine = reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == ENOMEM;
    if (err && status == TR_ERROR_RUNTIME && !machine)
        err->status = status = TR_ERROR_INPUT;
    if (err && status == TR_ERROR_RUNTIME) {
        char what[sizeof err->message];
        snprintf(what, sizeof what, "%s", err->message);
        return tri_fail(err, status, "%s; make room, or set run.dir to another disk", what);
    }
    return tri_advise(err, status, "set run.dir to a directory that can be written");
}

static tr_status may_write(const char *dir, tr_error *err)
{
    if (access(dir, W_OK | X_OK) == 0)
        return TR_OK;
    int reason = errno;
    return unusable(
        err, tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", dir, strerror(reason)),
        reason);
}

/* What a run writes must not meet something else of that name, least of all at its end. */
static tr_status check_names(const char *dir, tr_error *err)
{
    static const struct {
        const char *name;
        bool is_dir;
    } entries[] = {{"config.yaml", false},
                   {"metrics.jsonl", false},
                   {"weights.safetensors", false},
                   {"ckpt", true}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char *path = tri_path_join(dir, entries[i].name);
        tr_status status = TR_OK;
        if (!path)
            status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
        else if (tri_path_exists(path) && tri_path_is_dir(path) != entries[i].is_dir)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "%s: is a %s, and a run writes a %s of that name; rename it, or give "
                              "the run a run.dir of its own",
                              path, entries[i].is_dir ? "file" : "directory",
                              entries[i].is_dir ? "directory" : "file");
        free(path);
        TRI_TRY(status);
    }
    return TR_OK;
}

tr_status tri_run_dir_check(const char *dir, tr_error *err)
{
    if (!*dir)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.dir is empty; name a directory for the run, such as runs/mine");
    struct stat info;
    if (stat(dir, &info) == 0) {
        if (!S_ISDIR(info.st_mode))
            return unusable(err,
                            tri_fail(err, TR_ERROR_INPUT,
                                     "%s: is not a directory: a file of that name exists", dir),
                            0);
        TRI_TRY(may_write(dir, err));
        return check_names(dir, err);
    }
    if (errno == ENOTDIR)
        return unusable(err,
                        tri_fail(err, TR_ERROR_INPUT,
                                 "%s: cannot be made: something above it is a file and not a "
                                 "directory",
                                 dir),
                        0);
    if (errno != ENOENT)
        return may_write(dir, err);
    /* It is still to be made, so it is the nearest directory above it that counts. */
    char *above = strdup(dir);
    if (!above)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    size_t length = length_there(above);
    above[length] = 0;
    tr_status status = may_write(length ? above : *dir == '/' ? "/" : ".", err);
    free(above);
    return status;
}

/* Whether the process that took the lock is there, as far as the system says. */
static bool taker_lives(int fd)
{
    struct stat info;
    FILE *locks = fopen("/proc/locks", "re");
    char line[256];
    bool lives = false;
    while (locks && fstat(fd, &info) == 0 && fgets(line, sizeof line, locks)) {
        long pid;
        unsigned major, minor;
        unsigned long long inode;
        if (sscanf(line, "%*s FLOCK %*s WRITE %ld %x:%x:%llu", &pid, &major, &minor, &inode) == 4 &&
            inode == info.st_ino && makedev(major, minor) == info.st_dev && pid > 0)
            lives |= kill((pid_t)pid, 0) == 0 || errno == EPERM;
    }
    if (locks)
        fclose(locks);
    return lives;
}

/* Ranks hold the lock with the launcher that took it. When it is killed the kernel ends them a
 * moment later, and whoever starts the run again at once waits for that. Where directories cannot
 * be locked, as on some network file systems, it goes without. */
static bool is_taken(int fd)
{
    enum { PATIENCE_MS = 5000, TICK_MS = 10 };
    for (int waited = 0;; waited += TICK_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return false;
        if (waited >= PATIENCE_MS || taker_lives(fd))
            return true;
        usleep(TICK_MS * 1000);
    }
}

/* Whether the directory that was locked still has the name: an earlier holder may have moved it
 * aside meanwhile. */
static bool is_still(int fd, const char *dir)
{
    struct stat held, named;
    return fstat(fd, &held) != 0 || stat(dir, &named) != 0 ||
           (held.st_ino == named.st_ino && held.st_dev == named.st_dev);
}

tr_status tri_run_lock_take(tri_run_lock *lock, const char *dir, tr_error *err)
{
    *lock = (tri_run_lock){.fd = -1};
    TRI_TRY(tri_run_dir_check(dir, err));
    lock->path = strdup(dir);
    if (!lock->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    lock->old = length_there(lock->path);
    tr_status status = tri_make_dirs(dir, err);
    if (status != TR_OK)
        return unusable(err, status, errno);
    for (int tries = 0; tries < 10; tries++) {
        if (lock->fd >= 0)
            close(lock->fd);
        lock->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock->fd >= 0 && is_taken(lock->fd))
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "%s: another run is at work there; wait for its end, or give this one "
                            "a run.dir of its own",
                            dir);
        if (lock->fd < 0 || is_still(lock->fd, dir))
            break;
    }
    tri_temporaries_remove(dir, 0, 1); /* data, too */
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
