/* The world that somebody else started, as the environment tells it. */
#ifndef TRI_CLI_ENVIRONMENT_H
#define TRI_CLI_ENVIRONMENT_H

#include "base/error.h"

#include <stdbool.h>

typedef struct tri_environment {
    bool given; /* RANK or WORLD_SIZE is set: this process is one of several */
    int rank, size;
    int local_rank; /* -1: LOCAL_RANK is not set */
    const char *address;
    int port;
    char token[128];
    bool exposed; /* the token can be guessed and the address is not the loopback */
} tri_environment;

/* Reads and judges RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and TRIREME_TOKEN. */
tr_status tri_environment_read(tri_environment *world, tr_error *err);

bool tri_address_is_loopback(const char *address);

#endif
