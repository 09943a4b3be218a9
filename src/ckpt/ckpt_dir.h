/* The directory of a run's checkpoints, and what happens in it.
 *
 *     ckpt/step-10/              complete: it got this name after its last byte was on the disk
 *     ckpt/.step-20.x.tmp/       being written, or left by a run that died
 *     ckpt/step-5.damaged/       set aside when its bytes were found to be wrong
 *     ckpt/.lock                 held by the run that writes
 *
 * A checkpoint is removed by taking its name away first, so that a half removed one is never found.
 */
#ifndef TRI_CKPT_CKPT_DIR_H
#define TRI_CKPT_CKPT_DIR_H

#include <stdatomic.h>

#include "ckpt/manifest.h"

/* Steps of the complete checkpoints, newest first. A directory that is not there has none; one that
 * cannot be listed to its end is an error. */
typedef struct tri_ckpt_steps {
    int64_t *step;
    size_t num;
    size_t num_damaged; /* that were set aside */
} tri_ckpt_steps;
tr_status tri_ckpt_steps_read(tri_ckpt_steps *steps, const char *dir, tr_error *err);
void tri_ckpt_steps_free(tri_ckpt_steps *steps);

/* Heap, or NULL. */
char *tri_ckpt_path(const char *dir, int64_t step);                      /* "dir/step-10" */
char *tri_ckpt_temp_path(const char *dir, int64_t step, uint64_t nonce); /* "dir/.step-10.x.tmp" */

/* Keeps other runs out until unlock; *fd is -1 when it failed. */
tr_status tri_ckpt_lock(const char *dir, int *fd, tr_error *err);
void tri_ckpt_unlock(int fd);

/* Removes what runs that died have left. Only while holding the lock. */
void tri_ckpt_clean(const char *dir);
/* Renames a damaged checkpoint; path receives the new name, on the heap. */
tr_status tri_ckpt_set_aside(const char *dir, int64_t step, char **path, tr_error *err);
/* Which checkpoints stay. */
typedef struct tri_ckpt_keep {
    int64_t last;  /* so many of the newest; 0: all */
    int64_t every; /* those whose step is a multiple of this; 0: none is kept for that */
    int64_t best;  /* so many with the least held-out loss (ckpt_best.h) */
} tri_ckpt_keep;
/* Removes the other complete ones. With best, one that cannot be read stays. */
void tri_ckpt_prune(const char *dir, const tri_ckpt_keep *keep);

/* Puts a checkpoint together, by one rank, from the reports of all. */
typedef struct tri_ckpt_commit {
    const char *dir;
    const char *temp; /* where the ranks write */
    int64_t step;
    int num_ranks;
    const tri_ckpt_number *numbers;
    size_t num_numbers;
    const char *const *needed;  /* tensors that must be there, ends with NULL; may be NULL */
    const char *extras_from;    /* directory of files that are copied into it where they exist, */
    const char *const *extras;  /* such as "config.yaml"; ends with NULL; may be NULL */
    double patience_s;          /* without progress, after which a missing report is an error */
    const atomic_bool *give_up; /* or NULL: the run ends, so patience is short */
} tri_ckpt_commit;
/* Waits for the reports, writes the manifest, and gives the directory its name. When it fails the
 * temporary directory is gone, and what was there before is untouched. */
tr_status tri_ckpt_commit_run(const tri_ckpt_commit *commit, tr_error *err);

#endif
