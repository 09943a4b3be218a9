/* The server of the control plane: one epoll, no threads of its own, all sockets without waiting.
 *
 *   1. A connection is a stranger until its HELLO was accepted; then it is a rank's, for good.
 *   2. A connection is closed only in `sweep`, between two batches of events: anywhere else it is
 *      merely marked dead, for a batch may hold an event of it.
 *   3. `failure` is set once. After that ranks only leave; nobody joins and nothing is watched. */
#include "comm/control/control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/arena.h"
#include "comm/control/control_hello.h"
#include "comm/control/control_link.h"
#include "comm/control/control_store.h"
#include "comm/control/control_watch.h"
#include "comm/control/control_wire.h"

enum {
    MAX_EVENTS = 64,
    MAX_STRANGERS = 256, /* beyond this the oldest goes */
    SLICE_MS = 100       /* between two looks at the clock */
};
static const uint64_t stranger_ns = 5000000000u; /* for a HELLO to arrive */

struct tri_control_server {
    tri_control_config config;
    char token[TRI_CONTROL_MAX_TOKEN];
    unsigned char session[TRI_AUTH_BYTES]; /* random, told to all */
    int listener, epoll, port;
    tri_link **links;
    size_t num_links, capacity;
    tri_control_rank *ranks;
    char (*host_ids)[64];
    int num_joined, num_connected;
    bool welcomed;
    uint64_t created_ns, watched_ns;
    tri_control_failure failure;
    tri_control_store store;
};

static void note(tri_control_server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(tri_control_server *s, const char *format, ...)
{
    char line[1200];
    va_list args;
    if (!s->config.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->config.log(s->config.log_context, line);
}

/* ---- connections ---- */

static void drop_stranger(tri_control_server *s, tri_link *c, const char *why)
{
    if (!c->dead)
        note(s, "dropped a connection from %s: %s", c->from, why);
    c->dead = true;
}

/* For one who knows the token: says why before closing. */
static void refuse(tri_control_server *s, tri_link *c, const char *why)
{
    note(s, "refused a rank at %s: %s", c->from, why);
    tri_wire_add_message(&c->out, TRI_WIRE_REFUSED, why);
    c->closing = true;
    tri_link_flush(c);
}

static void limit_strangers(tri_control_server *s)
{
    size_t num = 0, most = MAX_STRANGERS + (size_t)(s->config.size - s->num_joined);
    tri_link *oldest = NULL;
    for (size_t i = 0; i < s->num_links; i++) {
        tri_link *c = s->links[i];
        if (c->rank >= 0 || c->dead)
            continue;
        num++;
        if (!oldest || c->since_ns < oldest->since_ns)
            oldest = c;
    }
    if (num > most)
        drop_stranger(s, oldest, "too many connections that say nothing");
}

static void accept_all(tri_control_server *s)
{
    for (int i = 0; i < MAX_EVENTS; i++) { /* the rest in the next step: ranks want to be heard */
        tri_link **links = tri_array_grow(s->links, s->num_links, &s->capacity, sizeof *links);
        if (!links)
            return; /* they stay in the queue of the kernel */
        s->links = links;
        tri_link *c = tri_link_accept(s->listener, s->epoll);
        if (!c)
            return;
        links[s->num_links++] = c;
        if (tri_auth_nonce(c->challenge, NULL) != TR_OK)
            drop_stranger(s, c, "there are no random numbers for a challenge");
        tri_challenge_write(&c->out, c->challenge);
        tri_link_flush(c);
        limit_strangers(s);
    }
}

static void close_link(tri_control_server *s, tri_link *c)
{
    if (c->rank >= 0) {
        tri_control_rank *rank = &s->ranks[c->rank];
        s->num_connected--;
        if (rank->state == TRI_RANK_PRESENT) {
            rank->state = TRI_RANK_LOST;
            rank->lost_ns = tri_now_ns();
        }
    }
    tri_control_store_forget(&s->store, c);
    tri_link_destroy(c);
}

static void sweep(tri_control_server *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->num_links; i++) {
        tri_link *c = s->links[i];
        if (c->dead)
            close_link(s, c);
        else
            s->links[kept++] = c;
    }
    s->num_links = kept;
}

/* ---- the end ---- */

static void fail(tri_control_server *s, tri_control_cause cause, int rank, const char *reason)
{
    if (s->failure.cause != TRI_CAUSE_NONE)
        return;
    s->failure.cause = cause;
    s->failure.rank = rank;
    s->failure.when_ns = tri_now_ns();
    snprintf(s->failure.reason, sizeof s->failure.reason, "%s", reason);
    for (size_t i = 0; i < s->num_links; i++) {
        tri_link *c = s->links[i];
        if (c->rank < 0 || c->dead)
            continue;
        /* Those who still wait for a welcome get the same as an answer. */
        tri_wire_add_message(&c->out, s->welcomed ? TRI_WIRE_STOP : TRI_WIRE_REFUSED, reason);
        tri_link_flush(c);
    }
}

void tri_control_server_stop(tri_control_server *s, int rank, const char *reason)
{
    fail(s, TRI_CAUSE_ORDERED, rank, reason);
}

/* ---- what ranks say ---- */

static void welcome_all(tri_control_server *s)
{
    uint64_t now = tri_now_ns();
    for (size_t i = 0; i < s->num_links; i++) {
        tri_link *c = s->links[i];
        if (c->rank < 0)
            continue;
        int local_rank = 0, local_size = 0;
        for (int r = 0; r < s->config.size; r++) {
            if (strcmp(s->host_ids[r], s->host_ids[c->rank]) != 0)
                continue;
            local_rank += r < c->rank;
            local_size++;
        }
        s->ranks[c->rank].heard_ns = s->ranks[c->rank].moved_ns = now;
        tri_welcome welcome = {
            .deadline_s = s->config.deadline_s, .local_rank = local_rank, .local_size = local_size};
        memcpy(welcome.session, s->session, sizeof welcome.session);
        tri_welcome_write(&c->out, &welcome);
        tri_link_flush(c);
    }
    s->welcomed = true;
}

static void hello(tri_control_server *s, tri_link *c, tri_wire_frame *frame)
{
    tri_hello said;
    char why[200];
    const char *wrong = tri_hello_read(frame, &said, s->token, c->challenge);
    if (!wrong && !tri_proof_write(&c->out, &said, s->token, c->challenge))
        wrong = "no memory for an answer";
    if (wrong) {
        drop_stranger(s, c, wrong);
        return;
    }
    uint32_t rank = said.rank, size = said.size;
    if (s->failure.cause != TRI_CAUSE_NONE) {
        refuse(s, c, s->failure.reason);
        return;
    }
    if ((int)size != s->config.size || rank >= size) {
        snprintf(why, sizeof why, "rank %u of %u cannot join a world of %d", rank, size,
                 s->config.size);
        refuse(s, c, why);
        return;
    }
    tri_control_rank *info = &s->ranks[rank];
    if (info->state != TRI_RANK_ABSENT) {
        snprintf(why, sizeof why, "rank %u has joined already, from %s, process %lld", rank,
                 info->host, (long long)info->pid);
        refuse(s, c, why);
        return;
    }
    c->rank = (int)rank;
    info->state = TRI_RANK_PRESENT;
    info->pid = said.pid;
    snprintf(info->host, sizeof info->host, "%s", said.host);
    snprintf(s->host_ids[rank], sizeof s->host_ids[rank], "%s", said.host_id);
    info->heard_ns = info->moved_ns = tri_now_ns();
    s->num_joined++;
    s->num_connected++;
    tri_link_flush(c);
    if (s->num_joined == s->config.size)
        welcome_all(s);
}

static void send_value(void *context, void *waiter, const char *key, const void *data,
                       size_t num_bytes)
{
    tri_link *c = waiter;
    (void)context;
    tri_wire_begin(&c->out, TRI_WIRE_VALUE);
    tri_wire_add_text(&c->out, key);
    tri_wire_add_bytes(&c->out, data, num_bytes);
    tri_wire_end(&c->out);
    tri_link_flush(c);
}

static void beat(tri_control_rank *info, tri_wire_frame *frame)
{
    tri_rank_where where;
    tri_wire_where(frame, &where);
    if (frame->failed)
        return;
    if (where.counter != info->where.counter)
        info->moved_ns = info->heard_ns;
    info->where = where;
}

static void obey(tri_control_server *s, tri_link *c, tri_wire_frame *frame)
{
    tri_control_rank *info = &s->ranks[c->rank];
    char key[TRI_WIRE_MAX_KEY + 1], why[1200];
    size_t length = 0;
    const void *data;
    bool fine = true;
    info->heard_ns = tri_now_ns();
    switch (frame->type) {
    case TRI_WIRE_PUT:
    case TRI_WIRE_GET:
        tri_wire_text(frame, key, sizeof key);
        data = frame->type == TRI_WIRE_PUT ? tri_wire_bytes(frame, &length) : NULL;
        if (!tri_wire_whole(frame))
            break;
        fine = frame->type == TRI_WIRE_PUT
                   ? tri_control_store_put(&s->store, key, data, length, send_value, NULL)
                   : tri_control_store_get(&s->store, key, c, send_value, NULL);
        break;
    case TRI_WIRE_BEAT:
        beat(info, frame);
        break;
    case TRI_WIRE_GOODBYE:
        info->state = TRI_RANK_ENDED;
        break;
    case TRI_WIRE_FAILED:
        tri_wire_text(frame, info->message, sizeof info->message);
        if (!tri_wire_whole(frame))
            break;
        info->state = TRI_RANK_FAILED;
        snprintf(why, sizeof why, "rank %d failed: %s", c->rank, info->message);
        fail(s, TRI_CAUSE_FAILED, c->rank, why);
        break;
    default:
        frame->failed = true;
    }
    if (!tri_wire_whole(frame) || !fine) {
        note(s, "dropped rank %d at %s: %s", c->rank, c->from,
             fine ? "a frame that is not well formed" : "no memory for what it sends");
        c->dead = true;
    }
}

static void hear(tri_control_server *s, tri_link *c)
{
    bool open = tri_wire_receive(&c->in, c->fd);
    while (!c->dead && !c->closing) {
        size_t most = c->rank < 0 ? TRI_WIRE_MAX_STRANGER_BYTES : TRI_WIRE_MAX_BYTES;
        tri_wire_frame frame;
        const char *wrong;
        int got = tri_wire_take(&c->in, most, &frame, &wrong);
        if (got == 0)
            break;
        if (got < 0 || (c->rank < 0 && frame.type != TRI_WIRE_HELLO)) {
            drop_stranger(s, c, got < 0 ? wrong : "its first frame is not a HELLO");
            return;
        }
        if (c->rank < 0)
            hello(s, c, &frame);
        else
            obey(s, c, &frame);
    }
    if (!open && c->rank < 0 && !c->closing)
        drop_stranger(s, c, "it left without a HELLO");
    if (!open)
        c->dead = true;
}

/* ---- time ---- */

static void watch_clock(tri_control_server *s)
{
    uint64_t now = tri_now_ns(), gap = now - s->watched_ns;
    s->watched_ns = now;
    for (size_t i = 0; i < s->num_links; i++)
        if (s->links[i]->rank < 0 && now - s->links[i]->since_ns > stranger_ns)
            drop_stranger(s, s->links[i], "no HELLO in 5 s");
    if (s->failure.cause != TRI_CAUSE_NONE)
        return;
    /* Time in which this process itself was stopped (^Z stops all of a job) counts for nobody. */
    if (gap > 10u * SLICE_MS * 1000000u) {
        for (int r = 0; r < s->config.size; r++) {
            s->ranks[r].heard_ns += gap;
            s->ranks[r].moved_ns += gap;
        }
        s->created_ns += gap;
    }
    tri_control_failure found = {.rank = -1};
    tri_control_watch watch = {.config = &s->config,
                               .ranks = s->ranks,
                               .welcomed = s->welcomed,
                               .created_ns = s->created_ns,
                               .now_ns = now};
    tri_control_watch_look(&watch, &found);
    if (found.cause != TRI_CAUSE_NONE)
        fail(s, found.cause, found.rank, found.reason);
}

void tri_control_server_step(tri_control_server *s, int timeout_ms)
{
    uint64_t until = tri_now_ns() + (uint64_t)timeout_ms * 1000000u;
    bool busy = false;
    do {
        uint64_t now = tri_now_ns();
        int left_ms = now < until ? (int)((until - now + 999999u) / 1000000u) : 0;
        struct epoll_event events[MAX_EVENTS];
        int num = epoll_wait(s->epoll, events, MAX_EVENTS, left_ms < SLICE_MS ? left_ms : SLICE_MS);
        for (int i = 0; i < num; i++) {
            tri_link *c = events[i].data.ptr;
            if (!c)
                accept_all(s);
            else if (!c->dead && (events[i].events & EPOLLOUT))
                tri_link_flush(c);
            if (c && !c->dead && (events[i].events & ~(uint32_t)EPOLLOUT))
                hear(s, c);
        }
        busy = num > 0;
        sweep(s);
        watch_clock(s);
        sweep(s);
    } while (!busy && tri_now_ns() < until);
}

/* ---- making and reading it ---- */

tr_status tri_control_server_create(const tri_control_config *config, tri_control_server **server,
                                    tr_error *err)
{
    *server = NULL;
    if (config->size < 1 || config->size > TRI_CONTROL_MAX_RANKS)
        return tri_fail(err, TR_ERROR_INPUT, "a world of %d ranks; 1 to %d are possible",
                        config->size, TRI_CONTROL_MAX_RANKS);
    if (!*config->token || strlen(config->token) >= TRI_CONTROL_MAX_TOKEN)
        return tri_fail(err, TR_ERROR_INPUT, "the token of the job must have 1 to %d characters",
                        TRI_CONTROL_MAX_TOKEN - 1);
    tri_control_server *s = calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control server");
    s->config = *config;
    strcpy(s->token, config->token);
    s->config.token = s->token;
    s->config.address = NULL; /* the caller's; not needed again */
    s->listener = s->epoll = -1;
    s->failure.rank = -1;
    s->created_ns = s->watched_ns = tri_now_ns();
    s->ranks = calloc((size_t)config->size, sizeof *s->ranks);
    s->host_ids = calloc((size_t)config->size, sizeof *s->host_ids);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    tr_status status = tri_auth_nonce(s->session, err);
    if (!s->ranks || !s->host_ids || s->epoll < 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control server");
    for (int r = 0; status == TR_OK && r < config->size; r++)
        s->ranks[r].where = (tri_rank_where){.step = -1, .instruction = -1, .peer = -1};
    if (status == TR_OK)
        status = tri_wire_listen(config->address, config->port, &s->listener, &s->port, err);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (status == TR_OK && epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &event) != 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "epoll: %s", strerror(errno));
    if (status == TR_OK)
        *server = s;
    else
        tri_control_server_destroy(s);
    return status;
}

void tri_control_server_destroy(tri_control_server *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->num_links; i++)
        close_link(s, s->links[i]);
    if (s->listener >= 0)
        close(s->listener);
    if (s->epoll >= 0)
        close(s->epoll);
    tri_control_store_fini(&s->store);
    free(s->links);
    free(s->ranks);
    free(s->host_ids);
    free(s);
}

int tri_control_server_port(const tri_control_server *s)
{
    return s->port;
}

int tri_control_server_fd(const tri_control_server *s)
{
    return s->epoll;
}

bool tri_control_server_joined(const tri_control_server *s)
{
    return s->welcomed;
}

bool tri_control_server_done(const tri_control_server *s)
{
    const uint64_t patience_ns = 2000000000u;
    bool failed = s->failure.cause != TRI_CAUSE_NONE;
    /* A rank that was lost becomes the failure after its grace: not yet done. */
    for (int r = 0; !failed && r < s->config.size; r++)
        if (s->ranks[r].state == TRI_RANK_LOST)
            return false;
    if (!failed)
        return s->welcomed && s->num_connected == 0;
    return s->num_connected == 0 || tri_now_ns() - s->failure.when_ns > patience_ns;
}

const tri_control_rank *tri_control_server_rank(const tri_control_server *s, int rank)
{
    return &s->ranks[rank];
}

const tri_control_failure *tri_control_server_failure(const tri_control_server *s)
{
    return &s->failure;
}
