/* Rows of metrics on their way from the loop to a thread that writes them: one puts, one takes, and
 * neither ever waits for the other. A full ring drops the row and counts it. Nothing is allocated
 * once it is made, and nothing is locked. */
#ifndef TRI_TRAIN_LOG_LOG_RING_H
#define TRI_TRAIN_LOG_LOG_RING_H

#include <stdatomic.h>

#include "train/log/metrics.h"
#include "train/step_stats.h"

/* A row with its statistics, which the loop has on its stack. */
typedef struct tri_log_slot {
    tri_metrics_row row;
    tri_shown stats[TRI_MAX_STEP_SHOWN];
} tri_log_slot;

typedef struct tri_log_ring {
    tri_log_slot *slots;
    size_t num;               /* a power of two */
    _Atomic uint64_t put;     /* rows so far; the loop's */
    _Atomic uint64_t taken;   /* the writer's */
    _Atomic uint64_t dropped; /* the loop's */
} tri_log_ring;

bool tri_log_ring_init(tri_log_ring *ring, size_t num); /* false: no memory */
void tri_log_ring_fini(tri_log_ring *ring);

/* How many rows it holds now; 0: it was full, and this one is dropped. */
size_t tri_log_ring_put(tri_log_ring *ring, const tri_metrics_row *row);
/* The oldest row, or NULL. It is good until it is given back. */
const tri_metrics_row *tri_log_ring_look(tri_log_ring *ring);
void tri_log_ring_taken(tri_log_ring *ring);

#endif
