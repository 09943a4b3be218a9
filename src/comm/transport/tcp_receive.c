/* Messages over TCP, coming in. */
#include "comm/reduce.h"
#include "comm/transport/tcp_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define STAGE_BYTES ((size_t)256 << 10) /* of what is combined, before it is */

/* Where the next bytes of a message go, and how many. */
static bool next_place(tri_tcp_peer *p, const tri_port_message *m, struct iovec *place)
{
    size_t left = m->num_bytes - m->moved - p->staged;
    if (!m->combine) {
        *place = (struct iovec){m->data + m->moved,
                                left < TRI_TCP_MOST_BYTES ? left : TRI_TCP_MOST_BYTES};
        return true;
    }
    if (p->stage == NULL)
        p->stage = malloc(STAGE_BYTES);
    size_t room = STAGE_BYTES - p->staged;
    *place = (struct iovec){p->stage + p->staged, left < room ? left : room};
    return p->stage != NULL;
}

static void take_bytes(tri_tcp_peer *p, tri_port_message *m, size_t n)
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

static void end_receive(tri_ports *ports, tri_tcp_peer *p, int peer)
{
    tri_port_message *m = ports->recvs[peer].first;
    if (m->status == TR_OK && m->moved < m->num_bytes)
        return;
    if (m->status == TR_OK && p->sums)
        tri_tcp_sum_fits(&p->head, tri_crc_end(&p->sum), ports, m);
    p->sum = (tri_crc){0};
    if (m->status != TR_OK) /* what follows in the stream is not what we think */
        tri_tcp_give_up(p, "an earlier message was not what it should be");
    p->head_got = 0;
    p->staged = 0;
    tri_ports_finish_first(ports, &ports->recvs[peer]);
}

/* After a recv: false when nothing came. */
static bool received(tri_tcp_peer *p, ssize_t n)
{
    if (n == 0)
        tri_tcp_give_up(p, "it closed the connection");
    else if (n < 0 && !tri_tcp_would_wait())
        tri_tcp_give_up(p, strerror(errno));
    return n > 0;
}

static bool whole_head(tri_tcp_peer *p)
{
    if (p->head_got < sizeof p->head)
        return false;
    const char *wrong = tri_tcp_head_wrong(&p->head, p->sums);
    if (wrong != NULL)
        tri_tcp_give_up(p, wrong);
    return p->dead_ns == 0;
}

bool tri_tcp_pull_message(tri_ports *ports, tri_tcp_lane *lane, int peer)
{
    tri_tcp_peer *p = &lane->peers[peer];
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

void tri_tcp_raise_signal(tri_ports *ports, int peer, uint64_t slot, uint64_t value)
{
    if (slot >= TR_NUM_SIGNALS)
        return;
    _Atomic uint64_t *at = &ports->signals[peer * TR_NUM_SIGNALS + (int)slot];
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak(at, &old, value)) {
    }
}

static void take_control(tri_ports *ports, tri_tcp_peer *p, int peer)
{
    tri_port_message *m = ports->recvs[peer].first;
    const tri_tcp_head *h = &p->head;
    p->head_got = 0;
    if (h->type == TRI_TCP_READY) {
        p->ready = h->number;
        p->ready_bytes = h->num_bytes;
    } else if (h->type == TRI_TCP_SIGNAL) {
        tri_tcp_raise_signal(ports, peer, h->number, h->num_bytes);
    } else if (h->type == TRI_TCP_REFUSED && m != NULL && m->number == h->number) {
        tri_port_message_refuse(m, h->num_bytes, m->num_bytes);
        tri_ports_finish_first(ports, &ports->recvs[peer]);
    } else {
        tri_tcp_give_up(p, "it sent what nobody asked for");
    }
}

bool tri_tcp_pull_any(tri_ports *ports, tri_tcp_lane *lane, int peer)
{
    tri_tcp_peer *p = &lane->peers[peer];
    tri_port_message *m = ports->recvs[peer].first;
    if (m != NULL && p->asked < m->number &&
        tri_tcp_add_control(p, (tri_tcp_head){.type = TRI_TCP_READY,
                                              .number = m->number,
                                              .num_bytes = m->num_bytes})) {
        p->asked = m->number;
        if (!p->sending)
            tri_tcp_send_control(p);
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
    return m != NULL && tri_tcp_pull_message(ports, lane, peer);
}
