/* What each rank's device and link give, beside each other: `trireme doctor --validate`.
 *
 * All ranks multiply at once, then all copy at once, as they would in training; links are tried one
 * at a time. Each figure is the best of several tries, which is what other programs on the machine
 * disturb least. */
#ifndef TRI_TRAIN_HEALTH_VALIDATE_H
#define TRI_TRAIN_HEALTH_VALIDATE_H

#include "comm/comm.h"
#include "device/device.h"

typedef enum tri_figure {
    TRI_FIGURE_PRODUCT,   /* FLOP/s of a product of matrices */
    TRI_FIGURE_COPY,      /* bytes/s of a copy in the device's memory, read and written */
    TRI_FIGURE_TO_DEVICE, /* bytes/s from the host's memory, where the device has its own */
    TRI_FIGURE_TO_HOST,   /* bytes/s back */
    TRI_FIGURE_LATENCY,   /* seconds of a short message to the next rank: half a round trip */
    TRI_FIGURE_BANDWIDTH, /* bytes/s of a long one */
    TRI_NUM_FIGURES
} tri_figure;

/* Of a rank. Plain bytes, which travel. */
typedef struct tri_validated {
    char host[64];
    int64_t next;                   /* the rank at the other end of its link, -1: it is alone */
    int64_t crosses;                /* that rank is on another machine */
    double figure[TRI_NUM_FIGURES]; /* 0: not measured */
    double peers[TRI_NUM_FIGURES];  /* median of the others; 0: there are none */
    int64_t off;                    /* bits 1 << figure: it is worse than its peers */
} tri_validated;

/* all: [ranks] on every rank. The device is open, and started where it has a queue. Collective. */
tr_status tri_validate(tri_comm *comm, tri_device *device, tri_validated *all, tr_error *err);
/* Fills in peers and off. Links are compared with links of their kind: within a machine, or between
 * two. Returns how many figures are off. */
int tri_validate_judge(tri_validated *all, int num_ranks);

#endif
