#include "run/rank_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

void tri_rank_output_init(tri_rank_output *output)
{
    *output = (tri_rank_output){.pipe = -1, .log = -1};
}

void tri_rank_output_fini(tri_rank_output *output)
{
    if (output->pipe >= 0)
        close(output->pipe);
    if (output->log >= 0)
        close(output->log);
    output->pipe = output->log = -1;
}

/* Whoever can write to the directory could let us write to another file: links are not followed,
 * and what is not a file of ours with this one name is left alone and makes room for one. */
static int open_log(const char *path, bool append)
{
    struct stat s;
    int how = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (append ? O_APPEND : 0);
    int fd = open(path, how, 0666);
    if (fd < 0 || fstat(fd, &s) != 0)
        return fd;
    if (!S_ISREG(s.st_mode) || s.st_uid != geteuid() || s.st_nlink != 1) {
        close(fd);
        return unlink(path) == 0 ? open(path, how | O_EXCL, 0666) : -1;
    }
    if (append || ftruncate(fd, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

tr_status tri_rank_output_open(tri_rank_output *output, const char *dir, int rank, bool append,
                               tr_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%d.log", rank);
    char *path = tri_path_join(dir, name);
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    output->log = open_log(path, append);
    tr_status status = TR_OK;
    if (output->log < 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path,
                          errno == ELOOP ? "it is a symbolic link; remove it" : strerror(errno));
    free(path);
    return status;
}

static void keep_tail(tri_rank_output *output, const char *data, size_t n)
{
    const size_t most = TRI_OUTPUT_TAIL_BYTES;
    if (n > most) {
        data += n - most;
        n = most;
    }
    size_t keep = output->tail_used + n > most ? most - n : output->tail_used;
    memmove(output->tail, output->tail + output->tail_used - keep, keep);
    memcpy(output->tail + keep, data, n);
    output->tail_used = keep + n;
    output->tail[output->tail_used] = 0;
}

/* A log that cannot be written (a full disk) does not end the run. */
static void write_log(int fd, const char *data, size_t n)
{
    while (fd >= 0 && n > 0) {
        ssize_t written = write(fd, data, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        data += written;
        n -= (size_t)written;
    }
}

void tri_rank_output_drain(tri_rank_output *output, tri_output_fn relay, void *context)
{
    enum { MAX_READS = 16 }; /* then the others get their turn */
    char data[16384];
    for (int i = 0; i < MAX_READS && output->pipe >= 0; i++) {
        ssize_t n = read(output->pipe, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        if (n == 0) {
            close(output->pipe);
            output->pipe = -1;
            return;
        }
        write_log(output->log, data, (size_t)n);
        keep_tail(output, data, (size_t)n);
        if (relay)
            relay(context, data, (size_t)n);
    }
}

const char *tri_rank_output_last_lines(tri_rank_output *output)
{
    enum { NUM_LINES = 10 };
    char *tail = output->tail;
    for (char *at = tail; *at; at++) /* what moves a cursor has no place in a report */
        if (*at == '\r' || *at == '\033')
            *at = *at == '\r' ? '\n' : ' ';
    while (output->tail_used > 0 && tail[output->tail_used - 1] == '\n')
        tail[--output->tail_used] = 0;
    char *start = tail + output->tail_used;
    for (int lines = 0; start > tail; start--)
        if (start[-1] == '\n' && ++lines == NUM_LINES)
            break;
    return start;
}
