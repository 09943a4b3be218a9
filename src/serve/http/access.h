/* Who may ask: the Host header and the token. */
#ifndef TRI_SERVE_HTTP_ACCESS_H
#define TRI_SERVE_HTTP_ACCESS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "serve/http/http.h"

typedef struct tri_http_access {
    const char *token; /* NULL: none is needed */
    bool loopback;     /* nothing but the loopback is listened on */
    char cookie[65];   /* what a browser gets for the token */
    char cookie_name[24];
} tri_http_access;

tr_status tri_http_access_init(tri_http_access *access, const char *token, bool loopback, int port,
                               tr_error *err);

typedef enum tri_http_verdict {
    TRI_HTTP_WELCOME,
    TRI_HTTP_ENTERS, /* by ?token=: to be given the cookie */
    TRI_HTTP_STRANGER,
    TRI_HTTP_WRONG_TOKEN,
    TRI_HTTP_WRONG_HOST,
    TRI_HTTP_MALFORMED
} tri_http_verdict;

tri_http_verdict tri_http_judge(const tri_http_access *access, struct MHD_Connection *connection,
                                const tri_http_target *target);

/* Whether a Host header names the loopback, with any port: a tunnel may have another one. */
bool tri_http_host_is_local(const char *host);

#endif
