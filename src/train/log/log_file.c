#include "train/log/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tri_log_file_init(tri_log_file *file)
{
    *file = (tri_log_file){.fd = -1};
    tri_text_init(&file->pending);
}

void tri_log_file_fini(tri_log_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    tri_text_fini(&file->pending);
    file->fd = -1;
    file->path = NULL;
}

int tri_log_file_open(tri_log_file *file, const char *path)
{
    /* For reading, too: a pipe in the place of a file does not wait for its reader then. */
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0666);
    struct stat info;
    int reason = fd < 0 || fstat(fd, &info) != 0 ? errno : 0;
    if (reason == 0 && !S_ISREG(info.st_mode))
        reason = EINVAL;
    char *kept = reason == 0 ? strdup(path) : NULL;
    if (reason == 0 && !kept)
        reason = ENOMEM;
    if (reason != 0) {
        if (fd >= 0)
            close(fd);
        return reason;
    }
    free(file->path);
    file->path = kept;
    file->fd = fd;
    file->size = info.st_size;
    file->torn = false;
    return 0;
}

int tri_log_file_cut(tri_log_file *file, off_t size)
{
    if (ftruncate(file->fd, size) != 0)
        return errno;
    file->size = size;
    return 0;
}

off_t tri_log_file_end(const tri_log_file *file)
{
    return file->size + (off_t)file->pending.length;
}

void tri_log_file_put(tri_log_file *file, const void *data, size_t num_bytes)
{
    tri_text_add_bytes(&file->pending, data, num_bytes);
}

void tri_log_file_drop(tri_log_file *file, int reason)
{
    file->lost_rows += file->pending_rows;
    if (file->reason == 0)
        file->reason = reason;
    file->pending.length = 0;
    file->pending.failed = false;
    file->pending_rows = 0;
}

static int write_all(tri_log_file *file)
{
    const char *data = file->pending.chars;
    size_t left = file->pending.length;
    off_t at = file->size;
    while (left > 0) {
        ssize_t num = pwrite(file->fd, data, left, at);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return num < 0 ? errno : ENOSPC;
        data += num;
        left -= (size_t)num;
        at += num;
    }
    return 0;
}

void tri_log_file_flush(tri_log_file *file)
{
    if (file->pending.length == 0 && file->pending_rows == 0 && !file->pending.failed)
        return;
    int reason = file->pending.failed ? ENOMEM : file->fd < 0 ? EBADF : 0;
    if (reason == 0 && file->torn && ftruncate(file->fd, file->size) != 0)
        reason = errno;
    if (reason == 0) {
        reason = write_all(file);
        file->torn = reason != 0 && ftruncate(file->fd, file->size) != 0;
    }
    if (reason != 0) {
        tri_log_file_drop(file, reason);
        return;
    }
    file->size += (off_t)file->pending.length;
    file->pending.length = 0;
    file->pending_rows = 0;
}
