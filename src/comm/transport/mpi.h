/* An MPI that was opened: found at run time, through the plug-in. There is one in a process, as MPI
 * itself is; whoever opened it passes it on in the bootstrap. */
#ifndef TRI_COMM_TRANSPORT_MPI_H
#define TRI_COMM_TRANSPORT_MPI_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "comm/ports.h"
#include "comm/transport/library.h"
#include "comm/transport/mpi_plugin.h"

typedef struct tri_mpi {
    tri_library library;
    const tri_mpi_plugin *plugin;
    tri_mpi_world world;
    pthread_mutex_t mutex; /* held around every call when the MPI takes one thread at a time */
} tri_mpi;

static inline void tri_mpi_enter(tri_mpi *mpi)
{
    if (!mpi->world.threads)
        pthread_mutex_lock(&mpi->mutex);
}

static inline void tri_mpi_leave(tri_mpi *mpi)
{
    if (!mpi->world.threads)
        pthread_mutex_unlock(&mpi->mutex);
}

/* What the state of ports over MPI begins with. */
typedef struct tri_mpi_group {
    tri_mpi *mpi;
    void *group; /* the plug-in's */
} tri_mpi_group;

/* A collective of the library's own; see io.h. */
tr_status tri_mpi_native(tri_ports *ports, const tr_group *group, const tr_collective *call,
                         tr_error *err);

/* Looks for trireme-mpi.so beside the program and in ../lib/trireme, where it is installed; refuses
 * one that other users own or may write to (library.h); initialises MPI. */
tr_status tri_mpi_open(tri_mpi **mpi, tr_error *err);
/* Finalises; every rank must. After a failure a process ends without it. */
void tri_mpi_close(tri_mpi *mpi);
/* Where the plug-in is; false and why not, for people who ask. */
bool tri_mpi_find(char *path, size_t capacity);

#endif
