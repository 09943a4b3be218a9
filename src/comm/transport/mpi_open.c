#include "comm/transport/mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the program, and where it was installed. Nowhere else: what lies there is run. */
static const char *const places[] = {"", "../lib/trireme/"};

bool tri_mpi_find(char *path, size_t capacity)
{
    char program[3000];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return false;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash == NULL)
        return false;
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, capacity, "%s%strireme-mpi.so", program, places[i]);
        if (n > 0 && (size_t)n < capacity && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

tr_status tri_mpi_open(tri_mpi **out, tr_error *err)
{
    char path[3100], why[3600] = "";
    *out = NULL;
    if (!tri_mpi_find(path, sizeof path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "this trireme has no MPI plug-in (trireme-mpi.so beside the program): "
                        "install an MPI with its mpicc (apt-get install libopenmpi-dev "
                        "openmpi-bin) and type make again");
    tri_mpi *mpi = calloc(1, sizeof *mpi);
    if (mpi == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for MPI");
    pthread_mutex_init(&mpi->mutex, NULL);
    /* GLOBAL: libraries of MPI load parts of their own that look for its symbols. */
    if (!tri_library_open(&mpi->library, path, RTLD_NOW | RTLD_GLOBAL, false, why, sizeof why)) {
        free(mpi);
        return tri_fail(err, TR_ERROR_INPUT, "the MPI plug-in is not used: %s", why);
    }
    mpi->plugin = dlsym(mpi->library.handle, TRI_MPI_PLUGIN_SYMBOL);
    if (mpi->plugin != NULL && mpi->plugin->version != TRI_MPI_PLUGIN_VERSION) {
        snprintf(why, sizeof why, "it is of version %d, this program needs %d; type make again",
                 mpi->plugin->version, TRI_MPI_PLUGIN_VERSION);
        mpi->plugin = NULL;
    }
    if (mpi->plugin == NULL || mpi->plugin->init(&mpi->world, why, sizeof why) != 0) {
        free(mpi);
        return tri_fail(err, TR_ERROR_RUNTIME, "the MPI plug-in %.200s cannot be used: %s", path,
                        why[0] ? why : "it is something else");
    }
    *out = mpi;
    return TR_OK;
}

/* The library stays: MPI leaves threads and handlers behind that live in it. */
void tri_mpi_close(tri_mpi *mpi)
{
    if (mpi == NULL)
        return;
    mpi->plugin->finalize();
    pthread_mutex_destroy(&mpi->mutex);
    free(mpi);
}
