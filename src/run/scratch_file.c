#include "run/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text.h"

/* Some file systems know no files without a name: theirs loses it at once. */
static int make_nameless(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char path[sizeof((tri_scratch_file *)0)->dir + sizeof "/.trireme-scratch-XXXXXX"];
    snprintf(path, sizeof path, "%s/.trireme-scratch-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static tr_status no_room(const tri_scratch_file *file, int code, tr_error *err)
{
    struct statvfs fs;
    char wanted[16], room[16] = "?";
    if (statvfs(file->dir, &fs) == 0)
        tri_text_bytes((double)fs.f_bavail * (double)fs.f_frsize, room);
    return tri_fail(err, TR_ERROR_INPUT,
                    "a scratch file of %s in %s cannot be made: %s (%s are free there); make room, "
                    "or name a directory on a larger disk",
                    tri_text_bytes((double)file->bytes, wanted), file->dir, strerror(code), room);
}

tr_status tri_scratch_file_open(tri_scratch_file *file, const char *dir, uint64_t bytes,
                                tr_error *err)
{
    *file = (tri_scratch_file){.fd = -1, .bytes = bytes};
    if (strlen(dir) >= sizeof file->dir)
        return tri_fail(err, TR_ERROR_INPUT, "the name of the scratch directory %s is too long",
                        dir);
    snprintf(file->dir, sizeof file->dir, "%s", dir);
    file->fd = make_nameless(dir);
    if (file->fd < 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a scratch file in %s cannot be made: %s; name a directory that can be "
                        "written to",
                        dir, strerror(errno));
    int code = posix_fallocate(file->fd, 0, (off_t)bytes);
    if (code == 0)
        return TR_OK;
    tri_scratch_file_close(file);
    return no_room(file, code, err);
}

void tri_scratch_file_close(tri_scratch_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

static tr_status failed(const tri_scratch_file *file, const char *doing, uint64_t offset,
                        const char *why, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "the scratch file in %s could not be %s at byte %llu: %s; look at the disk, "
                    "then start again from the last checkpoint",
                    file->dir, doing, (unsigned long long)offset, why);
}

tr_status tri_scratch_file_read(const tri_scratch_file *file, uint64_t offset, void *to,
                                size_t bytes, tr_error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return failed(file, "read", offset + done, got < 0 ? strerror(errno) : "it ends there",
                          err);
        done += (size_t)got;
    }
    return TR_OK;
}

tr_status tri_scratch_file_write(const tri_scratch_file *file, uint64_t offset, const void *from,
                                 size_t bytes, tr_error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put =
            pwrite(file->fd, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return failed(file, "written", offset + done,
                          put < 0 ? strerror(errno) : "nothing was taken", err);
        done += (size_t)put;
    }
    return TR_OK;
}
