/* Bytes of a file, decompressed on the way where they are gzip or zstd. */
#include "base/fs.h"
#include "data/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { IN_BYTES = 256 * 1024 };

typedef enum kind { PLAIN, GZIP, ZSTD } kind;

struct tri_reader {
    char *path;
    int fd;
    kind kind;
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd;
    bool within; /* a member or frame has begun and not ended */
    bool ended;  /* the file has no more bytes than those in `in` */
    unsigned char in[IN_BYTES];
    size_t at, num; /* what is left of it: [at, num) */
    uint64_t consumed;
};

/* The file was there to be opened: whatever is wrong now is no fault of who named it. */
static tr_status cannot_read(const tri_reader *r, int reason, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be read: %s", r->path, strerror(reason));
}

static tr_status refill(tri_reader *r, tr_error *err)
{
    if (r->at < r->num || r->ended)
        return TR_OK;
    r->at = r->num = 0;
    ssize_t got;
    do {
        got = read(r->fd, r->in, IN_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return cannot_read(r, errno, err);
    r->ended = got == 0;
    r->num = (size_t)got;
    r->consumed += (uint64_t)got;
    return TR_OK;
}

static tr_status cut_short(const tri_reader *r, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: the file ends in the middle of its %s data: it was cut short; copy or "
                    "download it again",
                    r->path, r->kind == GZIP ? "gzip" : "zstd");
}

static tr_status damaged(const tri_reader *r, const char *reason, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: cannot be decompressed after %llu bytes: %s; copy or download it again",
                    r->path, (unsigned long long)(r->consumed - (r->num - r->at)), reason);
}

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), num = strlen(end);
    return length > num && strcmp(path + length - num, end) == 0;
}

/* A file that is named as compressed and is not: its bytes are no text, whatever they are. */
static tr_status check_name(const tri_reader *r, tr_error *err)
{
    const char *named = ends_with(r->path, ".gz")    ? "gzip"
                        : ends_with(r->path, ".zst") ? "zstd"
                                                     : NULL;
    if (r->kind != PLAIN || !named || r->num == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: does not begin as %s data does, so it is damaged, or a text with a wrong "
                    "name; copy or download it again, or rename it",
                    r->path, named);
}

/* A frame says how far back it looks, and all of that is held. `zstd --long=31` looks back as far
 * as is allowed here, which is more than the library takes by itself. */
enum { MOST_WINDOW_LOG = sizeof(size_t) > 4 ? 31 : 30 };

static bool open_zstd(tri_reader *r)
{
    r->zstd = ZSTD_createDStream();
    return r->zstd &&
           !ZSTD_isError(ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, MOST_WINDOW_LOG));
}

/* Compression is decided by what the file begins with. A short read (a pipe) is filled up. */
static tr_status begin(tri_reader *r, tr_error *err)
{
    static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    while (r->num < sizeof zstd) {
        ssize_t got = read(r->fd, r->in + r->num, IN_BYTES - r->num);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cannot_read(r, errno, err);
        if (got == 0)
            break;
        r->num += (size_t)got;
        r->consumed += (uint64_t)got;
    }
    if (r->num >= sizeof gzip && memcmp(r->in, gzip, sizeof gzip) == 0)
        r->kind = GZIP;
    else if (r->num >= sizeof zstd && memcmp(r->in, zstd, sizeof zstd) == 0)
        r->kind = ZSTD;
    TRI_TRY(check_name(r, err));
    bool made = true;
    if (r->kind == GZIP)
        made = r->gzip_open = inflateInit2(&r->gzip, 15 + 16) == Z_OK; /* 16: gzip, not zlib */
    else if (r->kind == ZSTD)
        made = open_zstd(r);
    return made ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", r->path);
}

tr_status tri_reader_open(const char *path, tri_reader **reader, tr_error *err)
{
    *reader = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tri_fail_open(err, path, errno);
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        close(fd);
        return tri_fail_kind(err, path, info.st_mode);
    }
    tri_reader *r = calloc(1, sizeof *r);
    char *copy = strdup(path);
    if (!r || !copy) {
        free(r);
        free(copy);
        close(fd);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    }
    r->fd = fd;
    r->path = copy;
    tr_status status = begin(r, err);
    if (status != TR_OK)
        tri_reader_close(r);
    else
        *reader = r;
    return status;
}

void tri_reader_close(tri_reader *r)
{
    if (!r)
        return;
    if (r->gzip_open)
        inflateEnd(&r->gzip);
    ZSTD_freeDStream(r->zstd);
    close(r->fd);
    free(r->path);
    free(r);
}

/* Between two members of gzip there may be padding of zeros, as gzip itself allows. */
static void skip_zeros(tri_reader *r)
{
    while (r->at < r->num && r->in[r->at] == 0)
        r->at++;
}

static tr_status read_gzip(tri_reader *r, unsigned char *out, size_t room, size_t *num,
                           tr_error *err)
{
    if (!r->within) {
        skip_zeros(r);
        if (r->at == r->num)
            return TR_OK;
        inflateReset(&r->gzip);
        r->within = true;
    }
    uInt given = (uInt)(r->num - r->at), space = room > 1u << 30 ? 1u << 30 : (uInt)room;
    r->gzip.next_in = r->in + r->at;
    r->gzip.avail_in = given;
    r->gzip.next_out = out;
    r->gzip.avail_out = space;
    int result = inflate(&r->gzip, Z_NO_FLUSH);
    r->at += given - r->gzip.avail_in;
    *num = space - r->gzip.avail_out;
    if (result == Z_STREAM_END)
        r->within = false;
    else if (result == Z_MEM_ERROR)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", r->path);
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return damaged(r, r->gzip.msg ? r->gzip.msg : "the gzip data is damaged", err);
    return TR_OK;
}

static tr_status read_zstd(tri_reader *r, unsigned char *out, size_t room, size_t *num,
                           tr_error *err)
{
    ZSTD_inBuffer in = {r->in, r->num, r->at};
    ZSTD_outBuffer space = {out, room, 0};
    size_t result = ZSTD_decompressStream(r->zstd, &space, &in);
    r->at = in.pos;
    *num = space.pos;
    if (ZSTD_isError(result) && ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s: no memory to decompress it: its zstd window may take up to 2 GiB; "
                        "compress it again without --long",
                        r->path);
    if (ZSTD_isError(result) &&
        ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its zstd window is larger than the 2 GiB (--long=%d) that are read; "
                        "compress it again without --long or --ultra",
                        r->path, MOST_WINDOW_LOG);
    if (ZSTD_isError(result))
        return damaged(r, ZSTD_getErrorName(result), err);
    r->within = result != 0;
    return TR_OK;
}

tr_status tri_reader_read(tri_reader *r, void *data, size_t num_bytes, size_t *num_read,
                          tr_error *err)
{
    *num_read = 0;
    while (*num_read == 0 && num_bytes > 0) {
        TRI_TRY(refill(r, err));
        bool dry = r->at == r->num; /* and the file is at its end */
        if (r->kind == PLAIN) {
            size_t left = r->num - r->at, take = left < num_bytes ? left : num_bytes;
            memcpy(data, r->in + r->at, take);
            r->at += take;
            *num_read = take;
        } else if (dry && !r->within) {
            return TR_OK;
        } else {
            TRI_TRY((r->kind == GZIP ? read_gzip : read_zstd)(r, data, num_bytes, num_read, err));
            /* What the decompressor still held has come out; no more will. */
            if (dry && *num_read == 0 && r->within)
                return cut_short(r, err);
        }
        if (dry && *num_read == 0)
            return TR_OK;
    }
    return TR_OK;
}

uint64_t tri_reader_consumed(const tri_reader *r)
{
    return r->consumed - (r->num - r->at);
}
