/* The rank's side of a local launch: from fork to the end of its process. */
#ifndef TRI_RUN_LAUNCHER_CHILD_H
#define TRI_RUN_LAUNCHER_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "run/launcher.h"

/* Memory of a rank that outlives it: shared with the launcher. */
typedef struct tri_rank_slot {
    _Alignas(256) tri_rank_status status;
    char message[1000]; /* why it could not begin, "" if it could */
} tri_rank_slot;

typedef struct tri_rank_start {
    int rank, size;
    int port; /* of the control server, on the loopback */
    const char *token;
    double join_s;
    bool share_cores;
    pid_t parent;
    const sigset_t *mask; /* of signals, as the caller of the launcher had it */
    tri_rank_slot *slot;
    tri_rank_fn fn;
    void *context;
} tri_rank_start;

/* output is the pipe for what the rank writes. */
_Noreturn void tri_rank_process(const tri_rank_start *start, int output);

#endif
