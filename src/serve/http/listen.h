/* Sockets that listen. */
#ifndef TRI_SERVE_HTTP_LISTEN_H
#define TRI_SERVE_HTTP_LISTEN_H

#include "base/error.h"

enum { TRI_HTTP_MAX_SOCKETS = 2 };

typedef struct tri_http_sockets {
    int fd[TRI_HTTP_MAX_SOCKETS];
    int num, port;
} tri_http_sockets;

/* address NULL: the loopback of both protocols, where there are both; port 0: any. */
tr_status tri_http_listen(tri_http_sockets *sockets, const char *address, int port, tr_error *err);

#endif
