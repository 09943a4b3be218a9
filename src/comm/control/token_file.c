#include "comm/control/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

tr_status tri_token_file_write(const char *path, const char *token, tr_error *err)
{
    (void)unlink(path); /* of a job that was killed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t length = strlen(token);
    bool written = fd >= 0 && write(fd, token, length) == (ssize_t)length;
    int wrong = errno;
    if (fd >= 0 && close(fd) != 0 && written) {
        wrong = errno;
        written = false;
    }
    if (written)
        return TR_OK;
    if (fd >= 0)
        (void)unlink(path);
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s, the file through which ranks learn the job's token, cannot be written: "
                    "%s; set TRIREME_TOKEN to the same secret for all ranks",
                    path, strerror(wrong));
}

/* What is wrong with the file; NULL: nothing. */
static const char *is_suspect(int fd)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        return "it is not a file";
    if (s.st_uid != geteuid())
        return "it belongs to another user";
    return s.st_mode & 077 ? "others may read or write it" : NULL;
}

tr_status tri_token_file_read(const char *path, double patience_s,
                              char token[TRI_CONTROL_MAX_TOKEN], tr_error *err)
{
    enum { PAUSE_US = 20000 };
    uint64_t until = tri_now_ns() + (uint64_t)(patience_s * 1e9);
    ssize_t n = 0;
    int fd = -1, wrong = 0;
    do {
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        wrong = errno;
        const char *suspect = fd >= 0 ? is_suspect(fd) : NULL;
        if (suspect != NULL) {
            close(fd);
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "%s should hold the job's token, but %s: it is not rank 0's; remove "
                            "it, or set TRIREME_TOKEN to the same secret for all ranks",
                            path, suspect);
        }
        n = fd >= 0 ? read(fd, token, TRI_CONTROL_MAX_TOKEN - 1) : 0;
        if (fd >= 0)
            close(fd);
        if (n <= 0 && fd < 0 && wrong != ENOENT && wrong != ESTALE)
            break;
        if (n <= 0)
            usleep(PAUSE_US);
    } while (n <= 0 && tri_now_ns() < until);
    token[n > 0 ? n : 0] = '\0';
    if (n > 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "the job's token, which rank 0 leaves in %s, cannot be read: %s; where ranks "
                    "share no directory, or run as several users, set TRIREME_TOKEN to the same "
                    "secret for all of them",
                    path, fd < 0 ? strerror(wrong) : "it is empty");
}

tr_status tri_token_private_dir(char *path, size_t capacity, tr_error *err)
{
    struct stat s;
    snprintf(path, capacity, "/tmp/trireme-%ld", (long)geteuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s cannot be made: %s; set TRIREME_TOKEN to the same secret for all ranks",
                        path, strerror(errno));
    if (lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
        (s.st_mode & 077) == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s is not a directory of yours that nobody else can look into; set "
                    "TRIREME_TOKEN to the same secret for all ranks",
                    path);
}
