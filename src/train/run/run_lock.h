/* One run at a time in a run directory.
 *
 * Two would write over each other's metrics, logs and weights. The lock is one on the directory
 * itself (flock), so it leaves no file behind and ends with the process that holds it, however that
 * ends; local ranks inherit it. */
#ifndef TRI_TRAIN_RUN_RUN_LOCK_H
#define TRI_TRAIN_RUN_RUN_LOCK_H

#include <stddef.h>

#include "base/error.h"

typedef struct tri_run_lock {
    int fd;     /* -1: none is held */
    char *path; /* of the directory */
    size_t old; /* so many characters of the path were there before */
} tri_run_lock;

/* Whether a run can be written there, before anything is computed for it: wrong input when it
 * cannot. Changes nothing. */
tr_status tri_run_dir_check(const char *dir, tr_error *err);

/* Makes the directory where it is missing. Waits a few seconds for ranks that
 * outlived their launcher. */
tr_status tri_run_lock_take(tri_run_lock *lock, const char *dir, tr_error *err);
/* A directory that was made and is still empty goes, too: a run that was refused leaves nothing. */
void tri_run_lock_release(tri_run_lock *lock);

#endif
