/* Communication between ranks: point-to-point messages and collectives, usable on its own.
 *
 * A world of ranks is made by tr_comm_run_threads (ranks are threads of this process) or
 * tr_comm_spawn (ranks are processes of this machine over shared memory); each rank then runs one
 * function with its own tr_comm. A group is some of the ranks; collectives run on groups.
 *
 * Every wait has a deadline. When a rank dies, never comes, or calls something else than the
 * others, the call returns TR_ERROR_RUNTIME and the message says who, what, how much and how long;
 * the group is broken from then on, and its later calls return the same error.
 *
 * A tr_comm belongs to one rank. Calls of one rank on one group come from one thread at a time. */
#ifndef TRIREME_COMM_H
#define TRIREME_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_comm tr_comm;       /* one rank's end of a world */
typedef struct tr_group tr_group;     /* one rank's end of a group */
typedef struct tr_request tr_request; /* something started; ended by tr_request_wait or _test */

typedef enum tr_dtype { TR_F32, TR_BF16, TR_F16, TR_I32, TR_I64, TR_U8 } tr_dtype;

/* Reductions work on all types but TR_U8. Mean is the sum divided by the number of ranks (integers
 * lose the remainder). bf16 and f16 are widened for each combination and rounded to nearest even
 * after it. Terms are combined in a fixed order, so all ranks get the same bits, every time. */
typedef enum tr_reduction { TR_SUM, TR_MEAN, TR_MIN, TR_MAX, TR_PROD } tr_reduction;

typedef enum tr_operation {
    TR_BARRIER,
    TR_BROADCAST,
    TR_REDUCE,
    TR_ALL_REDUCE,
    TR_GATHER,
    TR_SCATTER,
    TR_ALL_GATHER,
    TR_REDUCE_SCATTER,
    TR_ALL_TO_ALL
} tr_operation;

/* One collective call. All members pass the same but for the pointers (and, in an all-to-all of
 * varying sizes, the counts). "block" is what belongs to one member; blocks lie one after another.
 *
 *   operation       send               recv                count is    in place when
 *   broadcast       root: the vector   the vector          the vector  recv == send, at the root
 *   reduce          the vector         root: the vector    the vector  recv == send, at the root
 *   all_reduce      the vector         the vector          the vector  recv == send
 *   gather          own block          root: all blocks    one block   send is its place in recv
 *   scatter         root: all blocks   own block           one block   recv is its place in send
 *   all_gather      own block          all blocks          one block   send is its place in recv
 *   reduce_scatter  all blocks         own block           one block   recv is its place in send
 *   all_to_all      a block for each   a block from each   one block   never
 *
 * Otherwise send and recv must not overlap. In place, the blocks of send that are not the member's
 * own hold nothing defined after reduce_scatter. recv is not read, and may be NULL, where the table
 * names only root; a broadcast ignores send except at the root, where NULL means recv.
 *
 * Blocks of different sizes: recv_counts[size] in gather and all_gather, send_counts[size] in
 * scatter and reduce_scatter, the same list on every member, root or not; in all_to_all both, each
 * member its own. count is then ignored.
 *
 * An all_to_all of blocks of different sizes may have a room for each, the same on all members:
 * block i of send and of recv then begins at element i * room. Only what the counts say is moved,
 * and the rest of a room is not touched. A pair that has nothing to give sends no message. */
typedef struct tr_collective {
    tr_operation operation;
    tr_reduction reduction;
    tr_dtype dtype;
    int root; /* within the group */
    const void *send;
    void *recv;
    uint64_t count;              /* elements */
    const uint64_t *send_counts; /* or NULL: blocks of `count` elements */
    const uint64_t *recv_counts; /* or NULL */
    uint64_t room;               /* all_to_all by counts: elements; 0: blocks leave no gaps */
    /* NULL or "auto": chosen; or a name of docs/collectives.md, "ring", perhaps with the shape of
     * the ranks, "torus2d:8x4"; or "native", MPI's own where that is the transport */
    const char *algorithm;
    const char *label; /* for reports: "gradients of layer 3"; or NULL */
} tr_collective;

typedef struct tr_comm_options {
    double deadline_s; /* of every wait; 0: 60 */
    bool bind;         /* processes: each rank gets cores of its own when there are enough */
    /* NULL: threads share their memory, processes are joined by "shm". Both can be joined by "tcp"
     * over the loopback, as ranks of several machines are. */
    const char *transport;
} tr_comm_options;

/* What each rank runs. A status other than TR_OK (with err filled in) ends the world. */
typedef tr_status (*tr_rank_fn)(tr_comm *comm, void *context, tr_error *err);

/* Runs fn as ranks 0 .. num_ranks-1 and returns when all have ended; the error is the one of the
 * rank that failed first, and names it. options may be NULL. Threads share `context`; processes
 * each have a copy (fork). tr_comm_spawn must be called while the process has one thread. */
tr_status tr_comm_run_threads(int num_ranks, const tr_comm_options *options, tr_rank_fn fn,
                              void *context, tr_error *err);
tr_status tr_comm_spawn(int num_ranks, const tr_comm_options *options, tr_rank_fn fn, void *context,
                        tr_error *err);

int tr_comm_rank(const tr_comm *comm);
int tr_comm_size(const tr_comm *comm);
const char *tr_comm_transport(const tr_comm *comm); /* "thread", "shm", "tcp", "mpi" */
tr_group *tr_comm_world(tr_comm *comm);             /* the group of all ranks, owned by comm */

/* Memory that peers read directly: what lies in it is not copied on the way. Page aligned, zero. */
tr_status tr_comm_alloc(tr_comm *comm, size_t num_bytes, void **memory, tr_error *err);
void tr_comm_free(tr_comm *comm, void *memory);

/* A group of the given world ranks, in that order; collective over its members, who call it in the
 * same order as their other group creations with the same members. The name is for reports. */
tr_status tr_group_create(tr_comm *comm, const char *name, const int *ranks, int num_ranks,
                          tr_group **group, tr_error *err);
void tr_group_destroy(tr_group *group);
int tr_group_rank(const tr_group *group); /* this rank's place in it */
int tr_group_size(const tr_group *group);

/* Any collective: run it, or start it and go on. Started calls of a group run one after another in
 * the order of starting, beside the caller and beside those of other groups; buffers are off limits
 * until they are waited for. */
tr_status tr_collective_run(tr_group *group, const tr_collective *call, tr_error *err);
tr_status tr_collective_start(tr_group *group, const tr_collective *call, tr_request **request,
                              tr_error *err);

/* Point to point, by world rank. Messages of a pair arrive in the order sent. A send ends only when
 * its receive has been issued: there is no hidden buffering. Sizes must agree. */
tr_status tr_send(tr_comm *comm, int to, const void *data, size_t num_bytes, tr_error *err);
tr_status tr_recv(tr_comm *comm, int from, void *data, size_t num_bytes, tr_error *err);
tr_status tr_send_start(tr_comm *comm, int to, const void *data, size_t num_bytes,
                        tr_request **request, tr_error *err);
tr_status tr_recv_start(tr_comm *comm, int from, void *data, size_t num_bytes, tr_request **request,
                        tr_error *err);

/* Ends a request and frees it, whatever the outcome. */
tr_status tr_request_wait(tr_request *request, tr_error *err);
/* *done tells whether it has ended; it is freed when it has (or when the call fails). */
tr_status tr_request_test(tr_request *request, bool *done, tr_error *err);

/* A rank has TR_NUM_SIGNALS counters for each peer. tr_signal raises this rank's counter `slot` at
 * the peer to value (it never falls); what was written to shared memory before is visible to
 * whoever waited for it. tr_wait_signal waits until the peer has raised its counter here. */
#define TR_NUM_SIGNALS 8
tr_status tr_signal(tr_comm *comm, int peer, int slot, uint64_t value, tr_error *err);
tr_status tr_wait_signal(tr_comm *comm, int peer, int slot, uint64_t value, tr_error *err);

/* Short forms. */
tr_status tr_barrier(tr_group *group, tr_error *err);
tr_status tr_broadcast(tr_group *group, void *data, uint64_t count, tr_dtype dtype, int root,
                       tr_error *err);
tr_status tr_reduce(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                    tr_reduction reduction, int root, tr_error *err);
tr_status tr_all_reduce(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_reduction reduction, tr_error *err);
tr_status tr_gather(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                    int root, tr_error *err);
tr_status tr_scatter(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                     int root, tr_error *err);
tr_status tr_all_gather(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_error *err);
tr_status tr_reduce_scatter(tr_group *group, const void *send, void *recv, uint64_t count,
                            tr_dtype dtype, tr_reduction reduction, tr_error *err);
tr_status tr_all_to_all(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_error *err);
/* Every member sends to the one `distance` places on, around the ring, and receives from the one as
 * many places back. Members pass the same distance, which may be negative; counts may differ, where
 * each knows what the other sends. send and recv must not overlap. */
tr_status tr_shift(tr_group *group, const void *send, uint64_t send_count, void *recv,
                   uint64_t recv_count, tr_dtype dtype, int distance, tr_error *err);

/* What this rank has moved since its start. Algorithms made of messages count their messages;
 * `direct` counts what the operation needs from peers' memory and gives to them, as bytes only. */
typedef struct tr_comm_counters {
    uint64_t messages_sent, bytes_sent, messages_received, bytes_received, calls;
} tr_comm_counters;
tr_comm_counters tr_comm_read_counters(const tr_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
