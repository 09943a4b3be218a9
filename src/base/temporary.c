#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/staged_dir.h"

static const char *host(struct utsname *names)
{
    return uname(names) == 0 && names->nodename[0] ? names->nodename : "localhost";
}

char *tri_temporary_path(const char *dir, int i)
{
    struct utsname names;
    char *path = NULL;
    return asprintf(&path, "%s/.trireme-%ld-%s-%d.tmp", dir, (long)getpid(), host(&names), i) < 0
               ? NULL
               : path;
}

bool tri_temporary_hold(int fd)
{
    struct stat info;
    (void)flock(fd, LOCK_EX | LOCK_NB); /* where that cannot be, nobody else can either */
    return fstat(fd, &info) != 0 || info.st_nlink > 0;
}

/* The process that a name says, if it is one of this machine; or 0. */
static pid_t owner_of(const char *name)
{
    struct utsname names;
    char rest[300], *end;
    if (strncmp(name, ".trireme-", 9) != 0)
        return 0;
    long pid = strtol(name + 9, &end, 10);
    const char *dash = strrchr(end, '-');
    size_t length = strlen(host(&names));
    if (pid <= 0 || *end != '-' || !dash || (size_t)(dash - end) != length + 1 ||
        strncmp(end + 1, host(&names), length) != 0)
        return 0;
    snprintf(rest, sizeof rest, "%s", dash + 1);
    size_t digits = strspn(rest, "0123456789");
    return digits > 0 && strcmp(rest + digits, ".tmp") == 0 ? (pid_t)pid : 0;
}

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

/* A process that this one cannot see would hold it. */
static bool is_held(const char *path)
{
    /* A lock may need the right to write, which a directory does not have. */
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == EISDIR)
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return !free;
}

void tri_temporaries_remove(const char *dir, pid_t pid, int depth)
{
    DIR *handle = opendir(dir);
    for (struct dirent *entry; handle && (entry = readdir(handle));) {
        pid_t owner = owner_of(entry->d_name);
        bool wanted = owner > 0 && (pid > 0 ? owner == pid : is_dead(owner));
        bool below = entry->d_type == DT_DIR && entry->d_name[0] != '.' && depth > 0;
        char *path = wanted || below ? tri_path_join(dir, entry->d_name) : NULL;
        if (path && wanted && (pid > 0 || !is_held(path))) {
            if (unlink(path) != 0)
                tri_remove_dir(path);
        } else if (path && below) {
            tri_temporaries_remove(path, pid, depth - 1);
        }
        free(path);
    }
    if (handle)
        closedir(handle);
}

int tri_temporary_replace(const char *dir, const char *path, const void *data, size_t num_bytes)
{
    enum { MOST_TRIES = 1000 };
    char *temporary = NULL;
    int fd = -1, reason = ENOMEM;
    for (int i = 0; fd < 0 && i < MOST_TRIES; i++) {
        free(temporary);
        temporary = tri_temporary_path(dir, i);
        if (temporary)
            fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        reason = fd >= 0 ? 0 : temporary ? errno : ENOMEM;
        if (fd < 0 && reason != EEXIST)
            break;
    }
    if (fd >= 0) {
        if (!tri_temporary_hold(fd))
            reason = EAGAIN;
        ssize_t num = reason == 0 ? pwrite(fd, data, num_bytes, 0) : -1;
        if (reason == 0 && num != (ssize_t)num_bytes)
            reason = num < 0 ? errno : ENOSPC;
        if (reason == 0 && rename(temporary, path) != 0)
            reason = errno;
        if (reason != 0)
            (void)unlink(temporary);
        close(fd);
    }
    free(temporary);
    return reason;
}
