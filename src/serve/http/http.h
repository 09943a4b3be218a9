/* A small HTTP server for pages that show something and change nothing.
 *
 * It answers GET and HEAD of the paths in a table, and nothing else: no path is ever looked up on a
 * disk. Everything has a limit: the first line, headers, connections, time, waiting requests,
 * clients that listen to events. Requests with a body are refused.
 *
 * It listens on the loopback unless told otherwise; there the Host header must name this machine,
 * so that a page of somebody else cannot have a browser ask (DNS rebinding). With a token, whoever
 * does not know it gets 401 or 403, whatever they ask for. The token comes as `Authorization:
 * Bearer TOKEN`, or once as `?token=TOKEN`, which sets a cookie and redirects to the same address
 * without it. */
#ifndef TRI_SERVE_HTTP_HTTP_H
#define TRI_SERVE_HTTP_HTTP_H

#include "base/text.h"
#include "serve/http/feed.h"
#include "serve/http/target.h"

typedef struct tri_http_request {
    tri_http_target target;
    char last_event[64]; /* of a client that comes back, or "" */
} tri_http_request;

/* What a handler fills in. It begins as status 200 with an empty text. */
typedef struct tri_http_reply {
    int status;
    const char *type; /* NULL: JSON */
    tri_text text;
    const void *bytes; /* instead of the text: of the program, never freed; or NULL */
    size_t num_bytes;
    /* Instead of both: the events of these topics, and of topic 0. */
    bool events;
    uint32_t topics[TRI_HTTP_MAX_TOPICS];
    size_t num_topics;
} tri_http_reply;

/* Of several threads at a time. */
typedef void (*tri_http_handler)(void *context, const tri_http_request *request,
                                 tri_http_reply *reply);

typedef struct tri_http_route {
    const char *path;
    tri_http_handler handle;
    bool quick; /* it neither reads a disk nor computes, and need not wait for its turn */
} tri_http_route;

typedef struct tri_http_config {
    const char *address;          /* to listen on; NULL: 127.0.0.1, and ::1 where there is one */
    int port;                     /* 0: any */
    const char *token;            /* NULL: none is needed */
    const tri_http_route *routes; /* ends with a NULL path */
    tri_http_handler other;       /* quick: for paths that no route has; NULL: 404 */
    tri_http_feed *feed;          /* for replies with events; may be NULL */
    void *context;                /* of all handlers */
    double request_s; /* from a connection, or the answer before, to a whole request; 0: 20 */
    double answer_s;  /* until an answer was taken; 0: 120 */
} tri_http_config;

typedef struct tri_http_server tri_http_server;

/* config is copied, what it points to is not. Wrong input where the address is none; a port that is
 * in use is TR_ERROR_RUNTIME, and says what to do. */
tr_status tri_http_start(const tri_http_config *config, tri_http_server **server, tr_error *err);
int tri_http_port(const tri_http_server *server);
/* To be called about once a second: ends connections that are too slow. */
void tri_http_tick(tri_http_server *server);
/* Ends everything; requests that are being worked on are answered first. */
void tri_http_stop(tri_http_server *server);

/* {"error": "..."} with a status. */
void tri_http_refuse(tri_http_reply *reply, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether an address is one of the loopback, on which nobody else can listen in. */
bool tri_http_is_loopback(const char *address);

#endif
