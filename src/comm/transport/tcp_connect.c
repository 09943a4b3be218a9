/* Setting up the connections of a set of members. Every member listens on a port of its own while
 * the set is made and publishes it through the bootstrap; it connects to those before it and
 * accepts those after it. A connection begins with both ends proving that they know the session's
 * token (tcp_hello.h). Strangers (another token, another protocol, silence for 5 s) are dropped,
 * and nobody else notices. When all are connected the port is closed.
 *
 * All of it happens in one loop that waits for nobody in particular, so nobody waits in a circle.
 */
#include "comm/comm_internal.h"
#include "comm/control/control_wire.h"
#include "comm/transport/tcp.h"
#include "comm/transport/tcp_hello.h"

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
#define STRANGER_NS 5000000000u  /* for a hello to arrive */
#define PROOF_NS    30000000000u /* for the proof behind it */
enum { MOST_STRANGERS = 256 };

typedef enum talk_stage { CONNECTING, AWAITS_ANSWER, AWAITS_HELLO, AWAITS_PROOF } talk_stage;

/* A connection that is not known to be a member's yet. */
struct talk {
    int fd;
    talk_stage stage;
    int member; /* that it leads to, or says that it comes from; -1: not said */
    size_t got; /* of what is awaited */
    uint64_t since_ns;
    tri_tcp_hello hello;
    tri_tcp_answer answer;
    tri_tcp_proof proof;
};

struct setup {
    const tri_tcp *tcp;
    const tri_ports *ports;
    const char *key;
    tri_tcp_end *ends;
    int listener;
    uint64_t start_ns;
    struct talk *talks; /* [num_talks] */
    struct pollfd *polls;
    int num_talks, most_talks;
};

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

static tr_status find_peer(const struct setup *s, int peer, struct addrinfo **found, tr_error *err)
{
    char key[128], where[72];
    size_t got = 0;
    const tri_bootstrap *boot = s->tcp->boot;
    snprintf(key, sizeof key, "tcp.%s.%d", s->key, peer);
    tr_status status = boot->get(boot->context, key, where, sizeof where - 1, &got, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "rank %d waits for rank %d to join", boot->rank, peer);
    where[got] = '\0';
    char *address = NULL;
    long port = strtol(where, &address, 10);
    if (port < 1 || port > 65535 || *address != ' ')
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d published no address", peer);
    return tri_wire_resolve(address + 1, (int)port, false, found, err);
}

static tr_status cannot_connect(const struct setup *s, int member, int wrong, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "rank %d cannot connect to rank %d: %s",
                    s->tcp->boot->rank, s->ports->ranks[member], strerror(wrong));
}

/* Begins to connect to a member; the loop goes on with it. */
static tr_status call_member(struct setup *s, int member, tr_error *err)
{
    struct addrinfo *found;
    int peer = s->ports->ranks[member], wrong = 0;
    TRI_TRY(find_peer(s, peer, &found, err));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0)
        wrong = errno;
    freeaddrinfo(found);
    if (fd >= 0 && (wrong == 0 || wrong == EINPROGRESS)) {
        struct talk *t = &s->talks[s->num_talks++];
        *t = (struct talk){.fd = fd, .member = member, .stage = CONNECTING};
        return tri_tcp_hello_make(&t->hello, s->key, s->tcp->boot->rank, peer, s->tcp->boot->sums,
                                  err);
    }
    if (fd >= 0)
        close(fd);
    return cannot_connect(s, member, wrong, err);
}

/* Reads on; true when all of it is there. *gone: nobody is there any more. */
static bool read_on(struct talk *t, void *to, size_t num_bytes, bool *gone)
{
    ssize_t n = recv(t->fd, (char *)to + t->got, num_bytes - t->got, MSG_DONTWAIT);
    *gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    t->got += n > 0 ? (size_t)n : 0;
    return t->got == num_bytes;
}

/* What is said in a handshake is small enough for the empty buffer of a new connection. */
static bool say(const struct talk *t, const void *what, size_t num_bytes)
{
    return send(t->fd, what, num_bytes, MSG_NOSIGNAL) == (ssize_t)num_bytes;
}

static void accept_member(struct setup *s, struct talk *t)
{
    set_options(t->fd);
    s->ends[t->member] =
        (tri_tcp_end){.fd = t->fd, .sums = t->hello.wants_sums || t->answer.wants_sums};
    t->fd = -1;
}

/* One that we called. Its failure is ours. */
static tr_status advance_call(struct setup *s, struct talk *t, short ready, tr_error *err)
{
    const char *token = s->tcp->boot->token;
    if (t->stage == CONNECTING && ready != 0) {
        int wrong = 0;
        socklen_t length = sizeof wrong;
        getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &wrong, &length);
        if (wrong == 0 && !say(t, &t->hello, sizeof t->hello))
            wrong = errno;
        if (wrong != 0)
            return cannot_connect(s, t->member, wrong, err);
        t->stage = AWAITS_ANSWER;
    }
    bool gone = false;
    if (t->stage != AWAITS_ANSWER || (!read_on(t, &t->answer, sizeof t->answer, &gone) && !gone))
        return TR_OK;
    if (gone || !tri_tcp_answer_right(&t->answer, &t->hello, token) ||
        !tri_tcp_proof_make(&t->proof, &t->hello, &t->answer, token) ||
        !say(t, &t->proof, sizeof t->proof))
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "what answered at the address of rank %d does not know the job's token, "
                        "or ended",
                        s->ports->ranks[t->member]);
    accept_member(s, t);
    return TR_OK;
}

/* Which member after this one a hello is from; -1: none. */
static int who_is(const struct setup *s, const tri_tcp_hello *h)
{
    for (int i = s->ports->me + 1; i < s->ports->size; i++)
        if (s->ports->ranks[i] == h->from)
            return s->ends[i].fd < 0 ? i : -1;
    return -1;
}

/* One that called us; false: a stranger. */
static bool advance_caller(struct setup *s, struct talk *t)
{
    const tri_bootstrap *boot = s->tcp->boot;
    bool gone = false;
    if (t->stage == AWAITS_HELLO) {
        if (!read_on(t, &t->hello, sizeof t->hello, &gone))
            return !gone && tri_now_ns() - t->since_ns < STRANGER_NS;
        t->member = tri_tcp_hello_fits(&t->hello, s->key, boot->rank) ? who_is(s, &t->hello) : -1;
        if (t->member < 0 || !tri_tcp_answer_make(&t->answer, &t->hello, boot->token, boot->sums) ||
            !say(t, &t->answer, sizeof t->answer))
            return false;
        t->stage = AWAITS_PROOF;
        t->got = 0;
    }
    if (!read_on(t, &t->proof, sizeof t->proof, &gone))
        return !gone && tri_now_ns() - t->since_ns < PROOF_NS;
    if (!tri_tcp_proof_right(&t->proof, &t->hello, &t->answer, boot->token) ||
        s->ends[t->member].fd >= 0)
        return false;
    accept_member(s, t);
    return true;
}

static void drop(struct setup *s, int i)
{
    if (s->talks[i].fd >= 0)
        close(s->talks[i].fd);
    s->talks[i] = s->talks[--s->num_talks];
}

static int first_missing(const struct setup *s)
{
    for (int i = 0; i < s->ports->size; i++)
        if (i != s->ports->me && s->ends[i].fd < 0)
            return i;
    return -1;
}

/* What came of the last look at the sockets; polls[i + 1] is the talk's. */
static tr_status advance_all(struct setup *s, int num_polled, tr_error *err)
{
    int fd;
    for (int i = num_polled - 1; i >= 0; i--) { /* backwards: drop puts the last in its place */
        struct talk *t = &s->talks[i];
        bool stays = true;
        if (t->stage == CONNECTING || t->stage == AWAITS_ANSWER)
            TRI_TRY(advance_call(s, t, s->polls[i + 1].revents, err));
        else
            stays = advance_caller(s, t);
        if (!stays || t->fd < 0)
            drop(s, i);
    }
    while (s->num_talks < s->most_talks &&
           (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        s->talks[s->num_talks++] =
            (struct talk){.fd = fd, .member = -1, .stage = AWAITS_HELLO, .since_ns = tri_now_ns()};
    return TR_OK;
}

static tr_status meet_all(struct setup *s, tr_error *err)
{
    for (int missing; (missing = first_missing(s)) >= 0;) {
        int num = s->num_talks;
        s->polls[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < num; i++)
            s->polls[i + 1] = (struct pollfd){
                .fd = s->talks[i].fd, .events = s->talks[i].stage == CONNECTING ? POLLOUT : POLLIN};
        poll(s->polls, (nfds_t)num + 1, SLICE_MS);
        TRI_TRY(still_time(s, s->ports->ranks[missing],
                           missing < s->ports->me ? "waiting for an answer of"
                                                  : "waiting for the connection of",
                           err));
        TRI_TRY(advance_all(s, num, err));
    }
    return TR_OK;
}

tr_status tri_tcp_connect(const tri_tcp *tcp, const tri_ports *ports, const char *key,
                          tri_tcp_end *ends, tr_error *err)
{
    struct setup s = {.tcp = tcp,
                      .ports = ports,
                      .key = key,
                      .ends = ends,
                      .listener = -1,
                      .most_talks = ports->size + MOST_STRANGERS,
                      .start_ns = tri_now_ns()};
    for (int i = 0; i < ports->size; i++)
        ends[i] = (tri_tcp_end){.fd = -1};
    s.talks = calloc((size_t)s.most_talks, sizeof *s.talks);
    s.polls = calloc((size_t)s.most_talks + 1, sizeof *s.polls);
    tr_status status = TR_OK;
    if (s.talks == NULL || s.polls == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d connections", ports->size);
    if (status == TR_OK)
        status = publish(&s, err);
    for (int i = 0; status == TR_OK && i < ports->me; i++)
        status = call_member(&s, i, err);
    if (status == TR_OK)
        status = meet_all(&s, err);
    while (s.num_talks > 0)
        drop(&s, s.num_talks - 1);
    if (s.listener >= 0)
        close(s.listener);
    for (int i = 0; status != TR_OK && i < ports->size; i++)
        if (ends[i].fd >= 0)
            close(ends[i].fd);
    free(s.talks);
    free(s.polls);
    return status;
}
