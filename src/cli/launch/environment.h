/* The world that somebody else started, as the environment tells it. */
#ifndef TRI_CLI_LAUNCH_ENVIRONMENT_H
#define TRI_CLI_LAUNCH_ENVIRONMENT_H

#include "base/error.h"

#include <stdbool.h>

typedef struct tri_environment {
    bool given; /* somebody started this process as one of several */
    /* Who, for messages: the variable that tells how many there are. */
    const char *size_variable;
    int rank, size;
    int local_rank;   /* -1: not told */
    bool by_mpi;      /* mpirun: ranks can meet through MPI when no meeting point is given */
    char address[64]; /* "": no meeting point */
    int port;
    char token[128]; /* "": none is given, so rank 0 makes one */
} tri_environment;

/* Reads and judges RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and TRIREME_TOKEN;
 * without the first two, what mpirun (Open MPI, MPICH), srun or PALS tell. */
tr_status tri_environment_read(tri_environment *world, tr_error *err);

bool tri_address_is_loopback(const char *address);

#endif
