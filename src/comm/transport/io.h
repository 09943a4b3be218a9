/* What a transport without shared memory provides: the ports of a set of members as messages over
 * something. ports.c keeps the queues, waits and reports; here is what moves the bytes. */
#ifndef TRI_COMM_TRANSPORT_IO_H
#define TRI_COMM_TRANSPORT_IO_H

#include "comm/ports.h"

struct pollfd;

/* What the first bytes of a collective's message say about the call, so that two members who call
 * different things find out. */
typedef struct tri_about {
    uint64_t call; /* number in the group, from 1; 0: not a collective */
    uint64_t count, counts_hash;
    int32_t root;
    uint8_t operation, reduction, dtype, algorithm;
} tri_about;

typedef struct tri_io_def {
    /* Connects the members of ports (ports->ranks); collective over them, with a key of their own.
     * rendezvous: a send ends only when its receive was posted; otherwise when its data may be
     * overwritten. */
    tr_status (*open)(tri_ports *ports, const char *key, bool rendezvous, tr_error *err);
    void (*close)(tri_ports *ports);
    /* Moves what can be moved of the queues; false when that was nothing. */
    bool (*progress)(tri_ports *ports);
    /* What to wait for until it is worth while to try again, at most size + 1 entries; 0: there is
     * nothing to wait on, try again after a while. */
    int (*interest)(tri_ports *ports, struct pollfd *polls);
    /* Ends a wait on the above, from any thread. */
    void (*wake)(tri_ports *ports);
    /* Raises this member's counter at the peer (ports->signals there); once, in order with nothing
     * else. Ports of rendezvous only. */
    void (*signal)(tri_ports *ports, int peer, int slot, uint64_t value);
    /* Bytes of the largest message that travels in one piece; 0 or NULL: no limit is known. */
    size_t (*packet)(const tri_ports *ports);
    /* The library's own collective, as the algorithm "native"; NULL: it has none. */
    tr_status (*native)(tri_ports *ports, const tr_group *group, const tr_collective *call,
                        tr_error *err);
} tri_io_def;

/* For io->progress: ends the first message of a queue; message->status says how. */
void tri_ports_finish_first(tri_ports *ports, tri_queue *queue);
/* A size or a call that the two ends do not agree on. */
void tri_port_message_refuse(tri_port_message *message, uint64_t sent, uint64_t expected);
bool tri_port_message_same_call(tri_port_message *message, int their_rank, const tri_about *theirs);
/* Before a wait: the first receive of a collective, whose `about` is the call this member is in.
 * What others sent it meanwhile, though it expects nothing of them now, may tell that they are in
 * another (then the call number is the same); NULL: there is none. */
tri_port_message *tri_ports_expecting(const tri_ports *ports);

/* Moves messages until done(context), in ports without shared memory. */
tri_wait_result tri_io_wait(tri_ports *ports, bool (*done)(const void *context),
                            const void *context, int peer_rank, pthread_mutex_t *mutex,
                            double *seconds);

#endif
