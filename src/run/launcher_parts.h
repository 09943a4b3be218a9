/* What the files of the launcher share: a launch while it runs. */
#ifndef TRI_RUN_LAUNCHER_PARTS_H
#define TRI_RUN_LAUNCHER_PARTS_H

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "base/exit_code.h"
#include "run/launcher_child.h"
#include "run/rank_output.h"
#include "run/status_file.h"

typedef struct tri_launch_child {
    pid_t pid;       /* 0: not started, or gone */
    pid_t was;       /* its pid, also afterwards */
    int wait_status; /* when it is gone */
    bool killed;     /* or stopped, by somebody else */
    bool settled;    /* the status file has how it ended */
    tri_rank_output output;
} tri_launch_child;

typedef struct tri_launching {
    tri_launch_config config;
    tri_launch_result *result;
    tri_control_server *server;
    tri_rank_slot *slots; /* shared with the ranks */
    tri_launch_child *children;
    int num_alive;
    int signals; /* descriptor */
    sigset_t old_mask;
    struct sigaction old_chld;
    uint64_t started_ns;
    uint64_t kill_ns;   /* 0: not yet */
    uint64_t sigint_ns; /* when the first came, with config.asks; 0: none did */
    bool stopping;      /* a rank failed */
    int first;
    tri_report_rank *scene;    /* at the moment of the failure */
    tri_status_writer *status; /* NULL: there is none */
} tri_launching;

static inline bool tri_child_ended_well(const tri_launch_child *child)
{
    return WIFEXITED(child->wait_status) && tri_exit_is_good(WEXITSTATUS(child->wait_status));
}

/* launcher_status.c: the status file. */

/* When all ranks were forked, since it starts a thread. */
void tri_launch_begin_status(tri_launching *launch);
/* After each turn of the loop: those that have ended. */
void tri_launch_note_ends(tri_launching *launch);
void tri_launch_end_status(tri_launching *launch);
/* Whether a process is stopped, and not merely slow. */
bool tri_is_frozen(pid_t pid);

/* launcher_scene.c: what happened, as the report will tell it. */

/* At the moment of a failure: keeps where every rank is, finds the one to blame, and tells all to
 * stop. */
void tri_launch_begin_stop(tri_launching *launch, int first);
/* When every rank is gone: fills the result. */
void tri_launch_conclude(tri_launching *launch);

#endif
