/* Run directories: what is one, which one a person means, and all of them under a folder. */
#ifndef TRI_CLI_RUNS_RUN_FIND_H
#define TRI_CLI_RUNS_RUN_FIND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Where runs are looked for when nothing is named: beside the default of run.dir. */
#define TRI_RUNS_FOLDER "runs"

typedef struct tri_run_list {
    char **dirs;
    size_t num, capacity;
} tri_run_list;

/* The directory of the run that was named, on the heap: the path itself, or runs/NAME. */
tr_status tri_run_dir_of(const char *name, char **dir, tr_error *err);

/* Adds every run directory at `folder` or below it. Links to directories are looked at and not
 * followed further; hidden directories and what is inside a run are left out; each run is there
 * once. */
tr_status tri_runs_find(tri_run_list *list, const char *folder, tr_error *err);
void tri_run_list_free(tri_run_list *list);

#endif
