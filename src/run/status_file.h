/* status/0.json of a run directory: where every rank is, for whoever looks at the run from outside.
 *
 * A thread of the process that watches the ranks (their launcher, or rank 0 where somebody else
 * started them) writes it once a second, and at once when a rank has ended; whole, by rename. It
 * reads what ranks say of themselves anyway, so they do nothing for it. Nothing depends on the
 * file: one that cannot be written is passed over. docs/run-directory.md has its members. */
#ifndef TRI_RUN_STATUS_FILE_H
#define TRI_RUN_STATUS_FILE_H

#include "comm/control/control.h"

#define TRI_STATUS_FOLDER "status"

typedef enum tri_status_state {
    TRI_STATUS_ABSENT, /* has not begun */
    TRI_STATUS_RUNNING,
    TRI_STATUS_WAITING, /* for others */
    TRI_STATUS_SILENT,  /* its process stands still, or is not heard from */
    TRI_STATUS_DONE,
    TRI_STATUS_DEAD,
    TRI_STATUS_STOPPED, /* ended since another one was dead */
    TRI_NUM_STATUS_STATES
} tri_status_state;

typedef struct tri_status_rank {
    tri_status_state state;
    tri_rank_where where;
    int signal, exit_code; /* that ended it; 0 and -1: none, or not known */
    int64_t pid;           /* on this machine; 0: elsewhere, or not known */
    char host[64];
    int64_t own_ns, waited_ns; /* of its steps so far; -1: not known */
} tri_status_rank;

/* Where ranks are now; called by the writer's thread. ranks are as the last call left them. */
typedef void (*tri_status_look)(void *context, tri_status_rank *ranks, int num_ranks);

typedef struct tri_status_writer tri_status_writer;

/* NULL where that cannot be: then nothing is written. */
tri_status_writer *tri_status_begin(const char *run_dir, int num_ranks, tri_status_look look,
                                    void *context);
/* A rank has ended: what is said here stays, whatever look says afterwards. writer may be NULL. */
void tri_status_settle(tri_status_writer *writer, int rank, const tri_status_rank *how);
/* Writes it a last time. */
void tri_status_end(tri_status_writer *writer);

#endif
