/* Writing a shard: tokens first, and the header, which says how many there are, at the end. */
#include "data/prepare/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 * 1024 };

static tr_status failed(const tri_shard_writer *w, int reason, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", w->path, strerror(reason));
}

static tr_status put(const tri_shard_writer *w, const unsigned char *data, size_t num_bytes,
                     int64_t offset, tr_error *err)
{
    while (num_bytes > 0) {
        ssize_t done = pwrite(w->fd, data, num_bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return failed(w, done < 0 ? errno : EIO, err);
        data += done;
        offset += done;
        num_bytes -= (size_t)done;
    }
    return TR_OK;
}

tr_status tri_shard_begin(tri_shard_writer *w, const char *path, int32_t vocab, int32_t separator,
                          uint64_t fingerprint, tr_error *err)
{
    *w = (tri_shard_writer){.fd = -1,
                            .path = strdup(path),
                            .buffer = malloc(BUFFER_BYTES),
                            .width = vocab <= 65536 ? 2 : 4,
                            .vocab = vocab,
                            .separator = separator,
                            .fingerprint = fingerprint};
    tri_checksum_init(&w->hash);
    if (!w->path || !w->buffer)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return w->fd < 0 ? failed(w, errno, err) : TR_OK;
}

static tr_status flush(tri_shard_writer *w, tr_error *err)
{
    uint64_t before = w->hash.num_bytes;
    tri_checksum_add(&w->hash, w->buffer, w->filled);
    TRI_TRY(put(w, w->buffer, w->filled, (int64_t)(TRI_SHARD_HEADER_BYTES + before), err));
    w->filled = 0;
    return TR_OK;
}

tr_status tri_shard_write(tri_shard_writer *w, const int32_t *tokens, size_t num, tr_error *err)
{
    for (size_t i = 0; i < num; i++) {
        if (w->filled == BUFFER_BYTES)
            TRI_TRY(flush(w, err));
        uint16_t two = htole16((uint16_t)tokens[i]);
        uint32_t four = htole32((uint32_t)tokens[i]);
        memcpy(w->buffer + w->filled, w->width == 2 ? (void *)&two : (void *)&four,
               (size_t)w->width);
        w->filled += (size_t)w->width;
        w->num_documents += tokens[i] == w->separator;
    }
    w->num_tokens += num;
    return TR_OK;
}

static void set_word(unsigned char *header, size_t offset, uint32_t value)
{
    value = htole32(value);
    memcpy(header + offset, &value, sizeof value);
}

static void set_long(unsigned char *header, size_t offset, uint64_t value)
{
    value = htole64(value);
    memcpy(header + offset, &value, sizeof value);
}

tr_status tri_shard_end(tri_shard_writer *w, tr_error *err)
{
    unsigned char header[TRI_SHARD_HEADER_BYTES] = "TRITOKEN";
    TRI_TRY(flush(w, err));
    set_word(header, 8, TRI_SHARD_VERSION);
    set_word(header, 12, TRI_SHARD_HEADER_BYTES);
    set_word(header, 16, (uint32_t)w->width);
    set_word(header, 20, (uint32_t)w->vocab);
    set_word(header, 24, (uint32_t)w->separator); /* -1: all bits */
    set_long(header, 32, w->num_tokens);
    set_long(header, 40, w->separator < 0 ? 0 : w->num_documents);
    set_long(header, 48, w->fingerprint);
    set_long(header, 56, tri_checksum_end(&w->hash));
    set_long(header, 88, tri_checksum_bytes(header, 88));
    TRI_TRY(put(w, header, sizeof header, 0, err));
    int fd = w->fd;
    if (fsync(fd) != 0)
        return failed(w, errno, err);
    w->fd = -1;
    if (close(fd) != 0) /* network file systems report a full disk here */
        return failed(w, errno, err);
    tri_shard_abandon(w);
    return TR_OK;
}

void tri_shard_abandon(tri_shard_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    free(w->buffer);
    *w = (tri_shard_writer){.fd = -1};
}
