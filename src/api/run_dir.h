/* The run directory of a run inside another program: taken for it alone, an earlier run moved
 * aside, and what becomes of the run in events.jsonl. */
#ifndef TRI_API_RUN_DIR_H
#define TRI_API_RUN_DIR_H

#include "train/run/run.h"
#include "train/run/run_lock.h"

typedef struct tri_run_dir {
    const tr_settings *settings;
    tri_run_lock lock;
    bool begun; /* "start" is written, and wants its "end" */
} tri_run_dir;

/* Before anything is computed: whether the run can be there. Changes nothing. */
tr_status tri_run_dir_judge(const tr_settings *settings, tr_error *err);
tr_status tri_run_dir_open(tri_run_dir *dir, const tr_settings *settings, int num_ranks,
                           tr_error *err);
/* How the run ended: steps that are done (-1: it never began) and saved (-1: none). One that was
 * refused before it began leaves no directory that was not there. */
void tri_run_dir_close(tri_run_dir *dir, const tr_error *failure, bool stopped, int64_t steps,
                       int64_t saved);

#endif
