#include "comm/control/control_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char magic[4] = {'T', 'R', 'I', 'C'};

/* ---- out ---- */

void tri_wire_out_fini(tri_wire_out *out)
{
    free(out->bytes);
    *out = (tri_wire_out){0};
}

static void append(tri_wire_out *out, const void *data, size_t num_bytes)
{
    if (out->failed)
        return;
    if (out->used + num_bytes > out->capacity) {
        size_t capacity = 2 * (out->used + num_bytes);
        unsigned char *bytes = realloc(out->bytes, capacity);
        if (!bytes) {
            out->failed = true;
            return;
        }
        out->bytes = bytes;
        out->capacity = capacity;
    }
    if (num_bytes > 0)
        memcpy(out->bytes + out->used, data, num_bytes);
    out->used += num_bytes;
}

static void store_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t load_u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void tri_wire_begin(tri_wire_out *out, tri_wire_type type)
{
    if (out->sent > 0 && out->sent == out->used)
        out->sent = out->used = 0;
    out->frame = out->used;
    unsigned char header[TRI_WIRE_HEADER_BYTES] = {0};
    memcpy(header, magic, sizeof magic);
    store_u32(header + 4, TRI_WIRE_VERSION | (uint32_t)type << 16);
    append(out, header, sizeof header);
}

void tri_wire_end(tri_wire_out *out)
{
    if (!out->failed)
        store_u32(out->bytes + out->frame + 8,
                  (uint32_t)(out->used - out->frame - TRI_WIRE_HEADER_BYTES));
}

void tri_wire_add_u32(tri_wire_out *out, uint32_t value)
{
    unsigned char bytes[4];
    store_u32(bytes, value);
    append(out, bytes, sizeof bytes);
}

void tri_wire_add_u64(tri_wire_out *out, uint64_t value)
{
    tri_wire_add_u32(out, (uint32_t)value);
    tri_wire_add_u32(out, (uint32_t)(value >> 32));
}

void tri_wire_add_bytes(tri_wire_out *out, const void *data, size_t num_bytes)
{
    tri_wire_add_u32(out, (uint32_t)num_bytes);
    append(out, data, num_bytes);
}

void tri_wire_add_text(tri_wire_out *out, const char *text)
{
    tri_wire_add_bytes(out, text, strlen(text));
}

void tri_wire_add_message(tri_wire_out *out, tri_wire_type type, const char *text)
{
    tri_wire_begin(out, type);
    tri_wire_add_text(out, text);
    tri_wire_end(out);
}

void tri_wire_add_where(tri_wire_out *out, const tri_rank_where *where)
{
    tri_wire_add_u64(out, where->counter);
    tri_wire_add_u64(out, (uint64_t)where->step);
    tri_wire_add_u64(out, (uint64_t)where->instruction);
    tri_wire_add_text(out, where->doing);
    tri_wire_add_u64(out, where->bytes);
    tri_wire_add_u32(out, (uint32_t)where->peer);
    tri_wire_add_u64(out, (uint64_t)(where->waiting_s * 1e9));
}

bool tri_wire_send(tri_wire_out *out, int fd)
{
    if (out->failed)
        return false;
    while (out->sent < out->used) {
        ssize_t n =
            send(fd, out->bytes + out->sent, out->used - out->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        out->sent += (size_t)n;
    }
    return true;
}

/* ---- in ---- */

void tri_wire_in_fini(tri_wire_in *in)
{
    free(in->bytes);
    *in = (tri_wire_in){0};
}

bool tri_wire_receive(tri_wire_in *in, int fd)
{
    enum { LEAST_ROOM = 4096 };
    if (in->taken > 0) {
        memmove(in->bytes, in->bytes + in->taken, in->used - in->taken);
        in->used -= in->taken;
        in->taken = 0;
    }
    if (in->capacity - in->used < LEAST_ROOM) {
        size_t capacity = 2 * in->used + LEAST_ROOM;
        unsigned char *bytes = realloc(in->bytes, capacity);
        if (!bytes)
            return false;
        in->bytes = bytes;
        in->capacity = capacity;
    }
    ssize_t n;
    do
        n = recv(fd, in->bytes + in->used, in->capacity - in->used, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK;
    in->used += (size_t)n;
    return n > 0;
}

int tri_wire_take(tri_wire_in *in, size_t max_bytes, tri_wire_frame *frame, const char **wrong)
{
    size_t there = in->used - in->taken;
    if (there == 0)
        return 0;
    const unsigned char *header = in->bytes + in->taken;
    if (memcmp(header, magic, there < sizeof magic ? there : sizeof magic) != 0) {
        *wrong = "it does not speak the protocol";
        return -1;
    }
    if (there < TRI_WIRE_HEADER_BYTES)
        return 0;
    uint32_t version = load_u32(header + 4) & 0xffff, type = load_u32(header + 4) >> 16;
    uint32_t length = load_u32(header + 8);
    *wrong = version != TRI_WIRE_VERSION
                 ? "it speaks another version of the protocol (use the same trireme for all ranks)"
             : type < 1 || type >= TRI_WIRE_NUM_TYPES ? "a frame of an unknown type"
             : length > max_bytes                     ? "a frame that is too long"
                                                      : NULL;
    if (*wrong)
        return -1;
    if (there - TRI_WIRE_HEADER_BYTES < length)
        return 0;
    *frame = (tri_wire_frame){
        .type = (tri_wire_type)type, .at = header + TRI_WIRE_HEADER_BYTES, .left = length};
    in->taken += TRI_WIRE_HEADER_BYTES + length;
    return 1;
}

static const unsigned char *advance(tri_wire_frame *frame, size_t num_bytes)
{
    if (frame->failed || frame->left < num_bytes) {
        frame->failed = true;
        return NULL;
    }
    const unsigned char *at = frame->at;
    frame->at += num_bytes;
    frame->left -= num_bytes;
    return at;
}

uint32_t tri_wire_u32(tri_wire_frame *frame)
{
    const unsigned char *at = advance(frame, 4);
    return at ? load_u32(at) : 0;
}

uint64_t tri_wire_u64(tri_wire_frame *frame)
{
    uint64_t low = tri_wire_u32(frame);
    return low | (uint64_t)tri_wire_u32(frame) << 32;
}

const void *tri_wire_bytes(tri_wire_frame *frame, size_t *num_bytes)
{
    size_t length = tri_wire_u32(frame);
    const void *at = advance(frame, length);
    *num_bytes = at ? length : 0;
    return at;
}

void tri_wire_text(tri_wire_frame *frame, char *text, size_t capacity)
{
    size_t length, used = 0;
    const unsigned char *at = tri_wire_bytes(frame, &length);
    for (size_t i = 0; i < length; i++) {
        bool command = (at[i] < ' ' && at[i] != '\n') || at[i] == 127;
        size_t room = command ? 4 : 1;
        if (used + room >= capacity)
            break;
        if (command)
            snprintf(text + used, room + 1, "\\x%02x", at[i]);
        else
            text[used] = at[i] == '\n' ? ' ' : (char)at[i];
        used += room;
    }
    text[used] = 0;
}

void tri_wire_where(tri_wire_frame *frame, tri_rank_where *where)
{
    where->counter = tri_wire_u64(frame);
    where->step = (int64_t)tri_wire_u64(frame);
    where->instruction = (int64_t)tri_wire_u64(frame);
    tri_wire_text(frame, where->doing, sizeof where->doing);
    where->bytes = tri_wire_u64(frame);
    where->peer = (int32_t)tri_wire_u32(frame);
    where->waiting_s = 1e-9 * (double)tri_wire_u64(frame);
}

/* ---- sockets ---- */

static int port_of(int fd)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0)
        return 0;
    return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
}

tr_status tri_wire_resolve(const char *address, int port, bool passive, struct addrinfo **found,
                           tr_error *err)
{
    char text[8];
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    snprintf(text, sizeof text, "%d", port);
    int wrong = getaddrinfo(address, text, &want, found);
    if (wrong == 0)
        return TR_OK;
    bool machines = wrong == EAI_MEMORY || wrong == EAI_SYSTEM;
    return tri_fail(err, machines ? TR_ERROR_RUNTIME : TR_ERROR_INPUT,
                    "the address '%s' is not known: %s", address, gai_strerror(wrong));
}

tr_status tri_wire_listen(const char *address, int port, int *fd, int *bound, tr_error *err)
{
    struct addrinfo *found = NULL;
    TRI_TRY(tri_wire_resolve(address, port, true, &found, err));
    int reason = 0;
    *fd = -1;
    for (struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
        int yes = 1, s = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
            bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, SOMAXCONN) == 0) {
            *fd = s;
            break;
        }
        reason = errno;
        if (s >= 0)
            close(s);
    }
    freeaddrinfo(found);
    if (*fd < 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "cannot listen on %s, port %d: %s", address, port,
                        strerror(reason));
    *bound = port_of(*fd);
    return TR_OK;
}

/* ---- where a rank is ---- */

void tri_rank_status_init(tri_rank_status *status)
{
    atomic_store(&status->counter, 0);
    atomic_store(&status->step, -1);
    atomic_store(&status->instruction, -1);
    memset(status->doing, 0, sizeof status->doing);
    atomic_store(&status->bytes, 0);
    atomic_store(&status->peer, -1);
    atomic_store(&status->waiting_since_ns, 0);
    for (int k = 0; k < TRI_NUM_OWN; k++)
        atomic_store(&status->own_ns[k], 0);
    atomic_store(&status->waited_ns, 0);
}

/* The rank may be writing: a mixture of two texts is allowed by the contract of tri_rank_status,
 * hence no lock, byte by byte so that nothing clever happens, and no word from the sanitizer. */
__attribute__((no_sanitize("thread"), noinline)) static void
copy_racing(char *to, const volatile char *from, size_t capacity)
{
    size_t n = 0;
    for (; n + 1 < capacity && from[n]; n++)
        to[n] = from[n] == '\n' ? ' ' : from[n];
    to[n] = 0;
}

void tri_rank_where_read(tri_rank_where *where, const tri_rank_status *status)
{
    tri_rank_status *s = (tri_rank_status *)(uintptr_t)status; /* atomic loads, nothing else */
    where->counter = atomic_load_explicit(&s->counter, memory_order_relaxed);
    where->step = atomic_load_explicit(&s->step, memory_order_relaxed);
    where->instruction = atomic_load_explicit(&s->instruction, memory_order_relaxed);
    copy_racing(where->doing, s->doing, sizeof where->doing);
    where->bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed);
    where->peer = atomic_load_explicit(&s->peer, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&s->waiting_since_ns, memory_order_relaxed);
    uint64_t now = tri_now_ns();
    where->waiting_s = since != 0 && since < now ? 1e-9 * (double)(now - since) : 0;
}
