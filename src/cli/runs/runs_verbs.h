/* The parts of `trireme runs` beside the list. Each returns an exit code. */
#ifndef TRI_CLI_RUNS_RUNS_VERBS_H
#define TRI_CLI_RUNS_RUNS_VERBS_H

#include <stdbool.h>

/* What differs between two runs: settings, losses at equal steps and tokens, held-out losses. */
int tri_runs_diff(const char *a, const char *b, bool json);

#endif
