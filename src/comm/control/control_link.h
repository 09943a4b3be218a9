/* A connection as the control server sees it. */
#ifndef TRI_COMM_CONTROL_CONTROL_LINK_H
#define TRI_COMM_CONTROL_CONTROL_LINK_H

#include "comm/control/auth.h"
#include "comm/control/control_wire.h"

typedef struct tri_link {
    int fd, epoll;
    int rank; /* -1: a stranger */
    uint64_t since_ns;
    char from[64];                           /* address, for the log */
    unsigned char challenge[TRI_AUTH_BYTES]; /* that it was given */
    tri_wire_in in;
    tri_wire_out out;
    bool wants_out; /* epoll was asked to tell when it can be written to */
    bool closing;   /* to be closed when everything was sent */
    bool dead;      /* to be destroyed as soon as nobody looks at it */
} tri_link;

/* The next caller in the queue of a listening socket, watched by the epoll from now on; NULL when
 * there is none, or no memory or descriptor for it. */
tri_link *tri_link_accept(int listener, int epoll);
void tri_link_destroy(tri_link *link);
/* Sends what can be sent now; the epoll tells when there is room for more. */
void tri_link_flush(tri_link *link);

#endif
