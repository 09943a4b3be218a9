/* How far apart the clocks of two machines are, measured by messages there and back. */
#ifndef TRI_COMM_CLOCK_OFFSET_H
#define TRI_COMM_CLOCK_OFFSET_H

#include "comm/comm.h"

typedef int64_t (*tri_clock_fn)(void *context);

typedef struct tri_clock_offset {
    int64_t at_ns;     /* when, of this rank's clock */
    int64_t offset_ns; /* to be added to this rank's clock to have rank 0's */
    int64_t error_ns;  /* the true one is no further from it: half of the quickest way and back */
} tri_clock_offset;

/* Between this rank and rank 0: both call it, rank 0 with the other's number, the other with 0.
 * Rank 0's offset is 0. */
tr_status tri_clock_measure(tri_comm *comm, int peer, tri_clock_fn clock, void *context,
                            tri_clock_offset *offset, tr_error *err);
/* The offset of this rank's machine. Collective over all ranks; where all are on one machine, whose
 * processes share a clock, nothing is sent and the offset is 0. */
tr_status tri_clock_compare(tri_comm *comm, tri_clock_offset *offset, tr_error *err);

#endif
