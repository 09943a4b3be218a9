/* The communicator: what the executor and the public API (include/trireme/comm.h) call. Public and
 * internal layers share their types; this header adds what only the library itself needs. */
#ifndef TRI_COMM_COMM_H
#define TRI_COMM_COMM_H

#include "collective/collective.h"
#include "comm/control/bootstrap.h"
#include "graph/dtype.h"
#include "trireme/comm.h"

typedef tr_comm tri_comm;
typedef tr_group tri_group;
typedef tr_request tri_request;

/* Joins the world that the bootstrap describes, over "thread" or "shm". Collective. The bootstrap
 * (and its stop flag and status) must outlive the communicator; it is copied. */
tr_status tri_comm_create(const tri_bootstrap *bootstrap, const char *transport, tri_comm **comm,
                          tr_error *err);
/* Not collective: a peer may still be at work when this rank leaves, as long as none of the calls
 * that this rank took part in is unfinished there. Outstanding requests must have been waited for.
 */
void tri_comm_destroy(tri_comm *comm);

/* The machine that a rank is on: the first rank that is there too. */
int tri_comm_machine(const tri_comm *comm, int rank);

/* What it was created from, for a library that joins the same ranks. */
const tri_bootstrap *tri_comm_bootstrap(const tri_comm *comm);

/* The internal spellings; the same functions. */
static inline tr_status tri_comm_run(tri_group *group, const tr_collective *call, tr_error *err)
{
    return tr_collective_run(group, call, err);
}
static inline tr_status tri_comm_start(tri_group *group, const tr_collective *call,
                                       tri_request **request, tr_error *err)
{
    return tr_collective_start(group, call, request, err);
}

/* tr_request_wait that also tells when the request was taken up and when it was done. */
tr_status tri_request_wait(tri_request *request, uint64_t *begin_ns, uint64_t *end_ns,
                           tr_error *err);

/* What this rank has spent in messages so far. */
typedef struct tri_comm_time {
    uint64_t calls_ns;
    uint64_t waited_ns; /* of that, for other ranks */
    uint64_t away_ns;   /* of that, while the process was not run: neither waiting nor work */
} tri_comm_time;

tri_comm_time tri_comm_spent(const tri_comm *comm);

/* This rank will not go on: its waits, those of started calls too, end soon and with an error. */
void tri_comm_give_up(tri_comm *comm);

#endif
