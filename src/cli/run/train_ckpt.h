/* Checkpoints as `trireme train` has them: the settings ckpt.* and run.resume. */
#ifndef TRI_CLI_RUN_TRAIN_CKPT_H
#define TRI_CLI_RUN_TRAIN_CKPT_H

#include "train/ckpt/checkpoint.h"
#include "trireme/settings.h"

typedef struct tri_train_ckpt {
    tri_checkpointer *checkpointer; /* NULL: none are written */
    int64_t every;
    tri_resumed resumed;
    bool continues; /* it was one of this very run, whose metrics and records go on too */
    const tr_settings *settings;
    tri_session *session;
    tri_ranks *ranks;
    int64_t num_failed; /* that could not be written, as far as has been told */
    bool last_failed;   /* the one of the end is not on the disk */
    tr_error why;       /* of the last one that failed */
    /* Of the last step: */
    bool saved;
    double stall_s;
} tri_train_ckpt;

/* Whether the next tri_train_ckpt_step saves. */
bool tri_train_ckpt_due(const tri_train_ckpt *c, bool last);
/* Before ranks exist: that there is something to go on from, where that is asked for. */
tr_status tri_train_ckpt_check(const tr_settings *settings, tr_error *err);
/* After the session has started with weights_follow: loads what is to be continued, or fills the
 * weights, and gets ready to save. Collective. */
tr_status tri_train_ckpt_begin(tri_train_ckpt *ckpt, const tr_settings *settings,
                               tri_session *session, tri_ranks *ranks, tr_error *err);
/* Lines for the start of a run. */
void tri_train_ckpt_print(const tri_train_ckpt *ckpt);
/* After a step: saves when it is due. A checkpoint that could not be written is a warning.
 * Collective. */
tr_status tri_train_ckpt_step(tri_train_ckpt *ckpt, const tri_ckpt_number *numbers,
                              size_t num_numbers, bool last, tr_error *warning, tr_error *err);
/* At the end: saves what is not saved yet, and waits until it is on the disk. Collective. */
tr_status tri_train_ckpt_finish(tri_train_ckpt *ckpt, const tri_ckpt_number *numbers,
                                size_t num_numbers, tr_error *warning, tr_error *err);
/* At the end, when the last one is missing: an error that says what is on the disk and what is
 * lost. weights: where the final weights are, or NULL. */
tr_status tri_train_ckpt_verdict(const tri_train_ckpt *ckpt, const char *weights, tr_error *err);
/* Bytes of memory that this rank keeps for it. */
uint64_t tri_train_ckpt_staging(const tri_train_ckpt *ckpt);
/* Saves now, whatever ckpt.every says, and waits for it; one that cannot be written is an error.
 * Collective. */
tr_status tri_train_ckpt_now(tri_train_ckpt *ckpt, const tri_ckpt_number *numbers,
                             size_t num_numbers, tr_error *err);
void tri_train_ckpt_end(tri_train_ckpt *ckpt);

#endif
