/* The parts of `trireme runs` beside the list. Each returns an exit code. */
#ifndef TRI_CLI_RUNS_RUNS_VERBS_H
#define TRI_CLI_RUNS_RUNS_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* What differs between two runs: settings, losses at equal steps and tokens, held-out losses. */
int tri_runs_diff(const char *a, const char *b, bool json);

/* The same as a line of JSON. */
tr_status tri_runs_diff_doc(const char *a, const char *b, tri_text *text, tr_error *err);

/* Removes run directories: asks on a terminal, and needs `yes` where there is none. What is at
 * work, or no run, is refused before anything is removed. */
int tri_runs_rm(const char *const *names, int num, bool yes);

/* Shows what a run prints until it ends, and ends with its exit code; Ctrl-C leaves it running. */
int tri_runs_attach(const char *name);

/* Asks the process that is at work to save and end, and waits for that, at most so long. */
int tri_runs_stop(const char *const *names, int num, int64_t patience_s);

#endif
