/* What the files of the tcp transport share.
 *
 *   tcp_transport.c   the table; which address is this machine's
 *   tcp_hello.c       how two ends prove that they belong to the session
 *   tcp_connect.c     one connection for each pair of a set of members
 *   tcp_head.c        what stands before every message
 *   tcp_lane.c        messages over them: tcp_send.c, tcp_receive.c */
#ifndef TRI_COMM_TRANSPORT_TCP_H
#define TRI_COMM_TRANSPORT_TCP_H

#include "comm/transport/io.h"

typedef struct tri_tcp {
    const tri_bootstrap *boot;
    char address[48]; /* where the others reach this rank */
} tri_tcp;

/* A connection to a member. */
typedef struct tri_tcp_end {
    int fd;    /* -1: this member itself */
    bool sums; /* messages carry checksums, since one of the ends wants it */
} tri_tcp_end;

/* Connects this member with every other of ports. Collective over the members. On failure all are
 * closed and the message names the peer. */
tr_status tri_tcp_connect(const tri_tcp *tcp, const tri_ports *ports, const char *key,
                          tri_tcp_end *ends, tr_error *err);

/* The lane over connections that are there, ends as above; they are its own from here on, whatever
 * it returns. */
tr_status tri_tcp_adopt(tri_ports *ports, const tri_tcp_end *ends, bool rendezvous, tr_error *err);
/* The first address of this machine that is not the loopback. */
bool tri_outside_address(char *address, size_t capacity);

extern const struct tri_io_def tri_tcp_io;

#endif
