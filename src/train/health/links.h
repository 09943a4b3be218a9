/* Messages between devices as a run sends them, for whoever times links: by NCCL between GPUs,
 * otherwise between the hosts' memory, to and from which the bytes of a device are copied. */
#ifndef TRI_TRAIN_HEALTH_LINKS_H
#define TRI_TRAIN_HEALTH_LINKS_H

#include "comm/comm.h"
#include "comm/transport/nccl.h"
#include "device/device.h"

/* Of a device that is open, and started where it has a queue. */
typedef struct tri_links_config {
    tri_comm *comm;
    tri_device *device;
    const tri_nccl_api *api; /* NCCL's entry points where messages go by it, or NULL */
    const int *ranks;        /* that gather together, this one among them */
    int num_ranks;
    size_t most_bytes; /* of a message, and of what is gathered */
} tri_links_config;

typedef struct tri_links {
    tri_comm *comm;
    tri_device *device;
    size_t most_bytes; /* of a message */
    void *send, *recv; /* of the host */
    char *there;       /* of a device with memory of its own: first what it sends, then the rest */
    tri_nccl *nccl;    /* NULL: by the host */
    void *lane;        /* of the device, for NCCL */
    tr_group *group;   /* of the ranks that gather; NULL: this one is alone */
    int group_size;
    uint64_t *num_blocks; /* [2][ranks]: bytes to and from each */
} tri_links;

/* Collective. Whatever it returns, it can be closed. */
tr_status tri_links_open(tri_links *links, const tri_links_config *config, tr_error *err);
void tri_links_close(tri_links *links);

/* A message to a rank and one from a rank at the same time; -1: none. It may be under way still
 * when this returns: the calls of a rank are carried out in their order, and settle waits for
 * them. */
tr_status tri_links_pass(tri_links *links, int to, int from, size_t bytes, tr_error *err);
/* Everybody of the group gets a block from each of it. */
tr_status tri_links_gather(tri_links *links, size_t block_bytes, tr_error *err);
tr_status tri_links_settle(tri_links *links, tr_error *err);

#endif
