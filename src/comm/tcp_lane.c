/* Messages over TCP: one connection for each pair of members.
 *
 * A message is a head and its bytes. In the lanes of groups it is sent as soon as it is posted:
 * collectives do not need more, and a receiver that is late leaves it with the kernel, which slows
 * the sender down when there is too much. In the lane of tr_send a send must not end before its
 * receive was issued, so the receiver says READY first, and bytes flow only then; since
 * they are taken as they come, they never stand in the way of what is behind them.
 *
 * Invariants:
 *   1. A connection carries whole frames, in order. What is being sent is the first of the peer's
 *      queue; control frames go between messages.
 *   2. Bytes are read only up to the end of the frame at hand.
 *   3. A connection that ended is `dead`; its messages fail one second later, so that whoever
 *      watches the ranks can say why before. */
#include "base/checksum.h"
#include "comm/comm_internal.h"
#include "comm/reduce.h"
#include "comm/tcp.h"
#include "comm/tcp_head.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define STAGE_BYTES  ((size_t)256 << 10) /* of what is combined, before it is */
#define MOST_BYTES   ((size_t)1 << 20)   /* in one system call */
#define DEAD_WAIT_NS 1000000000u

struct peer {
    int fd; /* -1: this member itself */
    bool sums;
    uint64_t dead_ns;
    char why[160];
    /* coming in */
    tri_tcp_head head;
    size_t head_got, staged;
    tri_crc sum; /* of the bytes so far, where there are sums */
    char *stage;
    uint64_t asked; /* the receive that READY was said for */
    /* going out */
    tri_tcp_head out;
    size_t out_sent; /* of the head; the message knows the rest */
    bool sending;
    uint64_t ready, ready_bytes; /* the send that may go, and what its receiver expects */
    tri_tcp_head *control;
    size_t num_control, capacity, control_sent; /* frames; bytes of the first */
};

struct tcp_lane {
    struct peer *peers;
    bool rendezvous;
    int wake;
};

static void give_up(struct peer *p, const char *why)
{
    if (p->dead_ns != 0)
        return;
    p->dead_ns = tri_now_ns();
    snprintf(p->why, sizeof p->why, "%s", why);
}

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static bool add_control(struct peer *p, tri_tcp_head head)
{
    if (p->num_control == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 8;
        tri_tcp_head *more = realloc(p->control, capacity * sizeof *more);
        if (more == NULL)
            return false;
        p->control = more;
        p->capacity = capacity;
    }
    head.magic = TRI_TCP_MAGIC;
    if (p->sums)
        tri_tcp_head_seal(&head, 0);
    p->control[p->num_control++] = head;
    return true;
}

/* ---- out ---- */

/* False when the socket is full or gone. */
static bool send_control(struct peer *p)
{
    while (p->num_control > 0) {
        const char *from = (const char *)p->control + p->control_sent;
        size_t left = p->num_control * sizeof *p->control - p->control_sent;
        ssize_t n = send(p->fd, from, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (!would_wait())
                give_up(p, strerror(errno));
            return false;
        }
        p->control_sent += (size_t)n;
        size_t whole = p->control_sent / sizeof *p->control;
        p->control_sent %= sizeof *p->control;
        p->num_control -= whole;
        memmove(p->control, p->control + whole, p->num_control * sizeof *p->control);
    }
    return true;
}

/* May the first send go? A wrong size ends it here. */
static bool may_send(tri_ports *ports, struct tcp_lane *lane, int peer)
{
    struct peer *p = &lane->peers[peer];
    tri_port_message *m = ports->sends[peer].first;
    if (m == NULL)
        return false;
    if (!lane->rendezvous || p->sending)
        return true;
    if (p->ready < m->number)
        return false;
    if (p->ready_bytes == m->num_bytes)
        return true;
    add_control(
        p, (tri_tcp_head){.type = TRI_TCP_REFUSED, .number = m->number, .num_bytes = m->num_bytes});
    send_control(p);
    tri_port_message_refuse(m, m->num_bytes, p->ready_bytes);
    tri_ports_finish_first(ports, &ports->sends[peer]);
    return false;
}

static void begin_send(struct peer *p, const tri_port_message *m)
{
    p->out = (tri_tcp_head){.magic = TRI_TCP_MAGIC,
                            .type = TRI_TCP_DATA,
                            .number = m->number,
                            .num_bytes = m->num_bytes};
    if (m->about != NULL)
        p->out.about = *m->about;
    tri_crc sum = {0};
    if (p->sums) {
        tri_crc_add(&sum, m->data, m->num_bytes);
        tri_tcp_head_seal(&p->out, tri_crc_end(&sum));
    }
    p->out_sent = 0;
    p->sending = true;
}

static bool push(tri_ports *ports, struct tcp_lane *lane, int peer)
{
    struct peer *p = &lane->peers[peer];
    bool moved = false;
    for (;;) {
        if (!p->sending && (!send_control(p) || !may_send(ports, lane, peer)))
            return moved;
        tri_port_message *m = ports->sends[peer].first;
        if (m == NULL) /* given up in the middle */
            return moved;
        if (!p->sending)
            begin_send(p, m);
        size_t left = m->num_bytes - m->moved;
        bool cut = left > MOST_BYTES;
        struct iovec parts[2] = {{(char *)&p->out + p->out_sent, sizeof p->out - p->out_sent},
                                 {m->data + m->moved, cut ? MOST_BYTES : left}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = parts[1].iov_len ? 2 : 1};
        ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (!would_wait())
                give_up(p, strerror(errno));
            return moved;
        }
        size_t of_head = (size_t)n < parts[0].iov_len ? (size_t)n : parts[0].iov_len;
        p->out_sent += of_head;
        m->moved += (size_t)n - of_head;
        moved = true;
        if (p->out_sent < sizeof p->out || m->moved < m->num_bytes)
            return true; /* let the others have their turn */
        p->sending = false;
        tri_ports_finish_first(ports, &ports->sends[peer]);
    }
}

/* ---- in ---- */

/* Where the next bytes of a message go, and how many. */
static bool next_place(struct peer *p, const tri_port_message *m, struct iovec *place)
{
    size_t left = m->num_bytes - m->moved - p->staged;
    if (!m->combine) {
        *place = (struct iovec){m->data + m->moved, left < MOST_BYTES ? left : MOST_BYTES};
        return true;
    }
    if (p->stage == NULL)
        p->stage = malloc(STAGE_BYTES);
    size_t room = STAGE_BYTES - p->staged;
    *place = (struct iovec){p->stage + p->staged, left < room ? left : room};
    return p->stage != NULL;
}

static void take_bytes(struct peer *p, tri_port_message *m, size_t n)
{
    if (!m->combine) {
        m->moved += n;
        return;
    }
    size_t element = tri_dtype_bytes(m->dtype);
    p->staged += n;
    size_t whole = p->staged / element * element;
    tri_combine(m->dtype, m->reduction, m->data + m->moved, p->stage, whole / element);
    m->moved += whole;
    p->staged -= whole;
    memmove(p->stage, p->stage + whole, p->staged);
}

static void end_receive(tri_ports *ports, struct peer *p, int peer)
{
    tri_port_message *m = ports->recvs[peer].first;
    if (m->status == TR_OK && m->moved < m->num_bytes)
        return;
    if (m->status == TR_OK && p->sums)
        tri_tcp_sum_fits(&p->head, tri_crc_end(&p->sum), ports, m);
    p->sum = (tri_crc){0};
    if (m->status != TR_OK) /* what follows in the stream is not what we think */
        give_up(p, "an earlier message was not what it should be");
    p->head_got = 0;
    p->staged = 0;
    tri_ports_finish_first(ports, &ports->recvs[peer]);
}

/* After a recv: false when nothing came. */
static bool received(struct peer *p, ssize_t n)
{
    if (n == 0)
        give_up(p, "it closed the connection");
    else if (n < 0 && !would_wait())
        give_up(p, strerror(errno));
    return n > 0;
}

static bool whole_head(struct peer *p)
{
    if (p->head_got < sizeof p->head)
        return false;
    const char *wrong = tri_tcp_head_wrong(&p->head, p->sums);
    if (wrong != NULL)
        give_up(p, wrong);
    return p->dead_ns == 0;
}

/* Head and bytes in one call where they follow each other. */
static bool pull_message(tri_ports *ports, struct tcp_lane *lane, int peer)
{
    struct peer *p = &lane->peers[peer];
    tri_port_message *m = ports->recvs[peer].first;
    struct iovec parts[2] = {{(char *)&p->head + p->head_got, sizeof p->head - p->head_got}, {0}};
    if (!next_place(p, m, &parts[1]))
        return false;
    bool had_head = p->head_got == sizeof p->head;
    struct msghdr message = {.msg_iov = had_head ? &parts[1] : parts,
                             .msg_iovlen = had_head || parts[1].iov_len == 0 ? 1 : 2};
    ssize_t n = recvmsg(p->fd, &message, MSG_DONTWAIT);
    if (!received(p, n))
        return false;
    size_t of_head = had_head ? 0 : ((size_t)n < parts[0].iov_len ? (size_t)n : parts[0].iov_len);
    p->head_got += of_head;
    if (!whole_head(p))
        return true;
    if (had_head || tri_tcp_head_fits(&p->head, ports, m)) {
        if (p->sums)
            tri_crc_add(&p->sum, parts[1].iov_base, (size_t)n - of_head);
        take_bytes(p, m, (size_t)n - of_head);
    }
    end_receive(ports, p, peer);
    return true;
}

static void raise_signal(tri_ports *ports, int peer, uint64_t slot, uint64_t value)
{
    if (slot >= TR_NUM_SIGNALS)
        return;
    _Atomic uint64_t *at = &ports->signals[peer * TR_NUM_SIGNALS + (int)slot];
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak(at, &old, value)) {
    }
}

static void take_control(tri_ports *ports, struct peer *p, int peer)
{
    tri_port_message *m = ports->recvs[peer].first;
    const tri_tcp_head *h = &p->head;
    p->head_got = 0;
    if (h->type == TRI_TCP_READY) {
        p->ready = h->number;
        p->ready_bytes = h->num_bytes;
    } else if (h->type == TRI_TCP_SIGNAL) {
        raise_signal(ports, peer, h->number, h->num_bytes);
    } else if (h->type == TRI_TCP_REFUSED && m != NULL && m->number == h->number) {
        tri_port_message_refuse(m, h->num_bytes, m->num_bytes);
        tri_ports_finish_first(ports, &ports->recvs[peer]);
    } else {
        give_up(p, "it sent what nobody asked for");
    }
}

/* In a rendezvous anything may come, so heads are read alone. */
static bool pull_any(tri_ports *ports, struct tcp_lane *lane, int peer)
{
    struct peer *p = &lane->peers[peer];
    tri_port_message *m = ports->recvs[peer].first;
    if (m != NULL && p->asked < m->number &&
        add_control(p, (tri_tcp_head){.type = TRI_TCP_READY,
                                      .number = m->number,
                                      .num_bytes = m->num_bytes})) {
        p->asked = m->number;
        if (!p->sending)
            send_control(p);
    }
    if (p->head_got < sizeof p->head) {
        ssize_t n =
            recv(p->fd, (char *)&p->head + p->head_got, sizeof p->head - p->head_got, MSG_DONTWAIT);
        if (!received(p, n))
            return false;
        p->head_got += (size_t)n;
        if (!whole_head(p))
            return true;
        if (p->head.type != TRI_TCP_DATA || m == NULL || m->number != p->head.number) {
            take_control(ports, p, peer);
            return true;
        }
        if (m->num_bytes == 0 || !tri_tcp_head_fits(&p->head, ports, m)) {
            end_receive(ports, p, peer);
            return true;
        }
    }
    return m != NULL && pull_message(ports, lane, peer);
}

/* ---- all ---- */

/* To itself: both ends are here. */
static bool exchange_own(tri_ports *ports)
{
    tri_port_message *out = ports->sends[ports->me].first, *in = ports->recvs[ports->me].first;
    if (out == NULL || in == NULL)
        return false;
    if (out->num_bytes != in->num_bytes) {
        tri_port_message_refuse(out, out->num_bytes, in->num_bytes);
        tri_port_message_refuse(in, out->num_bytes, in->num_bytes);
    } else if (in->num_bytes > 0) {
        memcpy(in->data, out->data, in->num_bytes);
    }
    tri_ports_finish_first(ports, &ports->sends[ports->me]);
    tri_ports_finish_first(ports, &ports->recvs[ports->me]);
    return true;
}

/* Messages with a peer that is gone. */
static bool fail_dead(tri_ports *ports, struct peer *p, int peer)
{
    bool failed = false;
    if (tri_now_ns() - p->dead_ns < DEAD_WAIT_NS)
        return false;
    for (int i = 0; i < 2; i++) {
        tri_queue *queue = i == 0 ? &ports->sends[peer] : &ports->recvs[peer];
        while (queue->first != NULL) {
            queue->first->status = TR_ERROR_RUNTIME;
            snprintf(queue->first->why, sizeof queue->first->why,
                     "the connection to rank %d is lost: %s", ports->ranks[peer], p->why);
            tri_ports_finish_first(ports, queue);
            failed = true;
        }
    }
    return failed;
}

static bool tcp_progress(tri_ports *ports)
{
    struct tcp_lane *lane = ports->io_state;
    bool moved = exchange_own(ports);
    for (int i = 0; i < ports->size; i++) {
        struct peer *p = &lane->peers[i];
        if (p->fd < 0)
            continue;
        if (p->dead_ns == 0 && (ports->sends[i].first != NULL || p->num_control > 0))
            moved |= push(ports, lane, i);
        if (p->dead_ns == 0 && lane->rendezvous)
            moved |= pull_any(ports, lane, i);
        else if (p->dead_ns == 0 && ports->recvs[i].first != NULL)
            moved |= pull_message(ports, lane, i);
        if (p->dead_ns != 0 && (ports->sends[i].first != NULL || ports->recvs[i].first != NULL))
            moved |= fail_dead(ports, p, i);
    }
    return moved;
}

/* Members that are in different calls may each wait for what the other never sends; but something
 * was mostly sent to somebody, and a look at it tells. */
static void look_around(tri_ports *ports, struct tcp_lane *lane)
{
    tri_port_message *m = tri_ports_expecting(ports);
    for (int i = 0; m != NULL && i < ports->size; i++) {
        const struct peer *p = &lane->peers[i];
        tri_tcp_head head;
        if (p->fd < 0 || p->dead_ns != 0 || p->head_got > 0 || ports->recvs[i].first != NULL ||
            recv(p->fd, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof head)
            continue;
        if (head.magic == TRI_TCP_MAGIC && head.about.call == m->about->call &&
            !tri_port_message_same_call(m, ports->ranks[i], &head.about)) {
            tri_ports_finish_first(ports, &ports->recvs[m->peer]);
            return;
        }
    }
}

static int tcp_interest(tri_ports *ports, struct pollfd *polls)
{
    struct tcp_lane *lane = ports->io_state;
    if (!lane->rendezvous)
        look_around(ports, lane);
    uint64_t count;
    ssize_t drained = read(lane->wake, &count, sizeof count); /* wake-ups until now are heard */
    (void)drained;
    int num = 0;
    polls[num++] = (struct pollfd){.fd = lane->wake, .events = POLLIN};
    for (int i = 0; i < ports->size; i++) {
        const struct peer *p = &lane->peers[i];
        if (p->fd < 0 || p->dead_ns != 0)
            continue;
        bool in = lane->rendezvous || ports->recvs[i].first != NULL;
        bool out = p->sending || p->num_control > 0 ||
                   (ports->sends[i].first != NULL &&
                    (!lane->rendezvous || p->ready >= ports->sends[i].first->number));
        if (in || out)
            polls[num++] = (struct pollfd){
                .fd = p->fd, .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
    }
    return num;
}

static void tcp_wake(tri_ports *ports)
{
    struct tcp_lane *lane = ports->io_state;
    uint64_t one = 1;
    ssize_t written = write(lane->wake, &one, sizeof one);
    (void)written; /* full means that it will wake */
}

static void tcp_signal(tri_ports *ports, int peer, int slot, uint64_t value)
{
    struct tcp_lane *lane = ports->io_state;
    if (peer == ports->me) {
        raise_signal(ports, peer, (uint64_t)slot, value);
        return;
    }
    struct peer *p = &lane->peers[peer];
    add_control(
        p, (tri_tcp_head){.type = TRI_TCP_SIGNAL, .number = (uint64_t)slot, .num_bytes = value});
    if (!p->sending && p->dead_ns == 0)
        send_control(p);
}

/* A segment, which on a connection within a machine is as large as it can be: 64 KB. */
static size_t tcp_packet(const tri_ports *ports)
{
    const struct tcp_lane *lane = ports->io_state;
    int bytes = 0;
    socklen_t length = sizeof bytes;
    for (int i = 0; i < ports->size; i++)
        if (lane->peers[i].fd >= 0 &&
            getsockopt(lane->peers[i].fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) == 0)
            break;
    return bytes > (int)sizeof(tri_tcp_head) ? (size_t)bytes - sizeof(tri_tcp_head) : 0;
}

/* A socket that is closed with unread bytes resets the connection, and what we sent last might be
 * lost to a slow peer: so they are read. */
static void tcp_close(tri_ports *ports)
{
    struct tcp_lane *lane = ports->io_state;
    if (lane == NULL)
        return;
    for (int i = 0; lane->peers != NULL && i < ports->size; i++) {
        struct peer *p = &lane->peers[i];
        char rest[4096];
        while (p->fd >= 0 && recv(p->fd, rest, sizeof rest, MSG_DONTWAIT) > 0) {
        }
        if (p->fd >= 0)
            close(p->fd);
        free(p->stage);
        free(p->control);
    }
    if (lane->wake >= 0)
        close(lane->wake);
    free(lane->peers);
    free(lane);
    ports->io_state = NULL;
}

tr_status tri_tcp_adopt(tri_ports *ports, const tri_tcp_end *ends, bool rendezvous, tr_error *err)
{
    size_t n = (size_t)ports->size;
    struct tcp_lane *lane = calloc(1, sizeof *lane);
    if (lane != NULL) {
        lane->peers = calloc(n, sizeof *lane->peers);
        lane->rendezvous = rendezvous;
        lane->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        for (size_t i = 0; lane->peers != NULL && i < n; i++)
            lane->peers[i] = (struct peer){.fd = ends[i].fd, .sums = ends[i].sums};
    }
    ports->io_state = lane;
    if (lane != NULL && lane->peers != NULL && lane->wake >= 0)
        return TR_OK;
    for (size_t i = 0; (lane == NULL || lane->peers == NULL) && i < n; i++)
        if (ends[i].fd >= 0)
            close(ends[i].fd);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory, or no descriptor, for %d connections",
                    ports->size);
}

static tr_status tcp_open(tri_ports *ports, const char *key, bool rendezvous, tr_error *err)
{
    tri_tcp_end *ends = malloc((size_t)ports->size * sizeof *ends);
    if (ends == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d connections", ports->size);
    tr_status status = tri_tcp_connect(ports->comm->state, ports, key, ends, err);
    if (status == TR_OK)
        status = tri_tcp_adopt(ports, ends, rendezvous, err);
    free(ends);
    return status;
}

const tri_io_def tri_tcp_io = {
    .open = tcp_open,
    .close = tcp_close,
    .progress = tcp_progress,
    .interest = tcp_interest,
    .packet = tcp_packet,
    .wake = tcp_wake,
    .signal = tcp_signal,
};
