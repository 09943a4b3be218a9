/* Bringing the ranks of a run together, for a verb that has a layout.
 *
 * One rank runs in this process. Several are started as local processes by this one, which stays
 * behind to watch them; or, when RANK and WORLD_SIZE are in the environment, somebody else started
 * them and this process is one of them. docs/launch.md is the manual. */
#ifndef TRI_CLI_LAUNCH_LAUNCH_H
#define TRI_CLI_LAUNCH_LAUNCH_H

#include "cli/cli.h"
#include "comm/control/bootstrap.h"
#include "run/launcher.h"

/* What a rank does; returns an exit code. Before a non-zero one it says why with
 * tri_cli_rank_fail. */
typedef int (*tri_rank_main)(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context);

/* Called when local ranks have failed and the report has been printed: with how many to start
 * again, or 0 to leave it at that. What it changes in cli and context is seen by the new ranks. */
typedef int (*tri_again)(void *context, const tri_launch_result *result);

typedef struct tri_launch_options {
    bool asks;      /* rank_main looks at tri_signals_caught, and ends well when there is one */
    bool writes;    /* into run.dir, where no other run may be at work meanwhile */
    bool processes; /* a single rank is a process too: it has a log, and somebody who outlives it */
    bool restarts;  /* the settings ask for them */
    bool quiet;     /* standard output is for the result alone */
    /* What follows may be NULL, and is called with context. begin and ended are for the process
     * that holds run.dir: the launcher, or rank 0 where somebody else started the ranks. */
    void (*begin)(void *context, int num_ranks); /* before there are ranks */
    void (*failed)(void *context, const tri_launch_result *result);
    tri_again again;
    /* steps: that are done, -1: none were begun. made: run.dir was not there before. */
    void (*ended)(void *context, int code, int64_t steps, bool made);
    void (*note)(void *context, const char *text); /* for the record */
    void *context;
} tri_launch_options;

/* Runs rank_main in every rank and returns the exit code for this process. Call it before any
 * thread exists: local ranks are forks, which inherit what cli and context hold. Logs go to
 * run.dir/log; reads run.dir, run.deadline_s and, through the environment, a world to join. options
 * may be NULL. */
int tri_cli_launch(const tri_cli *cli, int num_ranks, tri_rank_main rank_main, void *context,
                   const tri_launch_options *options);

/* Whether this machine alone refuses to start so many. */
bool tri_cli_too_many_here(int num_ranks);

/* As tri_cli_fail, and tells the other ranks; what a rank says because it was stopped goes to its
 * log only. return tri_cli_rank_fail(bootstrap, &err); */
int tri_cli_rank_fail(const tri_bootstrap *bootstrap, const tr_error *err);

/* For rank 0 of a local launch, whose output goes through a pipe to the launcher: whether it ends
 * up on a terminal on which a line can be redrawn, and its columns. False in any other process. */
bool tri_cli_relayed_terminal(int *columns);

#endif
