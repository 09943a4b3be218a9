/* A run that stands still at a step, so that a test finds it there however busy the machine is:
 * the process that writes metrics.jsonl has written the line of HOLD_STEP, and goes on when the
 * file HOLD_UNTIL is there.
 *
 *     HOLD_STEP=15 HOLD_UNTIL=/tmp/go LD_PRELOAD=libhold-shim.so trireme train ... */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int fd, const void *data, size_t num_bytes)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    ssize_t written = real(fd, data, num_bytes);
    const char *step = getenv("HOLD_STEP"), *until = getenv("HOLD_UNTIL");
    char begin[64];
    if (!step || !until || written != (ssize_t)num_bytes)
        return written;
    size_t length = (size_t)snprintf(begin, sizeof begin, "{\"step\":%s,", step);
    if (num_bytes > length && memcmp(data, begin, length) == 0)
        while (access(until, F_OK) != 0)
            usleep(2000);
    return written;
}
