#include "cli/run/disk.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool tri_disk_free(const char *path, double *bytes)
{
    char *copy = strdup(*path ? path : ".");
    char *existing = copy;
    while (existing && access(existing, F_OK) != 0 && errno == ENOENT)
        existing = dirname(existing);
    struct statvfs info;
    bool writable = existing && access(existing, W_OK | X_OK) == 0 && statvfs(existing, &info) == 0;
    int why = errno;
    if (writable)
        *bytes = (double)info.f_bavail * (double)info.f_frsize;
    free(copy);
    errno = why;
    return writable;
}
