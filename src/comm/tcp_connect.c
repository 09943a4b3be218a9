/* Setting up the connections of a set of members. Every member listens on a port of its own while
 * the set is made and publishes it through the bootstrap; it connects to those before it and
 * accepts those after it. A connection begins with a hello in each direction that carries the job's
 * token, the set's key and who speaks to whom. Strangers (another token, another protocol, silence
 * for 5 s) are dropped, and nobody else notices. When all are connected the port is closed.
 *
 * Connecting does not wait for being accepted (the kernel holds the connection), so nobody waits in
 * a circle. */
#include "comm/comm_internal.h"
#include "comm/control_wire.h"
#include "comm/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLICE_MS    50
#define STRANGER_NS 5000000000u
enum { MOST_PENDING = 256 };

struct hello {
    char magic[8];
    char token[TRI_CONTROL_MAX_TOKEN];
    char key[96];
    int32_t from, to; /* world ranks */
};

static const char magic[8] = "TRITCP1";

/* A connection whose hello is on its way. */
struct pending {
    int fd;
    size_t got;
    uint64_t since_ns;
    struct hello hello;
};

struct setup {
    const tri_tcp *tcp;
    const tri_ports *ports;
    const char *key;
    int *fds;
    int listener;
    uint64_t start_ns;
    struct pending *pending; /* [num_pending]: accepted, not known yet */
    int num_pending;
};

static struct hello make_hello(const struct setup *s, int from, int to)
{
    struct hello h = {.from = from, .to = to};
    memcpy(h.magic, magic, sizeof h.magic);
    snprintf(h.token, sizeof h.token, "%s", s->tcp->boot->token);
    snprintf(h.key, sizeof h.key, "%s", s->key);
    return h;
}

/* In a time that does not tell how much of the token was right. */
static bool right_hello(const struct setup *s, const struct hello *h, int from)
{
    struct hello want = make_hello(s, from, s->tcp->boot->rank);
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof want; i++)
        wrong |= (unsigned)(((const unsigned char *)h)[i] ^ ((const unsigned char *)&want)[i]);
    return wrong == 0;
}

/* Whether the other end is on this machine: both have the same address. */
static bool stays_here(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_length = sizeof own, other_length = sizeof other;
    if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 ||
        getpeername(fd, (struct sockaddr *)&other, &other_length) != 0 ||
        own.ss_family != other.ss_family)
        return false;
    if (own.ss_family == AF_INET)
        return ((struct sockaddr_in *)&own)->sin_addr.s_addr ==
               ((struct sockaddr_in *)&other)->sin_addr.s_addr;
    return own.ss_family == AF_INET6 &&
           memcmp(&((struct sockaddr_in6 *)&own)->sin6_addr,
                  &((struct sockaddr_in6 *)&other)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* Small messages go at once. Within a machine there is no link to be gentle with: what paces its
 * packets by an estimate of one (bbr, the default of many systems) makes calls take up to twice as
 * long, in some runs and not in others. Between machines the system's choice stands. That every
 * kernel has reno, and lets everybody use it, is why it is taken; if not, it goes as it did. */
static void set_options(int fd)
{
    static const char local[] = "reno";
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (stays_here(fd))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, local, sizeof local - 1);
}

/* The deadline and the stop flag; who is for the message. */
static tr_status still_time(const struct setup *s, int peer, const char *doing, tr_error *err)
{
    const tri_bootstrap *boot = s->tcp->boot;
    double seconds = (double)(tri_now_ns() - s->start_ns) * 1e-9;
    if (atomic_load_explicit(&boot->stop->stopped, memory_order_acquire))
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d stopped %s rank %d: %s", boot->rank, doing,
                        peer, boot->stop->reason);
    if (seconds > boot->deadline_s)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "rank %d was %s rank %d for %.1f s in vain; can the machines reach each "
                        "other at any port?",
                        boot->rank, doing, peer, seconds);
    return TR_OK;
}

static tr_status wait_fd(const struct setup *s, int fd, short events, int peer, const char *doing,
                         tr_error *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    while (poll(&p, 1, SLICE_MS) <= 0)
        TRI_TRY(still_time(s, peer, doing, err));
    return TR_OK;
}

static tr_status publish(struct setup *s, tr_error *err)
{
    char key[128], where[64];
    int port = 0;
    const tri_bootstrap *boot = s->tcp->boot;
    TRI_TRY(tri_wire_listen(s->tcp->address, 0, &s->listener, &port, err));
    snprintf(where, sizeof where, "%d %s", port, s->tcp->address);
    snprintf(key, sizeof key, "tcp.%s.%d", s->key, boot->rank);
    return boot->put(boot->context, key, where, strlen(where) + 1, err);
}

static tr_status find_peer(const struct setup *s, int peer, struct addrinfo **found, char *where,
                           size_t capacity, tr_error *err)
{
    char key[128];
    size_t got = 0;
    const tri_bootstrap *boot = s->tcp->boot;
    snprintf(key, sizeof key, "tcp.%s.%d", s->key, peer);
    tr_status status = boot->get(boot->context, key, where, capacity - 1, &got, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "rank %d waits for rank %d to join", boot->rank, peer);
    where[got] = '\0';
    char *address = NULL;
    long port = strtol(where, &address, 10);
    if (port < 1 || port > 65535 || *address != ' ')
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d published no address", peer);
    return tri_wire_resolve(address + 1, (int)port, false, found, err);
}

static tr_status connect_peer(struct setup *s, int member, tr_error *err)
{
    int peer = s->ports->ranks[member];
    char where[72];
    struct addrinfo *found;
    TRI_TRY(find_peer(s, peer, &found, where, sizeof where, err));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int wrong = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0)
        wrong = errno;
    freeaddrinfo(found);
    tr_status status = TR_OK;
    if (wrong == EINPROGRESS) {
        socklen_t length = sizeof wrong;
        status = wait_fd(s, fd, POLLOUT, peer, "connecting to", err);
        if (status == TR_OK)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &wrong, &length);
    }
    if (status == TR_OK && wrong != 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "rank %d cannot connect to rank %d at %s: %s",
                          s->tcp->boot->rank, peer, strchr(where, ' ') + 1, strerror(wrong));
    struct hello hello = make_hello(s, s->tcp->boot->rank, peer);
    if (status == TR_OK && send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        status = tri_fail(err, TR_ERROR_RUNTIME, "rank %d cannot greet rank %d: %s",
                          s->tcp->boot->rank, peer, strerror(errno));
    if (status != TR_OK) {
        if (fd >= 0)
            close(fd);
        return status;
    }
    set_options(fd);
    s->fds[member] = fd;
    return TR_OK;
}

/* Reads on; true when the hello is complete. *gone: nobody is there any more. */
static bool read_hello(struct pending *p, bool *gone)
{
    ssize_t n = recv(p->fd, (char *)&p->hello + p->got, sizeof p->hello - p->got, MSG_DONTWAIT);
    *gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    p->got += n > 0 ? (size_t)n : 0;
    return p->got == sizeof p->hello;
}

/* Which member an accepted connection is from; -1: a stranger. */
static int who_is(const struct setup *s, const struct hello *h)
{
    for (int i = s->ports->me + 1; i < s->ports->size; i++)
        if (s->ports->ranks[i] == h->from && s->fds[i] < 0 && right_hello(s, h, h->from))
            return i;
    return -1;
}

static void drop(struct setup *s, int i)
{
    close(s->pending[i].fd);
    s->pending[i] = s->pending[--s->num_pending];
}

static void take_pending(struct setup *s)
{
    for (int i = 0; i < s->num_pending; i++) {
        struct pending *p = &s->pending[i];
        bool gone, whole = read_hello(p, &gone);
        int member = whole ? who_is(s, &p->hello) : -1;
        if (member >= 0) {
            struct hello back = make_hello(s, s->tcp->boot->rank, p->hello.from);
            set_options(p->fd);
            if (send(p->fd, &back, sizeof back, MSG_NOSIGNAL) == (ssize_t)sizeof back) {
                s->fds[member] = p->fd;
                s->pending[i--] = s->pending[--s->num_pending];
                continue;
            }
        }
        if (whole || gone || tri_now_ns() - p->since_ns > STRANGER_NS)
            drop(s, i--);
    }
}

static int first_missing(const struct setup *s)
{
    for (int i = s->ports->me + 1; i < s->ports->size; i++)
        if (s->fds[i] < 0)
            return s->ports->ranks[i];
    return -1;
}

static tr_status accept_all(struct setup *s, tr_error *err)
{
    struct pollfd polls[MOST_PENDING + 1];
    while (first_missing(s) >= 0) {
        polls[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < s->num_pending; i++)
            polls[i + 1] = (struct pollfd){.fd = s->pending[i].fd, .events = POLLIN};
        poll(polls, (nfds_t)s->num_pending + 1, SLICE_MS);
        TRI_TRY(still_time(s, first_missing(s), "waiting for the connection of", err));
        int fd;
        while (s->num_pending < MOST_PENDING &&
               (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
            s->pending[s->num_pending++] = (struct pending){.fd = fd, .since_ns = tri_now_ns()};
        take_pending(s);
    }
    return TR_OK;
}

/* The answers of those we connected to. */
static tr_status hear_back(struct setup *s, tr_error *err)
{
    for (int i = 0; i < s->ports->me; i++) {
        struct pending p = {.fd = s->fds[i]};
        bool gone = false;
        int peer = s->ports->ranks[i];
        while (!read_hello(&p, &gone) && !gone)
            TRI_TRY(wait_fd(s, p.fd, POLLIN, peer, "waiting for an answer of", err));
        if (gone || !right_hello(s, &p.hello, peer))
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "what answered at the address of rank %d does not know the job's "
                            "token, or ended",
                            peer);
    }
    return TR_OK;
}

tr_status tri_tcp_connect(const tri_tcp *tcp, const tri_ports *ports, const char *key, int *fds,
                          tr_error *err)
{
    struct setup s = {.tcp = tcp,
                      .ports = ports,
                      .key = key,
                      .fds = fds,
                      .listener = -1,
                      .start_ns = tri_now_ns()};
    for (int i = 0; i < ports->size; i++)
        fds[i] = -1;
    s.pending = calloc(MOST_PENDING, sizeof *s.pending);
    tr_status status = TR_OK;
    if (s.pending == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d connections", ports->size);
    if (status == TR_OK)
        status = publish(&s, err);
    for (int i = 0; status == TR_OK && i < ports->me; i++)
        status = connect_peer(&s, i, err);
    if (status == TR_OK)
        status = accept_all(&s, err);
    if (status == TR_OK)
        status = hear_back(&s, err);
    while (s.num_pending > 0)
        drop(&s, s.num_pending - 1);
    if (s.listener >= 0)
        close(s.listener);
    for (int i = 0; status != TR_OK && i < ports->size; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(s.pending);
    return status;
}
