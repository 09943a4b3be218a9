/* The links of all ranks, measured: what `trireme doctor --cluster` writes down.
 *
 * All figures are medians of several tries, of messages as a run would send them. Patterns are
 * tried one after the other, with all other ranks silent: each pair of neighbours of a node, all of
 * a node gathering from each other, one rank and its counterpart on the next node, all of these at
 * once, and all nodes at once at distances 1, 2, 4 ... */
#ifndef TRI_TRAIN_HEALTH_SURVEY_H
#define TRI_TRAIN_HEALTH_SURVEY_H

#include "comm/comm.h"
#include "comm/transport/nccl.h"
#include "device/device.h"
#include "mesh/cluster_found.h"

enum { TRI_SURVEY_TRIES = 5 };

/* Plain bytes, which travel. */
typedef struct tri_survey {
    tri_cluster_found found;
    int num_ranks;
    bool by_host;       /* devices have memory of their own, and messages went through the host's */
    bool scattered;     /* ranks of a node are not consecutive, as a cluster file has them */
    char transport[16]; /* "shm", "tcp", "mpi", "nccl" */
    char device[160];   /* in words */
    char hosts[400];    /* "node1, node2 and 30 more" */
    double seconds;     /* that it took */
} tri_survey;

/* The device is open, and started where it has a queue. api: NCCL's entry points where messages go
 * by it, or NULL. Every rank gets the same. Collective. */
tr_status tri_survey_take(tri_comm *comm, tri_device *device, const tri_nccl_api *api,
                          tri_survey *survey, tr_error *err);

#endif
