/* A training run inside another program: what `trireme train` does, without a command line.
 *
 * The settings say everything: the layout, so how many ranks there are (threads of this process, or
 * processes: tr_run_options.ranks), the run directory, checkpoints, evaluation, what to go on from.
 * tr_train does the whole of it. tr_run_* is the same step by step, for a program that has
 * something to do in between.
 *
 * Nothing here prints. A callback is told what happens. Several runs may be there at once, each
 * with settings and a run directory of its own; the calls of one run come from one thread at a
 * time. */
#ifndef TRIREME_RUN_H
#define TRIREME_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_run tr_run;

/* In the order in which they come. The files of a step are complete before its checkpoint is taken,
 * so STEP comes before SAVED. */
typedef enum tr_run_moment {
    TR_RUN_BEGINS,    /* the first step is next; what was resumed is loaded */
    TR_RUN_SKIPPED,   /* loss or gradient of the step were not finite: nothing was updated */
    TR_RUN_EVALUATED, /* on held-out rows */
    TR_RUN_STEP,      /* a step is done, also one that was skipped */
    TR_RUN_SAVED,     /* a checkpoint was taken; with ckpt.async it is still being written */
    TR_RUN_WARNING,   /* of the run, or of rank 0: something is wrong that does not end it */
    TR_RUN_ENDS,      /* once, whatever the reason */
    TR_RUN_SAMPLED    /* after STEP, with run.sample_every: the model has written the text */
} tr_run_moment;

/* Where a run is. Later versions may add members at the end. */
typedef struct tr_run_state {
    int64_t step, num_steps; /* done, of how many */
    int64_t first_step;      /* that were done when it began: it was resumed */
    int64_t tokens;          /* since the run began, those before it was resumed included */
    double seconds;          /* that the steps took */
    double first_loss, loss; /* of the first and the last step since it began */
    double grad_norm, lr;    /* of the last step */
    tr_eval eval;            /* the last one; NAN before the first */
    bool stopped;            /* it ended before its last step, in good order; it can be resumed */
} tr_run_state;

typedef struct tr_run_news {
    tr_run_moment moment;
    const tr_run_state *state;
    const char *text; /* WARNING: what is wrong. ENDS: why before the last step, or what failed;
                         NULL: the run is done */
} tr_run_news;

/* A row to be filled: tokens are preset to 0 and targets to -1, which means no loss there. */
typedef struct tr_row {
    int32_t *tokens;  /* [seq_len] */
    int32_t *targets; /* [num_targets]: the token after each, or one label for the row */
    int64_t seq_len, num_targets;
} tr_row;

/* All members may be NULL. */
typedef enum tr_run_ranks {
    TR_RANKS_THREADS,  /* of this process */
    TR_RANKS_PROCESSES /* of `trireme train`, which is started for the run; tr_train only */
} tr_run_ranks;

typedef struct tr_run_options {
    /* Told what happens, on a thread of the run, which waits meanwhile: be brief, and call nothing
     * of that run from here. */
    void (*tell)(void *context, const tr_run_news *news);
    /* Asked after each step, before that is told, on a thread of the run: whether it shall end. It
     * then saves first. */
    bool (*stops)(void *context);
    /* Own rows instead of data.source: fills the row of a sample, for training or held out. Called
     * from several threads at once, and not in order; the same sample must give the same row. */
    void (*row)(void *context, bool held_out, uint64_t sample, const tr_row *row);
    void *context;
    /* As processes, ranks have nothing of this program: one that dies is an error of the run.
     * Everything is told on the thread that called tr_train, `stops` is asked when a step is told,
     * and own rows are refused. */
    tr_run_ranks ranks;
    /* The program of TR_RANKS_PROCESSES; NULL: `trireme` beside the library or this program, or in
     * ../bin from there. */
    const char *program;
} tr_run_options;

/* A whole run. options and state may be NULL; state is filled in also when it fails, as far as it
 * came. Settings that follow from others are filled in (see tr_settings_fill), and must not change
 * meanwhile. TR_OK, and state->stopped, when it ended early by options->stops or run.max_minutes.
 */
tr_status tr_train(tr_settings *settings, const tr_run_options *options, tr_run_state *state,
                   tr_error *err);

/* Takes the run directory (an earlier run in it is resumed or moved aside, as run.resume says),
 * starts the ranks, and goes up to the first step. The settings must outlive the run. */
tr_status tr_run_create(tr_settings *settings, const tr_run_options *options, tr_run **run,
                        tr_error *err);
/* At most so many steps, with the evaluations and checkpoints that are due; fewer when the run is
 * done, or is to end. After an error a run can only be destroyed. */
tr_status tr_run_advance(tr_run *run, int64_t num_steps, tr_error *err);
/* Between two steps: */
tr_run_state tr_run_now(const tr_run *run);
tr_status tr_run_evaluate(tr_run *run, tr_eval *eval, tr_error *err);
/* Saves a checkpoint, run.dir/ckpt/step-N, and waits until it is on the disk. */
tr_status tr_run_save(tr_run *run, tr_error *err);
/* Logits after the last of `length` tokens, at most data.seq_len of them; num_logits is model.vocab
 * (of a classifier, its labels). */
tr_status tr_run_logits(tr_run *run, const int32_t *tokens, int64_t length, float *logits,
                        int64_t num_logits, tr_error *err);
/* The end: after the last step, its checkpoint and weights.safetensors as the settings say; before
 * it a checkpoint to go on from. */
tr_status tr_run_finish(tr_run *run, tr_error *err);
/* Ends the ranks. What is neither saved nor finished is lost. NULL is fine. */
void tr_run_destroy(tr_run *run);

#ifdef __cplusplus
}
#endif
#endif
