/* Messages over TCP, going out. */
#include "comm/transport/tcp_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

bool tri_tcp_add_control(tri_tcp_peer *p, tri_tcp_head head)
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

bool tri_tcp_send_control(tri_tcp_peer *p)
{
    while (p->num_control > 0) {
        const char *from = (const char *)p->control + p->control_sent;
        size_t left = p->num_control * sizeof *p->control - p->control_sent;
        ssize_t n = send(p->fd, from, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (!tri_tcp_would_wait())
                tri_tcp_give_up(p, strerror(errno));
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
static bool may_send(tri_ports *ports, tri_tcp_lane *lane, int peer)
{
    tri_tcp_peer *p = &lane->peers[peer];
    tri_port_message *m = ports->sends[peer].first;
    if (m == NULL)
        return false;
    if (!lane->rendezvous || p->sending)
        return true;
    if (p->ready < m->number)
        return false;
    if (p->ready_bytes == m->num_bytes)
        return true;
    tri_tcp_add_control(
        p, (tri_tcp_head){.type = TRI_TCP_REFUSED, .number = m->number, .num_bytes = m->num_bytes});
    tri_tcp_send_control(p);
    tri_port_message_refuse(m, m->num_bytes, p->ready_bytes);
    tri_ports_finish_first(ports, &ports->sends[peer]);
    return false;
}

static void begin_send(tri_tcp_peer *p, const tri_port_message *m)
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

bool tri_tcp_push(tri_ports *ports, tri_tcp_lane *lane, int peer)
{
    tri_tcp_peer *p = &lane->peers[peer];
    bool moved = false;
    for (;;) {
        if (!p->sending && (!tri_tcp_send_control(p) || !may_send(ports, lane, peer)))
            return moved;
        tri_port_message *m = ports->sends[peer].first;
        if (m == NULL) /* given up in the middle */
            return moved;
        if (!p->sending)
            begin_send(p, m);
        size_t left = m->num_bytes - m->moved;
        bool cut = left > TRI_TCP_MOST_BYTES;
        struct iovec parts[2] = {{(char *)&p->out + p->out_sent, sizeof p->out - p->out_sent},
                                 {m->data + m->moved, cut ? TRI_TCP_MOST_BYTES : left}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = parts[1].iov_len ? 2 : 1};
        ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (!tri_tcp_would_wait())
                tri_tcp_give_up(p, strerror(errno));
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
