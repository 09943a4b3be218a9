/* The client of the control plane: a rank's link to the server.
 *
 *   1. Once the rank has joined, only the thread touches the socket and `in`. Others add to `out`
 *      under the mutex and wake the thread.
 *   2. A get is a record on the stack of its caller, listed under the mutex; the thread fills it.
 *      The caller takes it off the list before it returns, whatever happened. */
#include "comm/control/control.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_join.h"

static const uint64_t longest_beat_ns = 200000000u;
static const double one_second = 1; /* see tri_control_client_bootstrap */

typedef struct waiting_get {
    const char *key;
    void *data;
    size_t capacity, num_bytes;
    bool answered;
    struct waiting_get *next;
} waiting_get;

struct tri_control_client {
    int fd, wake;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tri_wire_in in;
    uint64_t beat_ns; /* between two heartbeats */
    /* Under the mutex: */
    tri_wire_out out;
    waiting_get *gets;
    bool ending; /* leave as soon as everything was sent */
    bool gone;   /* the thread has left */
    /* Of the rank: */
    tri_bootstrap bootstrap;
    tri_stop stop;
    tri_rank_status own_status;
    char address[80];
    char token[TRI_AUTH_TEXT]; /* of the session */
};

/* ---- the thread ---- */

static void set_stop(tri_control_client *c, const char *reason)
{
    tri_stop *stop = c->bootstrap.stop;
    if (atomic_load(&stop->stopped))
        return;
    snprintf(stop->reason, sizeof stop->reason, "%s", reason);
    atomic_store(&stop->stopped, 1);
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void take_value(tri_control_client *c, tri_wire_frame *frame)
{
    char key[TRI_WIRE_MAX_KEY + 1];
    size_t num_bytes;
    tri_wire_text(frame, key, sizeof key);
    const void *data = tri_wire_bytes(frame, &num_bytes);
    if (!tri_wire_whole(frame))
        return;
    pthread_mutex_lock(&c->mutex);
    for (waiting_get *g = c->gets; g; g = g->next) {
        if (g->answered || strcmp(g->key, key) != 0)
            continue;
        if (num_bytes > 0 && num_bytes <= g->capacity)
            memcpy(g->data, data, num_bytes);
        g->num_bytes = num_bytes;
        g->answered = true;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

/* False when the server is lost or makes no sense. */
static bool hear(tri_control_client *c)
{
    bool open = tri_wire_receive(&c->in, c->fd);
    tri_wire_frame frame;
    const char *wrong;
    int got;
    while ((got = tri_wire_take(&c->in, TRI_WIRE_MAX_BYTES, &frame, &wrong)) > 0) {
        char reason[600];
        if (frame.type == TRI_WIRE_VALUE) {
            take_value(c, &frame);
        } else if (frame.type == TRI_WIRE_STOP || frame.type == TRI_WIRE_REFUSED) {
            tri_wire_text(&frame, reason, sizeof reason);
            set_stop(c,
                     reason[0] ? reason : "the control server ended the job, and did not say why");
        }
    }
    return open && got == 0;
}

/* Sends what is there to send; *pending says whether something is left. False: the server is lost.
 * *leave: everything was sent, and nothing more is to come. */
static bool speak(tri_control_client *c, bool *pending, bool *leave)
{
    pthread_mutex_lock(&c->mutex);
    bool open = tri_wire_send(&c->out, c->fd);
    *pending = tri_wire_pending(&c->out);
    *leave = c->ending && !*pending;
    if (!*pending)
        pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return open;
}

/* Under the mutex. */
static void add_where(tri_control_client *c)
{
    tri_rank_where where;
    tri_rank_where_read(&where, c->bootstrap.status);
    tri_wire_begin(&c->out, TRI_WIRE_BEAT);
    tri_wire_add_where(&c->out, &where);
    tri_wire_end(&c->out);
}

static void add_beat(tri_control_client *c)
{
    pthread_mutex_lock(&c->mutex);
    /* When the server does not read, more of them would help nobody. */
    if (!tri_wire_pending(&c->out))
        add_where(c);
    pthread_mutex_unlock(&c->mutex);
}

static void *live(void *argument)
{
    tri_control_client *c = argument;
    uint64_t next_beat = 0;
    bool open = true, leave = false, pending = false;
    while (open && !leave) {
        if (tri_now_ns() >= next_beat) {
            add_beat(c);
            next_beat = tri_now_ns() + c->beat_ns;
        }
        open = speak(c, &pending, &leave);
        if (!open || leave)
            break;
        struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN | (pending ? POLLOUT : 0)},
                              {.fd = c->wake, .events = POLLIN}};
        if (poll(p, 2, tri_left_ms(next_beat)) <= 0)
            continue;
        if (p[1].revents) {
            uint64_t count;
            if (read(c->wake, &count, sizeof count) < 0)
                continue; /* somebody's wake-up is still to come */
        }
        if (p[0].revents & ~POLLOUT)
            open = hear(c);
    }
    if (!open) {
        char reason[200];
        snprintf(reason, sizeof reason,
                 "the control server at %s is gone: the launcher or rank 0 "
                 "has ended",
                 c->address);
        set_stop(c, reason);
    }
    pthread_mutex_lock(&c->mutex);
    c->gone = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- what the rank calls ---- */

static void wake(tri_control_client *c)
{
    uint64_t one = 1;
    ssize_t written = write(c->wake, &one, sizeof one);
    (void)written; /* full means that it will wake */
}

static struct timespec after(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)(seconds * 1e9);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

static tr_status check_key(const char *key, tr_error *err)
{
    size_t length = strlen(key);
    return length > 0 && length <= TRI_WIRE_MAX_KEY
               ? TR_OK
               : tri_fail(err, TR_ERROR_INTERNAL, "a key of %zu characters; 1 to %d are possible",
                          length, TRI_WIRE_MAX_KEY);
}

static tr_status client_put(void *context, const char *key, const void *data, size_t num_bytes,
                            tr_error *err)
{
    tri_control_client *c = context;
    TRI_TRY(check_key(key, err));
    if (num_bytes > TRI_WIRE_MAX_BYTES - TRI_WIRE_MAX_KEY - 8)
        return tri_fail(err, TR_ERROR_INTERNAL, "%zu bytes under the key %s; %d are possible",
                        num_bytes, key, TRI_WIRE_MAX_BYTES - TRI_WIRE_MAX_KEY - 8);
    if (atomic_load(&c->bootstrap.stop->stopped))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s", c->bootstrap.stop->reason);
    pthread_mutex_lock(&c->mutex);
    tri_wire_begin(&c->out, TRI_WIRE_PUT);
    tri_wire_add_text(&c->out, key);
    tri_wire_add_bytes(&c->out, data, num_bytes);
    tri_wire_end(&c->out);
    pthread_mutex_unlock(&c->mutex);
    wake(c);
    return TR_OK;
}

static void unlist(tri_control_client *c, const waiting_get *get)
{
    waiting_get **at = &c->gets;
    while (*at != get)
        at = &(*at)->next;
    *at = get->next;
}

static tr_status client_get(void *context, const char *key, void *data, size_t capacity,
                            size_t *num_bytes, tr_error *err)
{
    tri_control_client *c = context;
    TRI_TRY(check_key(key, err));
    waiting_get get = {.key = key, .data = data, .capacity = capacity};
    struct timespec until = after(c->bootstrap.deadline_s);
    tri_stop *stop = c->bootstrap.stop;
    int wrong = 0;
    pthread_mutex_lock(&c->mutex);
    get.next = c->gets;
    c->gets = &get;
    tri_wire_begin(&c->out, TRI_WIRE_GET);
    tri_wire_add_text(&c->out, key);
    tri_wire_end(&c->out);
    wake(c);
    while (!get.answered && !atomic_load(&stop->stopped) && wrong == 0)
        wrong = pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    unlist(c, &get);
    pthread_mutex_unlock(&c->mutex);
    if (get.answered && get.num_bytes > capacity)
        return tri_fail(err, TR_ERROR_INTERNAL,
                        "the value of %s has %zu bytes, there is room for %zu", key, get.num_bytes,
                        capacity);
    if (get.answered) {
        *num_bytes = get.num_bytes;
        return TR_OK;
    }
    if (atomic_load(&stop->stopped))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s", stop->reason);
    return tri_fail(err, TR_ERROR_RUNTIME, "rank %d waited %.3g s for the key %s, which nobody put",
                    c->bootstrap.rank, c->bootstrap.deadline_s, key);
}

/* Waits until all that was said is on its way, but not for long. */
static void let_out(tri_control_client *c, double seconds)
{
    struct timespec until = after(seconds);
    int wrong = 0;
    wake(c);
    pthread_mutex_lock(&c->mutex);
    while (wrong == 0 && !c->gone && tri_wire_pending(&c->out))
        wrong = pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    pthread_mutex_unlock(&c->mutex);
}

void tri_control_report_failure(const tri_bootstrap *bootstrap, const char *message)
{
    if (bootstrap->put != client_put || atomic_load(&bootstrap->stop->stopped))
        return;
    tri_control_client *c = bootstrap->context;
    pthread_mutex_lock(&c->mutex);
    add_where(c); /* the last beat may be older than what failed */
    tri_wire_add_message(&c->out, TRI_WIRE_FAILED, message);
    pthread_mutex_unlock(&c->mutex);
    let_out(c, 1);
}

const tri_bootstrap *tri_control_client_bootstrap(const tri_control_client *c)
{
    return &c->bootstrap;
}

/* ---- its life ---- */

static void release(tri_control_client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->wake >= 0)
        close(c->wake);
    tri_wire_in_fini(&c->in);
    tri_wire_out_fini(&c->out);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

/* The address by which this machine reaches the server is one by which others reach it. */
static void own_address(tri_control_client *c)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (getsockname(c->fd, (struct sockaddr *)&own, &length) != 0 ||
        getnameinfo((struct sockaddr *)&own, length, c->bootstrap.address,
                    sizeof c->bootstrap.address, NULL, 0, NI_NUMERICHOST) != 0)
        c->bootstrap.address[0] = '\0';
}

static tr_status enter(tri_control_client *c, const tri_control_join *join, tr_error *err)
{
    tri_welcome welcome;
    if (c->wake < 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "no event descriptor: %s", strerror(errno));
    tri_joining joining = {.join = join, .address = c->address, .in = &c->in, .out = &c->out};
    tr_status entered = tri_control_enter(&joining, &welcome, c->token, err);
    c->fd = joining.fd;
    TRI_TRY(entered);
    own_address(c);
    uint64_t quarter_ns = (uint64_t)(welcome.deadline_s * 0.25e9);
    c->beat_ns = quarter_ns < longest_beat_ns ? quarter_ns + 1 : longest_beat_ns;
    c->bootstrap.deadline_s = welcome.deadline_s + one_second;
    c->bootstrap.local_rank = welcome.local_rank;
    c->bootstrap.local_size = welcome.local_size;
    sigset_t all, old; /* signals are for the rank's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int wrong = pthread_create(&c->thread, NULL, live, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return wrong == 0 ? TR_OK
                      : tri_fail(err, TR_ERROR_RUNTIME, "no thread for the control client: %s",
                                 strerror(wrong));
}

tr_status tri_control_client_create(const tri_control_join *join, tri_control_client **client,
                                    tr_error *err)
{
    *client = NULL;
    tri_control_client *c = calloc(1, sizeof *c);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control client");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    c->fd = -1;
    c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    snprintf(c->address, sizeof c->address, "%s:%d", join->address, join->port);
    if (!join->status)
        tri_rank_status_init(&c->own_status);
    c->bootstrap = (tri_bootstrap){.rank = join->rank,
                                   .size = join->size,
                                   .stop = &c->stop,
                                   .status = join->status ? join->status : &c->own_status,
                                   .token = c->token,
                                   .context = c,
                                   .put = client_put,
                                   .get = client_get};
    tr_status status = enter(c, join, err);
    if (status == TR_OK)
        *client = c;
    else
        release(c);
    return status;
}

void tri_control_client_destroy(tri_control_client *c, bool goodbye)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    if (goodbye) {
        tri_wire_begin(&c->out, TRI_WIRE_GOODBYE);
        tri_wire_end(&c->out);
    }
    pthread_mutex_unlock(&c->mutex);
    let_out(c, 1);
    pthread_mutex_lock(&c->mutex);
    c->ending = true;
    /* Whatever is left by now has nobody who reads it. */
    c->out.sent = c->out.used;
    pthread_mutex_unlock(&c->mutex);
    wake(c);
    pthread_join(c->thread, NULL);
    release(c);
}
