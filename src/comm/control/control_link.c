#include "comm/control/control_link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

tri_link *tri_link_accept(int listener, int epoll)
{
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return NULL;
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    tri_link *link = calloc(1, sizeof *link);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (!link || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(link);
        close(fd);
        return NULL;
    }
    link->fd = fd;
    link->epoll = epoll;
    link->rank = -1;
    link->since_ns = tri_now_ns();
    char host[46] = "?", port[8] = "?";
    getnameinfo((struct sockaddr *)&from, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(link->from, sizeof link->from, "%s:%s", host, port);
    return link;
}

void tri_link_destroy(tri_link *link)
{
    close(link->fd); /* leaves the epoll by itself */
    tri_wire_in_fini(&link->in);
    tri_wire_out_fini(&link->out);
    free(link);
}

void tri_link_flush(tri_link *link)
{
    if (link->dead)
        return;
    if (!tri_wire_send(&link->out, link->fd)) {
        link->dead = true;
        return;
    }
    bool pending = tri_wire_pending(&link->out);
    if (!pending && link->closing)
        link->dead = true;
    if (pending == link->wants_out)
        return;
    link->wants_out = pending;
    struct epoll_event event = {.events = EPOLLIN | (pending ? EPOLLOUT : 0u), .data.ptr = link};
    epoll_ctl(link->epoll, EPOLL_CTL_MOD, link->fd, &event);
}
