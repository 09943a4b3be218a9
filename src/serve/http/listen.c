#include "serve/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/http.h"

static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                      .ai_flags = AI_PASSIVE | AI_NUMERICSERV};

bool tri_http_is_loopback(const char *address)
{
    struct addrinfo *found, *a;
    bool all = false;
    if (!address)
        return true;
    if (getaddrinfo(address, "0", &hints, &found) != 0)
        return false;
    for (all = true, a = found; a; a = a->ai_next) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)a->ai_addr;
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)a->ai_addr;
        all &= a->ai_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)
                                        : ntohl(four->sin_addr.s_addr) >> 24 == 127;
    }
    freeaddrinfo(found);
    return all;
}

static int bind_to(const struct addrinfo *a)
{
    int yes = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
        return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage s;
    socklen_t length = sizeof s;
    if (getsockname(fd, (struct sockaddr *)&s, &length) != 0)
        return 0;
    return ntohs(s.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&s)->sin6_port
                                         : ((struct sockaddr_in *)&s)->sin_port);
}

static tr_status cannot(const char *address, int port, int reason, tr_error *err)
{
    if (reason == EADDRINUSE)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "port %d of %s is in use, perhaps by another `trireme watch`: choose "
                        "another one (--port N, or run.page=N of a run); --port 0 takes any that "
                        "is free",
                        port, address);
    if (reason == EACCES && port < 1024)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "port %d may not be used by you: those from 1024 on may, --port 7717 say",
                        port);
    return tri_fail(err, TR_ERROR_RUNTIME, "cannot listen on %s, port %d: %s", address, port,
                    strerror(reason));
}

static tr_status listen_on(tri_http_sockets *s, const char *address, int port, tr_error *err)
{
    char number[16];
    struct addrinfo *found;
    snprintf(number, sizeof number, "%d", port);
    int wrong = getaddrinfo(address, number, &hints, &found);
    if (wrong != 0)
        return tri_fail(err, TR_ERROR_INPUT, "--address %.200s is no address of this machine: %s",
                        address, gai_strerror(wrong));
    int fd = bind_to(found), reason = errno;
    freeaddrinfo(found);
    if (fd < 0 && reason == EADDRNOTAVAIL)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--address %.200s is no address of this machine; 0.0.0.0 stands for all "
                        "that it has",
                        address);
    if (fd < 0)
        return cannot(address, port, reason, err);
    s->fd[s->num++] = fd;
    s->port = port_of(fd);
    return TR_OK;
}

tr_status tri_http_listen(tri_http_sockets *s, const char *address, int port, tr_error *err)
{
    *s = (tri_http_sockets){.num = 0};
    TRI_TRY(listen_on(s, address ? address : "127.0.0.1", port, err));
    if (!address) /* where there is no such address, or somebody has the port, one is enough */
        (void)listen_on(s, "::1", s->port, NULL);
    return TR_OK;
}
