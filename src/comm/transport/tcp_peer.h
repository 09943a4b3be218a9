/* What the files of a tcp lane share: a peer, with what comes in from it and what goes out. */
#ifndef TRI_COMM_TRANSPORT_TCP_PEER_H
#define TRI_COMM_TRANSPORT_TCP_PEER_H

#include "base/checksum.h"
#include "comm/comm_internal.h"
#include "comm/transport/tcp_head.h"

#define TRI_TCP_MOST_BYTES ((size_t)1 << 20) /* in one system call */

typedef struct tri_tcp_peer {
    int fd; /* -1: this member itself */
    bool sums;
    uint64_t dead_ns;
    char why[160];
    /* coming in */
    tri_tcp_head head;
    size_t head_got, staged;
    tri_crc sum; /* of the bytes so far, where there are sums */
    char *stage;
    uint64_t asked; /* the receive that READY was said for */
    /* going out */
    tri_tcp_head out;
    size_t out_sent; /* of the head; the message knows the rest */
    bool sending;
    uint64_t ready, ready_bytes; /* the send that may go, and what its receiver expects */
    tri_tcp_head *control;
    size_t num_control, capacity, control_sent; /* frames; bytes of the first */
} tri_tcp_peer;

typedef struct tri_tcp_lane {
    tri_tcp_peer *peers;
    bool rendezvous;
    int wake;
} tri_tcp_lane;

/* The connection is `dead` from here on; the first reason counts. */
void tri_tcp_give_up(tri_tcp_peer *p, const char *why);
/* errno says that there is nothing to read, or no room, just now. */
bool tri_tcp_would_wait(void);

/* ---- tcp_send.c */
/* A control frame, behind those that wait; false: no memory. */
bool tri_tcp_add_control(tri_tcp_peer *p, tri_tcp_head head);
/* Sends them. False when the socket is full or gone. */
bool tri_tcp_send_control(tri_tcp_peer *p);
/* Control frames and messages, as far as the socket takes them; whether any bytes went. */
bool tri_tcp_push(tri_ports *ports, tri_tcp_lane *lane, int peer);

/* ---- tcp_receive.c; they return whether anything came */
/* For the first receive: head and bytes in one call where they follow each other. */
bool tri_tcp_pull_message(tri_ports *ports, tri_tcp_lane *lane, int peer);
/* In a rendezvous anything may come, so heads are read alone. */
bool tri_tcp_pull_any(tri_ports *ports, tri_tcp_lane *lane, int peer);
void tri_tcp_raise_signal(tri_ports *ports, int peer, uint64_t slot, uint64_t value);

#endif
