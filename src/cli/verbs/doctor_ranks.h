/* Ranks that measure, for `trireme doctor`: those of the environment (mpirun, srun, torchrun), or
 * local processes, a thread and a core each. */
#ifndef TRI_CLI_VERBS_DOCTOR_RANKS_H
#define TRI_CLI_VERBS_DOCTOR_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"
#include "device/device.h"

typedef struct tri_doctor_job {
    const tri_cli *cli;
    size_t result_bytes;    /* of all ranks */
    size_t bytes_of_a_rank; /* and besides for each */
    const void *context;
    /* On the rank that is to tell, before anything is measured. May be NULL. */
    tr_status (*check)(const void *context, tr_error *err);
    /* On every rank. The device is open, and started where it has a queue. */
    tr_status (*measure)(const tri_cli *cli, tri_comm *comm, tri_device *device, void *result,
                         tr_error *err);
    /* On one process; *code is an exit code. */
    tr_status (*tell)(const void *context, const tri_cli *cli, void *result, int num_ranks,
                      int *code, tr_error *err);
} tri_doctor_job;

/* Returns the exit code. Reads --ranks. */
int tri_doctor_run_ranks(const tri_doctor_job *job);

#endif
