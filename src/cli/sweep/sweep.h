/* Sweeps: the same recipe with other settings, many times, and a table of what came of it.
 *
 * A sweep has a directory with a file that says what it is (sweep.json), and a run directory for
 * each run. Nothing else is kept: what is done, what goes on and which runs are the best follows
 * from the run directories alone, so a sweep that was killed goes on from whatever they hold.
 *
 * Each run is a process of its own, `trireme train`. When the sweep dies, its runs are asked to end
 * (PR_SET_PDEATHSIG), and the next sweep waits for the lock of a run directory before it starts
 * that run: none is ever started twice. */
#ifndef TRI_CLI_SWEEP_SWEEP_H
#define TRI_CLI_SWEEP_SWEEP_H

#include <sys/types.h>

#include "base/text.h"
#include "cli/cli.h"

enum { TRI_SWEEP_MOST_RUNS = 10000, TRI_SWEEP_MOST_KEYS = 16 };

/* One --over: a setting and the values that it takes. */
typedef struct tri_sweep_key {
    char *name;
    const char *shown; /* what follows the dot */
    bool whole, numeric;
    char **values; /* of a list, or of a range in a grid */
    int num_values;
    bool range, linear; /* of --random: from low to high */
    double low, high;
    int64_t num_points; /* LOW..HIGH:N, 0: not given */
} tri_sweep_key;

typedef struct tri_sweep_run {
    char *name;   /* "03-lr0.003-seed1" */
    char *dir;    /* in that of the sweep */
    char **value; /* of each key */
    pid_t pid;    /* of the process that is at work, 0: none */
    double began_s;
    bool failed; /* since this sweep was started */
    bool told;   /* that it waits for another process */
    char why[240];
    int64_t dropped_at; /* step at which others were better, 0: it was not dropped */
} tri_sweep_run;

typedef struct tri_sweep {
    const tri_cli *cli;
    char *dir;
    tri_sweep_key keys[TRI_SWEEP_MOST_KEYS];
    int num_keys;
    tri_sweep_run *runs;
    int num_runs;
    int64_t random, seed, halve, jobs;
    int64_t steps; /* train.steps */
} tri_sweep;

/* sweep_over.c: from the flags to the list of runs. Every value is tried on the settings. */
tr_status tri_sweep_read(tri_sweep *sweep, const tri_cli *cli, tr_error *err);
void tri_sweep_free(tri_sweep *sweep);

/* sweep_dir.c: makes the directory, or finds that it holds this very sweep; *lock keeps others out.
 */
tr_status tri_sweep_open(const tri_sweep *sweep, int *lock, tr_error *err);

/* sweep_result.c: what a run directory says. */
typedef struct tri_sweep_result {
    bool started, held, done, ended_well; /* held: a process is at work there */
    int64_t step, best_step;              /* best_step 0: it was never evaluated */
    double loss, best_loss;               /* of the last step; held out. NAN: not known */
    double tokens_per_s;
    char why[240]; /* of a failure */
} tri_sweep_result;

tr_status tri_sweep_look(const tri_sweep_run *run, tri_sweep_result *result, tr_error *err);
/* How good it was after so many steps, less is better: its last held-out loss by then, or the mean
 * of the last tenth of its losses. INFINITY: nothing is known. */
tr_status tri_sweep_score(const tri_sweep_run *run, int64_t steps, double *score, tr_error *err);

/* sweep_jobs.c: runs until each of a list has done so many steps (0: all of its own), several at a
 * time. *stopped: a signal came, and those at work have ended in good order. */
typedef struct tri_sweep_stage {
    const int *members; /* of sweep->runs */
    int num;
    int64_t steps;
    FILE *progress;
} tri_sweep_stage;
tr_status tri_sweep_advance(tri_sweep *sweep, const tri_sweep_stage *stage, bool *stopped,
                            tr_error *err);

/* sweep_table.c */
tr_status tri_sweep_table(const tri_sweep *sweep, bool json, tri_text *text, int *num_failed,
                          tr_error *err);
/* Runs in the order of the table, the best first; *order is on the heap. */
tr_status tri_sweep_order(const tri_sweep *sweep, tri_sweep_result *results, int **order,
                          tr_error *err);

/* sweep_draw.c: sweep.svg, and where one number varies, what comes of it. Tells what it wrote. */
tr_status tri_sweep_draw(const tri_sweep *sweep, FILE *progress, tr_error *err);

#endif
