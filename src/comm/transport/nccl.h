/* NCCL: messages between GPUs that the host only enqueues.
 *
 * One rank has one GPU, and a communicator for each lane: the group of ranks that it shares a mesh
 * axis with. The library is opened at run time and its entry points are declared here (those of
 * NCCL 2.14, which later versions keep), so that no build needs it. Streams are opaque: this layer
 * knows neither CUDA nor graphs of it.
 *
 * Communicators do not block: a call that takes time says "in progress", and is asked about until
 * it is done, the deadline is over, or the run is stopped. Whatever ends a run ends what is on the
 * GPU too (ncclCommAbort), so that nothing waits for a rank that is gone. */
#ifndef TRI_COMM_TRANSPORT_NCCL_H
#define TRI_COMM_TRANSPORT_NCCL_H

#include "comm/control/bootstrap.h"
#include "comm/transport/library.h"
#include "trireme/comm.h"

enum { TRI_NCCL_MOST_LANES = 32 };

/* Values of ncclResult_t that are told apart. */
enum { TRI_NCCL_SUCCESS = 0, TRI_NCCL_INVALID_USAGE = 5, TRI_NCCL_IN_PROGRESS = 7 };

/* ncclUniqueId and the first fields of ncclConfig_t, as version 2.14 had them. */
typedef struct tri_nccl_id {
    char bytes[128];
} tri_nccl_id;
typedef struct tri_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} tri_nccl_config;

/* The entry points, by the names of nccl.h without their prefix. Types and operations are its
 * enums, results its ncclResult_t. */
typedef struct tri_nccl_api {
    tri_library library; /* its handle is NULL: not from one */
    int version;         /* 22809 is 2.28.9 */
    int (*get_version)(int *version);
    int (*get_unique_id)(tri_nccl_id *id);
    int (*comm_init_rank_config)(void **comm, int size, tri_nccl_id id, int rank,
                                 tri_nccl_config *config);
    int (*comm_finalize)(void *comm);
    int (*comm_destroy)(void *comm);
    int (*comm_abort)(void *comm);
    int (*comm_get_async_error)(void *comm, int *result);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(void *comm);
    int (*all_reduce)(const void *send, void *recv, size_t count, int dtype, int op, void *comm,
                      void *stream);
    int (*reduce)(const void *send, void *recv, size_t count, int dtype, int op, int root,
                  void *comm, void *stream);
    int (*broadcast)(const void *send, void *recv, size_t count, int dtype, int root, void *comm,
                     void *stream);
    int (*all_gather)(const void *send, void *recv, size_t count, int dtype, void *comm,
                      void *stream);
    int (*reduce_scatter)(const void *send, void *recv, size_t count, int dtype, int op, void *comm,
                          void *stream);
    int (*send)(const void *data, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*recv)(void *data, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
} tri_nccl_api;

/* Opens a library: a path, or "" for libnccl.so.2 where the system finds it. The error says how to
 * come by one. */
tr_status tri_nccl_open(const char *library, tri_nccl_api *api, tr_error *err);
void tri_nccl_close(tri_nccl_api *api);

typedef struct tri_nccl tri_nccl;

/* The bootstrap (its stop flag and status) must outlive it; it is copied, and so is the api, whose
 * library stays open: its threads may still be leaving when its last communicator is gone. */
tr_status tri_nccl_create(const tri_bootstrap *bootstrap, const tri_nccl_api *api, tri_nccl **nccl,
                          tr_error *err);
/* Ends what is still on the GPU when the run was stopped. */
void tri_nccl_destroy(tri_nccl *nccl);

/* The communicator of a lane, over these world ranks. Collective over them; the calling thread must
 * have chosen its GPU. name is the lane's for reports: "tp". */
tr_status tri_nccl_join(tri_nccl *nccl, int lane, const char *name, const int *ranks, int num_ranks,
                        tr_error *err);

/* Enqueues a collective on the stream; send and recv are the GPU's memory. All operations but
 * barrier, gather and scatter; blocks of different sizes are a group of broadcasts or reductions.
 * Sums are formed in NCCL's order. */
tr_status tri_nccl_run(tri_nccl *nccl, int lane, const tr_collective *call, void *stream,
                       tr_error *err);
/* To or from a member of the lane's group, by its place in it. Calls between group_start and
 * group_end go out together. */
tr_status tri_nccl_send(tri_nccl *nccl, int lane, int to, const void *data, size_t num_bytes,
                        void *stream, tr_error *err);
tr_status tri_nccl_recv(tri_nccl *nccl, int lane, int from, void *data, size_t num_bytes,
                        void *stream, tr_error *err);

/* For a host that waits: fails when the run was stopped, a communicator has an error, or
 * `waited_s`, the time that one message has taken so far, is beyond the deadline. What is on the
 * GPU has been ended then, and every later call fails. */
tr_status tri_nccl_look(tri_nccl *nccl, double waited_s, tr_error *err);
void tri_nccl_abort(tri_nccl *nccl);

#endif
