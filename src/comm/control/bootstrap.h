/* What a rank is given by whoever brought the ranks together (the launcher, an environment, a test
 * with threads): who it is, a table to exchange addresses through, and a flag that says stop. */
#ifndef TRI_COMM_CONTROL_BOOTSTRAP_H
#define TRI_COMM_CONTROL_BOOTSTRAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "comm/own_time.h"

/* Set once, by anyone, when the job must end: every wait looks at it. */
typedef struct tri_stop {
    _Atomic int stopped;
    char reason[600]; /* written before stopped becomes 1 */
} tri_stop;

/* Where a rank is, for others to see: lies in memory shared with the launcher when there is one, so
 * that it can be read after the rank was killed. Written by the rank alone; a reader may see a
 * mixture of two moments, which is good enough for a report. */
typedef struct tri_rank_status {
    _Atomic uint64_t counter;    /* instructions and communication calls begun */
    _Atomic int64_t step;        /* that it is in, from 1; -1: none yet */
    _Atomic int64_t instruction; /* number in the program, -1 outside it */
    char doing[120];             /* "B, matmul -> grad.wte.weight", "all_reduce of gradients" */
    _Atomic uint64_t bytes;      /* being moved, 0 when computing */
    _Atomic int32_t peer;        /* being waited for, -1 when nobody */
    _Atomic uint64_t waiting_since_ns; /* CLOCK_MONOTONIC, 0 when not waiting */
    /* Of its steps so far, in its present process: */
    _Atomic int64_t own_ns[TRI_NUM_OWN];
    _Atomic int64_t waited_ns;
} tri_rank_status;

typedef struct tri_bootstrap {
    int rank, size;             /* of the world */
    int local_rank, local_size; /* on this machine */
    double deadline_s;          /* of every wait */
    const char *token;          /* the session's secret; NULL: it has none */
    bool sums;                  /* messages are to carry checksums, where a transport can */
    struct tri_mpi *mpi;        /* the MPI that started the ranks; NULL: none did */
    char address[48];           /* of this machine as the others reach it; "": not known */
    tri_stop *stop;
    tri_rank_status *status; /* never NULL */
    void *context;
    tr_status (*put)(void *context, const char *key, const void *data, size_t num_bytes,
                     tr_error *err);
    /* Waits until the key is there (or the deadline, or stop). */
    tr_status (*get)(void *context, const char *key, void *data, size_t capacity, size_t *num_bytes,
                     tr_error *err);
} tri_bootstrap;

#endif
