/* MHD's thread reads and writes connections; three workers make what takes time, so that a document
 * that is long in the making holds up nobody else's events.
 *
 *   1. The exchange of a suspended connection belongs to the worker that took it, until that
 *      resumes the connection.
 *   2. A descriptor is shut down only under the lock, and its peer is gone from the list before MHD
 *      closes it: no descriptor of somebody else is hit. */
#include "serve/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/feed_parts.h"
#include "serve/http/server_parts.h"

/* ---- workers ---- */

bool tri_http_wait_for_worker(tri_http_server *s, tri_http_exchange *e)
{
    pthread_mutex_lock(&s->lock);
    bool room = s->num_waiting < TRI_HTTP_MOST_WAITING && !s->stopping;
    s->num_waiting += room;
    pthread_mutex_unlock(&s->lock);
    if (!room)
        return false;
    tri_http_peer_takes(s, e->connection, true, false);
    e->state = TRI_EXCHANGE_WAITS;
    e->next = NULL;
    MHD_suspend_connection(e->connection);
    pthread_mutex_lock(&s->lock);
    *s->waiting_end = e;
    s->waiting_end = &e->next;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
    return true;
}

static tri_http_exchange *next_waiting(tri_http_server *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->waiting && !(s->stopping && s->num_waiting == 0))
        pthread_cond_wait(&s->news, &s->lock);
    tri_http_exchange *e = s->waiting;
    if (e) {
        s->waiting = e->next;
        if (!s->waiting)
            s->waiting_end = &s->waiting;
        s->num_waiting--;
    }
    pthread_mutex_unlock(&s->lock);
    return e;
}

static void *work(void *context)
{
    tri_http_server *s = context;
    tri_http_exchange *e;
    while ((e = next_waiting(s))) {
        e->route->handle(s->config.context, &e->request, &e->reply);
        e->state = TRI_EXCHANGE_READY;
        MHD_resume_connection(e->connection);
    }
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->news); /* nothing waits: the other may end, too */
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- connections ---- */

static void notify(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_ConnectionNotificationCode code)
{
    tri_http_server *s = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        tri_http_peer *peer = calloc(1, sizeof *peer);
        if (!peer)
            return; /* its timeout is MHD's alone */
        *peer = (tri_http_peer){
            .server = s, .fd = info ? info->connect_fd : -1, .since_ns = tri_now_ns()};
        pthread_mutex_lock(&s->lock);
        peer->next = s->peers;
        s->peers = peer;
        pthread_mutex_unlock(&s->lock);
        *own = peer;
        return;
    }
    pthread_mutex_lock(&s->lock);
    for (tri_http_peer **link = &s->peers; *link; link = &(*link)->next)
        if (*link == *own) {
            *link = (*link)->next;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    free(*own);
    *own = NULL;
}

void tri_http_peer_takes(tri_http_server *s, struct MHD_Connection *connection, bool takes,
                         bool listens)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    tri_http_peer *peer = info ? info->socket_context : NULL;
    if (!peer)
        return;
    pthread_mutex_lock(&s->lock);
    peer->since_ns = tri_now_ns();
    peer->takes = takes;
    peer->listens = listens;
    pthread_mutex_unlock(&s->lock);
}

void tri_http_tick(tri_http_server *s)
{
    uint64_t now = tri_now_ns();
    pthread_mutex_lock(&s->lock);
    for (tri_http_peer *peer = s->peers; peer; peer = peer->next) {
        double most_s = peer->takes ? s->config.answer_s : s->config.request_s;
        if (!peer->listens && peer->fd >= 0 && 1e-9 * (double)(now - peer->since_ns) > most_s) {
            shutdown(peer->fd, SHUT_RDWR);
            peer->fd = -1;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- start and end ---- */

static void *first_line(void *context, const char *uri, struct MHD_Connection *connection)
{
    return tri_http_exchange_begin(context, uri, connection);
}

/* Names and values stay as they came: target.c reads them. */
static size_t leave(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context;
    (void)connection;
    return strlen(text);
}

/* By poll: with epoll, this version of MHD overlooks the end of a connection that comes right
 * behind half a request. */
static struct MHD_Daemon *start_daemon(tri_http_server *s, int fd)
{
    enum { IDLE_S = 30, MEMORY = 24 << 10 };
    unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    unsigned per_address = s->access.loopback ? 0 : TRI_HTTP_MOST_CONNECTIONS / 2;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, tri_http_exchange_turn, s, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)TRI_HTTP_MOST_CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, per_address, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, first_line, s,
        MHD_OPTION_UNESCAPE_CALLBACK, leave, s, MHD_OPTION_NOTIFY_CONNECTION, notify, s,
        MHD_OPTION_NOTIFY_COMPLETED, tri_http_exchange_end, s, MHD_OPTION_END);
}

static tr_status start_all(tri_http_server *s, tr_error *err)
{
    const tri_http_config *c = &s->config;
    TRI_TRY(tri_http_listen(&s->sockets, c->address, c->port, err));
    TRI_TRY(tri_http_access_init(&s->access, c->token, tri_http_is_loopback(c->address),
                                 s->sockets.port, err));
    for (; s->num_workers < TRI_HTTP_WORKERS; s->num_workers++)
        if (pthread_create(&s->workers[s->num_workers], NULL, work, s) != 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "no thread can be started for the page");
    for (int i = 0; i < s->sockets.num; i++) {
        s->daemons[i] = start_daemon(s, s->sockets.fd[i]);
        if (!s->daemons[i])
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "the server of the page cannot be started on port %d", s->sockets.port);
    }
    return TR_OK;
}

tr_status tri_http_start(const tri_http_config *config, tri_http_server **server, tr_error *err)
{
    tri_http_server *s = calloc(1, sizeof *s);
    *server = NULL;
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the server of the page");
    s->config = *config;
    s->config.request_s = config->request_s > 0 ? config->request_s : 20;
    s->config.answer_s = config->answer_s > 0 ? config->answer_s : 120;
    s->waiting_end = &s->waiting;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news, NULL);
    tr_status status = start_all(s, err);
    if (status != TR_OK)
        tri_http_stop(s);
    else
        *server = s;
    return status;
}

int tri_http_port(const tri_http_server *s)
{
    return s->sockets.port;
}

/* First nobody new is let in, then workers end what waits, then all connections close. */
void tri_http_stop(tri_http_server *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->sockets.num; i++)
        if (s->daemons[i])
            MHD_quiesce_daemon(s->daemons[i]);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->num_workers; i++)
        pthread_join(s->workers[i], NULL);
    if (s->config.feed)
        tri_http_feed_close(s->config.feed);
    for (int i = 0; i < s->sockets.num; i++) {
        if (s->daemons[i])
            MHD_stop_daemon(s->daemons[i]);
        close(s->sockets.fd[i]);
    }
    while (s->peers) {
        tri_http_peer *next = s->peers->next;
        free(s->peers);
        s->peers = next;
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->news);
    free(s);
}
