/* Checkpoints of a session: saving one at the end of a step, and going on from one.
 *
 * All calls that say so are collective: every rank of the session makes them, after the same step.
 * A checkpoint that cannot be written is no error of the run, which may go on without: it is told
 * in the outcome. What is returned as an error is (another rank is gone, the model is another). */
#ifndef TRI_TRAIN_CKPT_CHECKPOINT_H
#define TRI_TRAIN_CKPT_CHECKPOINT_H

#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"
#include "train/ranks.h"
#include "train/session.h"

/* ---- waiting for a disk ---- */

/* Does work on rank 0, on a thread, while all ranks stay in touch: a disk may take longer than
 * ranks wait for each other (run.deadline_s). The others return when it is done; what became of it
 * rank 0 alone knows. Collective. */
typedef tr_status (*tri_patient_fn)(void *context, tr_error *err);
tr_status tri_ranks_patiently(tri_ranks *ranks, tri_patient_fn work, void *context, tr_error *err);

/* ---- saving ---- */

typedef struct tri_checkpointer tri_checkpointer;

typedef struct tri_checkpointer_config {
    const char *run_dir; /* checkpoints go to run_dir/ckpt, and its config.yaml into each of them */
    tri_ckpt_keep keep;  /* see tri_ckpt_prune */
    size_t staging_bytes; /* of this rank, at most; 0: as much as one takes */
    bool async;           /* save returns when the state has been copied */
    double patience_s; /* without progress, after which another rank's part is given up; a disk is
                          slower than a rank, so this is not the deadline of messages */
} tri_checkpointer_config;

/* After start. Takes the directory for this run, and away what dead ones have left in it.
 * Collective. The session and the ranks must outlive it. */
tr_status tri_checkpointer_open(tri_session *session, tri_ranks *ranks,
                                const tri_checkpointer_config *config, tri_checkpointer **out,
                                tr_error *err);
/* Not collective. What is still being written is finished if no other rank is needed for it. */
void tri_checkpointer_close(tri_checkpointer *checkpointer); /* NULL is fine */

typedef struct tri_save_outcome {
    bool failed; /* the checkpoint of failed_step could not be written */
    int64_t failed_step;
    tr_error why;
    bool missing;   /* of a call that waits: the one it was asked for is not on the disk */
    double stall_s; /* how long the call took */
} tri_save_outcome;

/* Saves the state as it is now, under the session's step; does nothing when that is there already.
 * With `wait`, or without async, it is on the disk when the call returns; else the outcome is that
 * of the one before, which is waited for. numbers are kept with it, for the caller to find again.
 * Collective. */
tr_status tri_checkpointer_save(tri_checkpointer *checkpointer, const tri_ckpt_number *numbers,
                                size_t num_numbers, bool wait, tri_save_outcome *outcome,
                                tr_error *err);
/* Waits for one that is being written; the outcome is its. Collective. */
tr_status tri_checkpointer_settle(tri_checkpointer *checkpointer, tri_save_outcome *outcome,
                                  tr_error *err);
/* The outcome of one that has ended meanwhile, once. Not collective; rank 0 knows. */
void tri_checkpointer_poll(tri_checkpointer *checkpointer, tri_save_outcome *outcome);
/* Bytes of the memory in which this rank stages what it writes. */
uint64_t tri_checkpointer_staging(const tri_checkpointer *checkpointer);

/* ---- going on ---- */

typedef struct tri_resumed {
    bool found;
    int64_t step;
    char *path; /* of the checkpoint */
    char *note; /* rank 0: a line for each that was damaged and set aside; or NULL */
    /* States in codes were encoded anew, since their blocks begin elsewhere: the checkpoint was
     * made with this layout.tp, or with states in fp32 (0). Otherwise -1: they are the same bytes.
     */
    int encoded_from;
    tri_ckpt_number numbers[48]; /* names are the heap's */
    size_t num_numbers;
} tri_resumed;

/* Loads the newest checkpoint of the run that is whole, whatever layout it was made in. Newer ones
 * that were read and are damaged are set aside by name once it is loaded. One that cannot be read
 * is an error, and so are checkpoints none of which is whole: nothing is renamed then. `must`: none
 * at all is an error, too. After start. Collective. */
tr_status tri_checkpoint_resume(tri_session *session, tri_ranks *ranks, const char *run_dir,
                                bool must, tri_resumed *resumed, tr_error *err);
/* Loads one that is named: its directory, or a run's. A damaged one is an error. Collective. */
tr_status tri_checkpoint_load(tri_session *session, tri_ranks *ranks, const char *path,
                              tri_resumed *resumed, tr_error *err);
/* The error of a run.resume=true without a checkpoint in dir. */
tr_status tri_checkpoint_none(const char *dir, tr_error *err);
/* Of a dir with damaged ones only, set aside or not; why (may be NULL) is said of the newest. */
tr_status tri_checkpoint_none_whole(const char *dir, const char *why, tr_error *err);
double tri_resumed_number(const tri_resumed *resumed, const char *name, double otherwise);
void tri_resumed_fini(tri_resumed *resumed);

/* Drops the lines of a JSONL file that are of steps after the first `steps`, so that what is done
 * again stands in it once. A file that is not there is fine. */
tr_status tri_jsonl_trim(const char *path, int64_t steps, tr_error *err);

#endif
