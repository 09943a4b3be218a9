#include "train/log/metrics_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

enum { ROOM = 256 << 10 }; /* a longer line is nobody's */

typedef struct line_cutter {
    tri_line_visit visit;
    void *context;
    char *bytes;
    size_t num;
    int64_t at; /* of bytes in the file */
    bool skips; /* what is too long, up to its end */
} line_cutter;

/* Takes the whole lines out of the bytes; *taken counts theirs. */
static tr_status cut(line_cutter *c, size_t *taken, tr_error *err)
{
    size_t at = 0;
    const char *end;
    while ((end = memchr(c->bytes + at, '\n', c->num - at))) {
        size_t length = (size_t)(end - c->bytes) + 1 - at;
        if (!c->skips)
            TRI_TRY(c->visit(c->context, c->bytes + at, length, c->at + (int64_t)at, err));
        c->skips = false;
        at += length;
    }
    *taken = at;
    c->num -= at;
    c->at += (int64_t)at;
    memmove(c->bytes, c->bytes + at, c->num);
    return TR_OK;
}

tr_status tri_lines_scan(int fd, const char *path, int64_t *offset, tri_line_visit visit,
                         void *context, tr_error *err)
{
    line_cutter c = {.visit = visit, .context = context, .bytes = malloc(ROOM), .at = *offset};
    tr_status status =
        c.bytes ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to read it", path);
    int64_t at = *offset, behind = *offset; /* of the last whole line */
    while (status == TR_OK) {
        if (c.num == ROOM) {
            c.skips = true;
            c.num = 0;
            c.at = at;
        }
        ssize_t got = pread(fd, c.bytes + c.num, ROOM - c.num, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status =
                tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be read: %s", path, strerror(errno));
        if (got <= 0)
            break;
        at += got;
        c.num += (size_t)got;
        size_t taken = 0;
        status = cut(&c, &taken, err);
        if (taken > 0)
            behind = at - (int64_t)c.num;
    }
    free(c.bytes);
    *offset = behind;
    return status;
}

typedef struct metrics_visit {
    tri_metrics_visit visit;
    void *context;
} metrics_visit;

static tr_status visit_line(void *context, const char *text, size_t num_bytes, int64_t at,
                            tr_error *err)
{
    metrics_visit *v = context;
    tri_metrics_line line;
    bool ours;
    (void)at;
    TRI_TRY(tri_metrics_line_read(text, num_bytes, &line, &ours, err));
    if (ours)
        v->visit(v->context, &line);
    return TR_OK;
}

tr_status tri_metrics_scan(int fd, const char *path, int64_t *offset, tri_metrics_visit visit,
                           void *context, tr_error *err)
{
    metrics_visit v = {visit, context};
    return tri_lines_scan(fd, path, offset, visit_line, &v, err);
}

tr_status tri_metrics_each(const char *run_dir, tri_metrics_visit visit, void *context,
                           tr_error *err)
{
    char *path = tri_path_join(run_dir, "metrics.jsonl");
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", run_dir);
    int64_t offset = 0;
    struct stat info;
    tr_status status = TR_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT)
        status = tri_fail_open(err, path, errno);
    else if (fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode))
        status = tri_fail_kind(err, path, info.st_mode);
    else if (fd >= 0)
        status = tri_metrics_scan(fd, path, &offset, visit, context, err);
    if (fd >= 0)
        close(fd);
    free(path);
    return status;
}
