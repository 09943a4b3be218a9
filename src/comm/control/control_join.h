/* Joining: from the first try to reach the server until all ranks are there. */
#ifndef TRI_COMM_CONTROL_CONTROL_JOIN_H
#define TRI_COMM_CONTROL_CONTROL_JOIN_H

#include "comm/control/control.h"
#include "comm/control/control_hello.h"

typedef struct tri_joining {
    const tri_control_join *join;
    const char *address; /* of the server, for messages */
    int fd;              /* the connection; -1: there is none */
    tri_wire_in *in;     /* what came after the welcome is left in it */
    tri_wire_out *out;
    uint64_t until_ns;
    /* The handshake so far: */
    char token[TRI_CONTROL_MAX_TOKEN];
    unsigned char challenge[TRI_AUTH_BYTES];
    tri_hello hello;
    bool greeted, proved;
} tri_joining;

/* Also in case of failure fd is the caller's to close. session is the token of this session. */
tr_status tri_control_enter(tri_joining *j, tri_welcome *welcome, char session[TRI_AUTH_TEXT],
                            tr_error *err);

/* Milliseconds until then, for poll. */
int tri_left_ms(uint64_t until_ns);

#endif
