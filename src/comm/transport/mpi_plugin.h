/* Between trireme and its MPI plug-in (plugins/mpi.c), in plain C types.
 *
 * The plug-in is a shared object of its own, compiled by mpicc and opened at run time, because MPI
 * is an interface in source code only: MPI_Comm is a pointer in one library and an integer in
 * another, so a program that opened any libmpi by itself could not call it. This way trireme has no
 * dependency on an MPI, and the plug-in is built where one is. All logic is on trireme's side; the
 * plug-in passes calls on. */
#ifndef TRI_COMM_TRANSPORT_MPI_PLUGIN_H
#define TRI_COMM_TRANSPORT_MPI_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define TRI_MPI_PLUGIN_VERSION 1
#define TRI_MPI_PLUGIN_SYMBOL  "tri_mpi_plugin_table"

typedef struct tri_mpi_world {
    int rank, size, local_rank, local_size;
    int threads; /* any thread may call at any time; otherwise one at a time */
    char library[80];
} tri_mpi_world;

/* A collective as MPI has it; counts and displacements in elements. Enums are those of
 * trireme/comm.h. */
typedef struct tri_mpi_collective {
    int operation, reduction, dtype, root;
    const void *send; /* NULL: in place, as MPI understands it */
    void *recv;
    int count;                    /* of the vector or of one block */
    const int *counts, *displs;   /* of blocks that differ; or NULL */
    const int *counts2, *displs2; /* all_to_all: of what is received */
} tri_mpi_collective;

typedef struct tri_mpi_plugin {
    int version;
    /* Functions return 0, or not, with the reason in why. */
    int (*init)(tri_mpi_world *world, char *why, size_t capacity);
    void (*finalize)(void);
    int (*broadcast)(void *data, size_t num_bytes, int root); /* over the world */
    /* A communicator of these ranks; collective over them. They are freed by finalize. */
    void *(*group)(const int *ranks, int size, int tag);
    /* A message in flight; NULL: it could not be started. synchronous: ends when its receive has
     * begun. */
    void *(*send)(void *group, const void *data, size_t num_bytes, int to, int tag,
                  int synchronous);
    void *(*receive)(void *group, void *data, size_t num_bytes, int from, int tag);
    /* 1: done and freed; *num_bytes is what a receive got. 0: not yet. -1: failed and freed. */
    int (*test)(void *request, size_t *num_bytes, char *why, size_t capacity);
    /* Is there a message? from < 0: of anyone. */
    int (*probe)(void *group, int *from, int tag, size_t *num_bytes);
    int (*collective)(void *group, const tri_mpi_collective *c, char *why, size_t capacity);
} tri_mpi_plugin;

#endif
