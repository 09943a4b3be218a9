#include "comm/control/control_join.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/token_file.h"

int tri_left_ms(uint64_t until_ns)
{
    uint64_t now = tri_now_ns();
    uint64_t left = until_ns > now ? (until_ns - now) / 1000000u + 1 : 0;
    return left < 1000000 ? (int)left : 1000000;
}

static tr_status try_connect(const struct addrinfo *addresses, int timeout_ms, int *fd, int *reason)
{
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        int s = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int wrong = 0;
        socklen_t length = sizeof wrong;
        if (s >= 0 && connect(s, a->ai_addr, a->ai_addrlen) != 0)
            wrong = errno;
        if (s >= 0 && wrong == EINPROGRESS) {
            struct pollfd p = {.fd = s, .events = POLLOUT};
            wrong = ETIMEDOUT;
            if (poll(&p, 1, timeout_ms) > 0)
                getsockopt(s, SOL_SOCKET, SO_ERROR, &wrong, &length);
        }
        if (s >= 0 && wrong == 0) {
            int yes = 1;
            setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            *fd = s;
            return TR_OK;
        }
        *reason = s < 0 ? errno : wrong;
        if (s >= 0)
            close(s);
    }
    return TR_ERROR_RUNTIME;
}

/* Whoever starts the server may be later than this rank: tries again until the deadline. */
static tr_status reach_server(tri_joining *j, tr_error *err)
{
    struct addrinfo *addresses;
    useconds_t pause_us = 1000;
    int reason = 0;
    TRI_TRY(tri_wire_resolve(j->join->address, j->join->port, false, &addresses, err));
    while (try_connect(addresses, tri_left_ms(j->until_ns), &j->fd, &reason) != TR_OK &&
           tri_left_ms(j->until_ns) > 0) {
        usleep(pause_us);
        pause_us = pause_us < 100000 ? 2 * pause_us : pause_us;
    }
    freeaddrinfo(addresses);
    if (j->fd >= 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "rank %d could not reach rank 0's control server at %s in %.3g s: %s",
                    j->join->rank, j->address, j->join->join_s, strerror(reason));
}

/* ---- the handshake ---- */

static tr_status say_hello(tri_joining *j, tr_error *err)
{
    char boot[40] = "";
    tri_hello *h = &j->hello;
    *h = (tri_hello){.rank = (uint32_t)j->join->rank,
                     .size = (uint32_t)j->join->size,
                     .pid = getpid(),
                     .host = "?"};
    gethostname(h->host, sizeof h->host - 1);
    /* Machines are told apart by their boots: containers and clusters share host names. */
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot - 1);
        boot[n > 0 ? n - 1 : 0] = 0;
        close(fd);
    }
    snprintf(h->host_id, sizeof h->host_id, "%.24s %s", boot, h->host);
    TRI_TRY(tri_auth_nonce(h->nonce, err));
    j->greeted = true;
    return tri_hello_write(j->out, h, j->token, j->challenge)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control client");
}

/* A server that sends a challenge is there, so that the token is, too, where rank 0 writes it. */
static tr_status find_token(tri_joining *j, tr_error *err)
{
    const double most_s = 4; /* the server hangs up on the silent after 5 s */
    double patience_s = j->join->join_s / 2 < most_s ? j->join->join_s / 2 : most_s;
    if (j->join->token_file)
        return tri_token_file_read(j->join->token_file, patience_s, j->token, err);
    snprintf(j->token, sizeof j->token, "%s", j->join->token);
    return TR_OK;
}

static tr_status not_ours(const tri_joining *j, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "what answers at %s is not a control server of this version", j->address);
}

/* A frame of the server: *done when it is the last of the handshake. */
static tr_status take_answer(tri_joining *j, tri_wire_frame *frame, tri_welcome *welcome,
                             bool *done, tr_error *err)
{
    char why[600];
    *done = false;
    if (!j->greeted) {
        if (!tri_challenge_read(frame, j->challenge))
            return not_ours(j, err);
        TRI_TRY(find_token(j, err));
        return say_hello(j, err);
    }
    if (!j->proved) {
        j->proved = tri_proof_read(frame, &j->hello, j->token, j->challenge);
        return j->proved
                   ? TR_OK
                   : tri_fail(err, TR_ERROR_RUNTIME,
                              "what answers at %s does not know the job's token: it is not rank 0 "
                              "of this job. Is another program, or another job, on this port?",
                              j->address);
    }
    *done = true;
    if (frame->type == TRI_WIRE_WELCOME && tri_welcome_read(frame, j->join->size, welcome))
        return TR_OK;
    if (frame->type == TRI_WIRE_REFUSED || frame->type == TRI_WIRE_STOP) {
        tri_wire_text(frame, why, sizeof why);
        if (tri_wire_whole(frame) && why[0])
            return tri_fail(err, TR_ERROR_RUNTIME, "%s", why);
    }
    return not_ours(j, err);
}

static tr_status hung_up(const tri_joining *j, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "the control server at %s hung up on rank %d: the token of this rank is not "
                    "the job's, or the server ended",
                    j->address, j->join->rank);
}

static tr_status await_welcome(tri_joining *j, tri_welcome *welcome, tr_error *err)
{
    const uint64_t server_first_ns = 2000000000u; /* it gives up first, and says who is missing */
    for (bool done = false, open = true; !done;) {
        tri_wire_frame frame;
        const char *wrong;
        int got = tri_wire_take(j->in, TRI_WIRE_MAX_BYTES, &frame, &wrong);
        if (got < 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "what answers at %s is no control server: %s",
                            j->address, wrong);
        if (got > 0) {
            TRI_TRY(take_answer(j, &frame, welcome, &done, err));
            continue;
        }
        open = open && tri_wire_send(j->out, j->fd);
        if (!open)
            return hung_up(j, err);
        struct pollfd p = {.fd = j->fd,
                           .events = POLLIN | (tri_wire_pending(j->out) ? POLLOUT : 0)};
        if (poll(&p, 1, tri_left_ms(j->until_ns + server_first_ns)) == 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "rank %d waited %.3g s for %s", j->join->rank,
                            j->join->join_s,
                            j->proved ? "the others to join" : "the control server to answer");
        open = tri_wire_receive(j->in, j->fd);
    }
    return TR_OK;
}

tr_status tri_control_enter(tri_joining *j, tri_welcome *welcome, char session[TRI_AUTH_TEXT],
                            tr_error *err)
{
    j->fd = -1;
    j->until_ns = tri_now_ns() + (uint64_t)(j->join->join_s * 1e9);
    TRI_TRY(reach_server(j, err));
    TRI_TRY(await_welcome(j, welcome, err));
    return tri_auth_session(j->token, welcome->session, session)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control client");
}
