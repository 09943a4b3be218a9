/* A transport is memory that peers can reach, and nothing else: everything above (ticks, slots,
 * messages, collectives) is written once, on top of these few functions. Where memory cannot be
 * shared it is messages (io.h) instead, and the rest runs on those.
 *
 * To add one: a file with a table, and a row in tri_transport_find. See
 * docs/how-to/new-transport.md. */
#ifndef TRI_COMM_TRANSPORT_TRANSPORT_H
#define TRI_COMM_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/control/bootstrap.h"

/* Names an address of one rank to the others; copied around as bytes. */
typedef struct tri_ref {
    uint32_t segment; /* of the owner, from 1, never used twice; 0: not reachable */
    int32_t file;     /* shm: the owner's descriptor number */
    uint64_t offset;  /* within the segment; thread: the address itself */
} tri_ref;

typedef struct tri_transport {
    const char *name;
    /* Joins; state is this rank's. Collective in so far as peers are told through the bootstrap. */
    tr_status (*create)(const tri_bootstrap *bootstrap, void **state, tr_error *err);
    void (*destroy)(void *state);
    /* Zeroed, page-aligned memory that peers reach. */
    tr_status (*alloc)(void *state, size_t num_bytes, void **memory, tr_error *err);
    void (*free)(void *state, void *memory);
    /* Ends the use of memory that all members gave each other: members[i] is member i's, here. A
     * peer that is late may still look at ours, so it goes when the last has left. */
    void (*leave)(void *state, void **members, int size, int rank);
    /* The name of num_bytes at address; false when peers cannot reach them. */
    bool (*ref)(void *state, const void *address, size_t num_bytes, tri_ref *ref);
    /* Where a peer's memory is here, readable and writable; mapped at first use. */
    tr_status (*map)(void *state, int peer, tri_ref ref, void **address, tr_error *err);
    /* NULL: memory is shared. Otherwise alloc gives ordinary memory, and leave, ref and map are not
     * called. */
    const struct tri_io_def *io;
} tri_transport;

extern const tri_transport tri_transport_shm, tri_transport_tcp, tri_transport_mpi;

const tri_transport *tri_transport_find(const char *name); /* or NULL */

#endif
