/* A disk that is slow or broken in one place: fsync and fdatasync of files whose path ends in
 * DISK_PATH.
 *
 *     DISK_PATH=rank-1.safetensors DISK_PAUSE_MS=3000 LD_PRELOAD=libdisk-shim.so PROGRAM
 *     DISK_PATH=/ckpt DISK_ERRNO=5 LD_PRELOAD=libdisk-shim.so PROGRAM */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_meant(int fd)
{
    const char *wanted = getenv("DISK_PATH");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t end = wanted ? strlen(wanted) : 0;
    if (!wanted || length < (ssize_t)end)
        return false;
    path[length] = 0;
    return strcmp(path + length - (ssize_t)end, wanted) == 0;
}

static int sync_slowly(const char *name, int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (is_meant(fd)) {
        const char *pause_ms = getenv("DISK_PAUSE_MS"), *reason = getenv("DISK_ERRNO");
        for (int ms = pause_ms ? atoi(pause_ms) : 0; ms > 0; ms -= 100)
            usleep(100000);
        if (reason) {
            errno = atoi(reason);
            return -1;
        }
    }
    return real(fd);
}

int fsync(int fd)
{
    return sync_slowly("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_slowly("fdatasync", fd);
}
