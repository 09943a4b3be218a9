/* What the files of the server share. */
#ifndef TRI_SERVE_HTTP_SERVER_PARTS_H
#define TRI_SERVE_HTTP_SERVER_PARTS_H

#include <microhttpd.h>
#include <pthread.h>

#include "serve/http/access.h"
#include "serve/http/listen.h"

enum { TRI_HTTP_WORKERS = 3, TRI_HTTP_MOST_WAITING = 128, TRI_HTTP_MOST_CONNECTIONS = 256 };

typedef enum tri_exchange_state {
    TRI_EXCHANGE_NEW,
    TRI_EXCHANGE_GREETED, /* it may be answered */
    TRI_EXCHANGE_WAITS,   /* for a worker; its connection is suspended */
    TRI_EXCHANGE_READY    /* the reply is there */
} tri_exchange_state;

/* A connection, for as long as it is open: whether it keeps to its time. */
typedef struct tri_http_peer {
    struct tri_http_peer *next;
    struct tri_http_server *server;
    int fd;
    uint64_t since_ns; /* it owes a request, or takes an answer */
    bool takes;
    bool listens; /* to events, which have no end */
} tri_http_peer;

/* A request and its reply. */
typedef struct tri_http_exchange {
    struct tri_http_exchange *next; /* of those that wait */
    struct MHD_Connection *connection;
    const tri_http_route *route;
    int malformed; /* status that its first line deserves, or 0 */
    tri_exchange_state state;
    tri_http_request request;
    tri_http_reply reply;
    const char *location; /* of a redirection, or NULL */
    char place[3 * TRI_HTTP_TARGET_BYTES + 64];
} tri_http_exchange;

struct tri_http_server {
    tri_http_config config;
    tri_http_access access;
    tri_http_sockets sockets;
    struct MHD_Daemon *daemons[TRI_HTTP_MAX_SOCKETS];
    pthread_t workers[TRI_HTTP_WORKERS];
    int num_workers;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t news;
    tri_http_exchange *waiting, **waiting_end;
    int num_waiting;
    bool stopping;
    tri_http_peer *peers;
};

/* exchange.c */
/* From the first line of a request: what MHD keeps for the exchange; NULL without memory. */
void *tri_http_exchange_begin(void *server, const char *uri, struct MHD_Connection *connection);
enum MHD_Result tri_http_exchange_turn(void *server, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *num_upload, void **exchange);
void tri_http_exchange_end(void *server, struct MHD_Connection *connection, void **exchange,
                           enum MHD_RequestTerminationCode how);

/* server.c: false: there are too many that wait. */
bool tri_http_wait_for_worker(tri_http_server *server, tri_http_exchange *exchange);
void tri_http_peer_takes(tri_http_server *server, struct MHD_Connection *connection, bool takes,
                         bool listens);

#endif
