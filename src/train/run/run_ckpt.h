/* Checkpoints of a run: what it goes on from, when it saves, and what became of that. */
#ifndef TRI_TRAIN_RUN_RUN_CKPT_H
#define TRI_TRAIN_RUN_RUN_CKPT_H

#include "train/ckpt/checkpoint.h"

typedef enum tri_resume {
    TRI_RESUME_NO,
    TRI_RESUME_IF_ANY, /* where there is a checkpoint */
    TRI_RESUME_MUST
} tri_resume;

typedef struct tri_run_ckpt_config {
    const char *dir; /* of the run */
    tri_resume resume;
    const char *from; /* a checkpoint of another run to begin with, or "" */
    int64_t every;    /* steps; 0: none are written */
    tri_ckpt_keep keep;
    int64_t staging_mib;
    bool async;
    double patience_s;
} tri_run_ckpt_config;

typedef struct tri_run_ckpt {
    tri_checkpointer *checkpointer; /* NULL: none are written */
    tri_run_ckpt_config config;
    tri_resumed resumed;
    bool continues; /* it was one of this very run, whose metrics and records go on too */
    tri_session *session;
    tri_ranks *ranks;
    int64_t num_failed; /* that could not be written, as far as has been told */
    bool last_failed;   /* the one of the end is not on the disk */
    tr_error why;       /* of the last one that failed */
    /* Of the last step: */
    bool saved;
    double stall_s;
} tri_run_ckpt;

/* Whether the next tri_run_ckpt_step saves. */
bool tri_run_ckpt_due(const tri_run_ckpt *c, bool last);
/* Before ranks exist: that there is something to go on from, where that is asked for, and something
 * to save. */
tr_status tri_run_ckpt_check(const tri_run_ckpt_config *config, const char *device, tr_error *err);
/* After the session has started with weights_follow: loads what is to be continued, or fills the
 * weights, and gets ready to save. Collective. */
tr_status tri_run_ckpt_begin(tri_run_ckpt *ckpt, const tri_run_ckpt_config *config,
                             tri_session *session, tri_ranks *ranks, tr_error *err);
/* After a step: saves when it is due. A checkpoint that could not be written is a warning.
 * Collective. */
tr_status tri_run_ckpt_step(tri_run_ckpt *ckpt, const tri_ckpt_number *numbers, size_t num_numbers,
                            bool last, tr_error *warning, tr_error *err);
/* At the end: saves what is not saved yet, and waits until it is on the disk. Collective. */
tr_status tri_run_ckpt_finish(tri_run_ckpt *ckpt, const tri_ckpt_number *numbers,
                              size_t num_numbers, tr_error *warning, tr_error *err);
/* At the end, when the last one is missing: an error that says what is on the disk and what is
 * lost. weights: where the final weights are, or NULL. */
tr_status tri_run_ckpt_verdict(const tri_run_ckpt *ckpt, const char *weights, tr_error *err);
/* Bytes of memory that this rank keeps for it. */
uint64_t tri_run_ckpt_staging(const tri_run_ckpt *ckpt);
/* Saves now, whatever ckpt.every says, and waits for it; one that cannot be written is an error.
 * Collective. */
tr_status tri_run_ckpt_now(tri_run_ckpt *ckpt, const tri_ckpt_number *numbers, size_t num_numbers,
                           tr_error *err);
void tri_run_ckpt_end(tri_run_ckpt *ckpt);

#endif
