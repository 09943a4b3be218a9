#include "cli/launch/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most that is kept for a reader that is behind. PIPE_BUF: a pipe that can be written takes so
 * much without waiting. */
enum { MOST_PENDING = 1 << 20, AT_ONCE = 4096, PATIENCE_MS = 3000 };

void tri_relay_init(tri_relay *r, int fd)
{
    *r = (tri_relay){.fd = fd};
}

void tri_relay_fini(tri_relay *r)
{
    free(r->pending);
    *r = (tri_relay){.fd = -1};
}

bool tri_has_room(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    return poll(&poll_fd, 1, timeout_ms) == 1; /* an error counts: the write will tell it */
}

static void keep(tri_relay *r, const char *data, size_t num_bytes)
{
    size_t room = MOST_PENDING - r->num_bytes;
    if (num_bytes > room) {
        r->dropped = true;
        num_bytes = room;
    }
    if (r->num_bytes + num_bytes > r->capacity) {
        size_t capacity = 2 * (r->num_bytes + num_bytes);
        char *grown = realloc(r->pending, capacity);
        if (!grown) {
            r->dropped = true;
            return;
        }
        r->pending = grown;
        r->capacity = capacity;
    }
    if (num_bytes > 0)
        memcpy(r->pending + r->num_bytes, data, num_bytes);
    r->num_bytes += num_bytes;
}

/* Writes until the reader takes nothing for so long. Returns the bytes that are done with: written,
 * or in vain. */
static size_t write_some(tri_relay *r, const char *data, size_t num_bytes, int timeout_ms)
{
    size_t done = 0;
    bool failed = false;
    while (done < num_bytes && !failed && tri_has_room(r->fd, timeout_ms)) {
        size_t n = num_bytes - done < AT_ONCE ? num_bytes - done : AT_ONCE;
        ssize_t written = write(r->fd, data + done, n);
        if (written > 0)
            done += (size_t)written;
        else if (written == 0 || errno == EAGAIN)
            break;
        else if (errno != EINTR) {
            r->lost = errno;
            failed = true;
        }
    }
    if (done > 0)
        r->line_open = data[done - 1] != '\n';
    return failed ? num_bytes : done;
}

static void let_out(tri_relay *r, int timeout_ms)
{
    size_t done = write_some(r, r->pending, r->num_bytes, timeout_ms);
    r->num_bytes -= done;
    memmove(r->pending, r->pending + done, r->num_bytes);
}

void tri_relay_add(tri_relay *r, const char *data, size_t num_bytes)
{
    if (r->lost == EPIPE) /* for good; a full disk may have room again */
        return;
    if (r->num_bytes > 0)
        let_out(r, 0);
    /* A reader that is not behind needs no memory. */
    size_t done = r->num_bytes == 0 ? write_some(r, data, num_bytes, 0) : 0;
    if (done < num_bytes)
        keep(r, data + done, num_bytes - done);
}

void tri_relay_finish(tri_relay *r)
{
    if (r->num_bytes > 0)
        let_out(r, PATIENCE_MS);
    r->dropped |= r->num_bytes > 0;
    r->num_bytes = 0;
}
