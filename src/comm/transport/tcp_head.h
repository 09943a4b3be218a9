/* What stands before every message of the tcp transport, as bytes: no sockets here, so that tests
 * and fuzzers can make and judge any. */
#ifndef TRI_COMM_TRANSPORT_TCP_HEAD_H
#define TRI_COMM_TRANSPORT_TCP_HEAD_H

#include "comm/transport/io.h"

enum {
    TRI_TCP_DATA = 1, /* a message; its bytes follow */
    TRI_TCP_READY,    /* the receive of that number is posted; its bytes */
    TRI_TCP_REFUSED,  /* the send of that number has another size */
    TRI_TCP_SIGNAL,   /* number is the slot, num_bytes the value */
    TRI_TCP_MAGIC = 0x54524932
};

typedef struct tri_tcp_head {
    uint32_t magic, type;
    uint64_t number; /* of the message between the two */
    uint64_t num_bytes;
    uint64_t sum; /* of the bytes that follow; 0: the connection has no sums, see tri_tcp_end */
    uint64_t head_sum; /* of this head with 0 here; likewise */
    tri_about about;
} tri_tcp_head;

/* Fills in head_sum; data_sum is that of what follows. */
void tri_tcp_head_seal(tri_tcp_head *head, uint64_t data_sum);
/* NULL, or what is wrong with a head as such. */
const char *tri_tcp_head_wrong(const tri_tcp_head *head, bool sums);
/* Whether it is the head of this receive; if not, the message has failed and says why. */
bool tri_tcp_head_fits(const tri_tcp_head *head, const tri_ports *ports, tri_port_message *message);
/* All bytes of a receive are there: whether they are those that were sent. */
bool tri_tcp_sum_fits(const tri_tcp_head *head, uint64_t sum, const tri_ports *ports,
                      tri_port_message *message);

#endif
