/* Messages between the members of a set: in order for each pair, received straight from the
 * sender's memory where that is reachable, and through chunks in a pipeline where it is not. A send
 * is done when its receive is.
 *
 * Nothing here waits by itself but tri_ports_drive; one thread at a time uses a set. */
#ifndef TRI_COMM_PORTS_H
#define TRI_COMM_PORTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/transport/transport.h"
#include "comm/wait.h"

/* One end of a message on its way; belongs to the caller until it is done. */
typedef struct tri_port_message {
    struct tri_port_message *next;
    char *data; /* a sender's is only read */
    size_t num_bytes, moved;
    int peer; /* member */
    bool is_send, is_private, posted, done;
    bool combine; /* a receive: with what is in data, not instead of it */
    tri_dtype dtype;
    tri_reduction reduction;
    const struct tri_about
        *about;      /* the collective it belongs to, where transports tell; or NULL */
    uint64_t number; /* of its channel, from 1 */
    tr_status status;
    char why[200]; /* when status is not TR_OK */
} tri_port_message;

typedef struct tri_channel tri_channel; /* one direction of a pair, in the sender's memory */

typedef struct tri_queue {
    tri_port_message *first, *last;
    uint64_t numbered; /* messages so far */
} tri_queue;

typedef struct tri_ports {
    tr_comm *comm;
    int size, me;
    const int *ranks;        /* world ranks of the members; the caller's */
    tri_channel **out, **in; /* [size] */
    tri_eventcount **bells;  /* [size]: rung for a member when something changed for it */
    tri_queue *sends, *recvs;
    bool broken; /* a message was given up: numbers no longer agree */
    /* Without shared memory (io.h), instead of channels and bells: */
    const struct tri_io_def *io;
    void *io_state;
    _Atomic uint64_t *signals; /* [size * TR_NUM_SIGNALS]: raised by peers */
} tri_ports;

/* What a member has to provide: zeroed, reachable. */
size_t tri_ports_bytes(int size);
/* channels[i]: member i's such memory. All arrays but ranks are copied. */
tr_status tri_ports_init(tri_ports *ports, tr_comm *comm, int size, int me, const int *ranks,
                         void **channels, tri_eventcount **bells, tr_error *err);
/* The same over messages; key is the set's own. */
tr_status tri_ports_open(tri_ports *ports, tr_comm *comm, int size, int me, const int *ranks,
                         const char *key, bool rendezvous, tr_error *err);
void tri_ports_fini(tri_ports *ports);

void tri_ports_post(tri_ports *ports, tri_port_message *message);
/* Moves what can be moved; false when that was nothing. */
bool tri_ports_progress(tri_ports *ports);
/* Until the message is done; `what` is for the report: "ring all_reduce, call 3 of group dp". The
 * mutex, when there is one, is held by the caller and given up while nothing moves. */
tr_status tri_ports_drive(tri_ports *ports, tri_port_message *message, pthread_mutex_t *mutex,
                          const char *what, tr_error *err);
/* Until *value is at least `least`: a signal of the member `peer`, over messages. */
tr_status tri_ports_await(tri_ports *ports, int peer, _Atomic uint64_t *value, uint64_t least,
                          pthread_mutex_t *mutex, tri_wait_result *result, double *seconds);
/* Sleeps for 50 ms at most, unless something changed since `seen` was read (of the own bell; not
 * used without shared memory). The mutex is given up meanwhile. */
void tri_ports_nap(tri_ports *ports, uint64_t seen, pthread_mutex_t *mutex);
void tri_ports_wake(tri_ports *ports); /* ends such a sleep */
/* The sentence for a message that failed or was waited for in vain. */
tr_status tri_port_message_failed(tri_ports *ports, const tri_port_message *message,
                                  const char *what, tri_wait_result result, double seconds,
                                  tr_error *err);

#endif
