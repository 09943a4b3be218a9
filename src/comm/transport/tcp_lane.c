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
#include "comm/transport/tcp.h"
#include "comm/transport/tcp_peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEAD_WAIT_NS 1000000000u

void tri_tcp_give_up(tri_tcp_peer *p, const char *why)
{
    if (p->dead_ns != 0)
        return;
    p->dead_ns = tri_now_ns();
    snprintf(p->why, sizeof p->why, "%s", why);
}

bool tri_tcp_would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

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
static bool fail_dead(tri_ports *ports, tri_tcp_peer *p, int peer)
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
    tri_tcp_lane *lane = ports->io_state;
    bool moved = exchange_own(ports);
    for (int i = 0; i < ports->size; i++) {
        tri_tcp_peer *p = &lane->peers[i];
        if (p->fd < 0)
            continue;
        if (p->dead_ns == 0 && (ports->sends[i].first != NULL || p->num_control > 0))
            moved |= tri_tcp_push(ports, lane, i);
        if (p->dead_ns == 0 && lane->rendezvous)
            moved |= tri_tcp_pull_any(ports, lane, i);
        else if (p->dead_ns == 0 && ports->recvs[i].first != NULL)
            moved |= tri_tcp_pull_message(ports, lane, i);
        if (p->dead_ns != 0 && (ports->sends[i].first != NULL || ports->recvs[i].first != NULL))
            moved |= fail_dead(ports, p, i);
    }
    return moved;
}

/* Members that are in different calls may each wait for what the other never sends; but something
 * was mostly sent to somebody, and a look at it tells. */
static void look_around(tri_ports *ports, tri_tcp_lane *lane)
{
    tri_port_message *m = tri_ports_expecting(ports);
    for (int i = 0; m != NULL && i < ports->size; i++) {
        const tri_tcp_peer *p = &lane->peers[i];
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
    tri_tcp_lane *lane = ports->io_state;
    if (!lane->rendezvous)
        look_around(ports, lane);
    uint64_t count;
    ssize_t drained = read(lane->wake, &count, sizeof count); /* wake-ups until now are heard */
    (void)drained;
    int num = 0;
    polls[num++] = (struct pollfd){.fd = lane->wake, .events = POLLIN};
    for (int i = 0; i < ports->size; i++) {
        const tri_tcp_peer *p = &lane->peers[i];
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
    tri_tcp_lane *lane = ports->io_state;
    uint64_t one = 1;
    ssize_t written = write(lane->wake, &one, sizeof one);
    (void)written; /* full means that it will wake */
}

static void tcp_signal(tri_ports *ports, int peer, int slot, uint64_t value)
{
    tri_tcp_lane *lane = ports->io_state;
    if (peer == ports->me) {
        tri_tcp_raise_signal(ports, peer, (uint64_t)slot, value);
        return;
    }
    tri_tcp_peer *p = &lane->peers[peer];
    tri_tcp_add_control(
        p, (tri_tcp_head){.type = TRI_TCP_SIGNAL, .number = (uint64_t)slot, .num_bytes = value});
    if (!p->sending && p->dead_ns == 0)
        tri_tcp_send_control(p);
}

/* A segment, which on a connection within a machine is as large as it can be: 64 KB. */
static size_t tcp_packet(const tri_ports *ports)
{
    const tri_tcp_lane *lane = ports->io_state;
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
    tri_tcp_lane *lane = ports->io_state;
    if (lane == NULL)
        return;
    for (int i = 0; lane->peers != NULL && i < ports->size; i++) {
        tri_tcp_peer *p = &lane->peers[i];
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
    tri_tcp_lane *lane = calloc(1, sizeof *lane);
    if (lane != NULL) {
        lane->peers = calloc(n, sizeof *lane->peers);
        lane->rendezvous = rendezvous;
        lane->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        for (size_t i = 0; lane->peers != NULL && i < n; i++)
            lane->peers[i] = (tri_tcp_peer){.fd = ends[i].fd, .sums = ends[i].sums};
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
