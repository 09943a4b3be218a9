/* Starts the ranks of a run as processes of this machine, watches them, and cleans up after them.
 *
 * A rank is a fork of this process without exec: it inherits what the caller prepared. It gets
 * cores of its own when there are enough, a pipe for its output, a status that can be read after
 * its death, and a bootstrap that is connected to a control server in this process. This process
 * does nothing but watch until the last rank is gone.
 *
 * When a rank dies, fails or goes silent, the others are told to stop, get a moment to end by
 * themselves, and are killed; the result holds a report of what happened. */
#ifndef TRI_RUN_LAUNCHER_H
#define TRI_RUN_LAUNCHER_H

#include "run/report.h"

/* A second SIGINT counts after so long. What comes sooner is the same key pressed once: `timeout -s
 * INT` and wrappers that pass it on send it twice. */
#define TRI_INSISTS_NS 500000000u

typedef struct tri_launch_config {
    int num_ranks;
    double deadline_s;   /* of a rank that is silent, or stuck while others wait for it */
    double join_s;       /* until all ranks must be there; 0: 30 */
    double stop_grace_s; /* from STOP to SIGKILL; 0: 1.5 */
    double insists_s;    /* a second SIGINT counts after so long; 0: TRI_INSISTS_NS */
    double term_grace_s; /* from a forwarded SIGTERM or SIGINT to SIGKILL; 0: 2 */
    const char *log_dir; /* gets rank-N.log; NULL: no logs */
    const char *run_dir; /* half-written files of killed ranks are removed from it; may be NULL */
    bool status;         /* run_dir gets status/0.json (run/status_file.h) */
    bool share_cores;    /* give each rank cores of its own, when there is at least one for each */
    /* Ranks catch SIGTERM and end well by themselves, in their own time. Its value (si_value) is
     * the signal that the launcher got. */
    bool asks;
    bool append_logs; /* to those of an earlier launch, which are otherwise replaced */
    /* What rank 0 writes to stdout and stderr, at once and unchanged; may be NULL. Ends when the
     * run fails: the report is the last word. Must not wait: the ranks are watched by who calls it.
     * Called without bytes several times a second, too, for what could not be passed on. */
    void (*output)(void *context, const char *data, size_t num_bytes);
    tri_control_log log;                      /* remarks of the control server; may be NULL */
    void (*asked)(void *context, int signal); /* the ranks have been asked to end; may be NULL */
    void *context;                            /* of all three */
} tri_launch_config;

typedef struct tri_launch_result {
    int code;         /* base/exit_code.h; of the first rank to fail, where one did and has one */
    int failed_rank;  /* first to fail, -1: none */
    int signal;       /* that ended it, or that ended this run from outside; 0: none */
    bool interrupted; /* SIGINT, SIGTERM or SIGHUP came from outside, and ended it */
    int asked;        /* a signal that the ranks were asked to end by (config.asks); 0: none */
    int64_t step;     /* furthest that a rank had begun, from 1; -1: none */
    bool trained;     /* every rank had begun a step by then */
    int num_lost;     /* ranks that ended by themselves, without having done their work ... */
    int *lost;        /* ... and which; owned by the caller */
    double joined_s;  /* from the start until all ranks had joined; 0: they never did */
    tri_text report;  /* empty when nothing failed; owned by the caller */
} tri_launch_result;

/* Runs in each rank; what it returns is the exit code of the process. */
typedef int (*tri_rank_fn)(const tri_bootstrap *bootstrap, void *context);

/* Returns when every rank is gone. TR_OK says that they could be started; how they fared is in the
 * result. To be called while the process has one thread. A rank never returns from here.
 *
 * While it runs, SIGCHLD, SIGINT, SIGTERM and SIGHUP are handled by it (one that was ignored before
 * stays so). Ranks start with SIGINT ignored (a terminal sends it to everyone; the launcher
 * passes it on as SIGTERM) and the other signals as the caller had them.
 *
 * With config.asks, SIGTERM, SIGUSR1 and the first SIGINT are passed on as SIGTERM, config.asked is
 * called, and nothing is killed; a second SIGINT, insists_s later or more, ends all at once, as
 * SIGHUP does after its grace.
 */
tr_status tri_launch(const tri_launch_config *config, tri_rank_fn fn, void *context,
                     tri_launch_result *result, tr_error *err);
void tri_launch_result_fini(tri_launch_result *result);

#endif
