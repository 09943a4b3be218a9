/* One rank's run of `trireme train`, and what it shows of it. */
#ifndef TRI_CLI_RUN_TRAIN_RUN_H
#define TRI_CLI_RUN_TRAIN_RUN_H

#include "api/api.h"
#include "cli/launch/recovery.h"
#include "cli/memory.h"
#include "cli/run/progress.h"
#include "cli/run/train_ckpt.h"
#include "train/log/metrics.h"
#include "train/log/record.h"
#include "train/ranks.h"
#include "train/replicas.h"

typedef struct tri_train_run {
    const tri_cli *cli;
    tri_ranks ranks;
    int local_ranks; /* on this machine */
    tr_session *session;
    const char *dir;
    tri_metrics *metrics;
    tri_trace *trace;
    tri_record *record;
    tri_train_ckpt ckpt;
    tri_replicas replicas;
    int64_t compare_every; /* steps between two comparisons of copies; 0: there are none */
    int64_t good_step;  /* of the newest checkpoint that was saved when copies were equal, or -1 */
    bool has_tokenizer; /* kept in dir */
    tri_progress progress;
    int64_t first_step, num_steps, eval_every;
    tri_memory_overhead overhead; /* before the first step */
    double peak_flops;            /* of this device, measured; 0 when not known */
    double first_loss, last_loss;
    tr_eval eval;
    double seconds;
    int64_t tokens, first_tokens;    /* since the run began; of them, before it was resumed */
    double epoch_sum, epoch_targets; /* of the losses of this epoch, and what they are means over */
    const tri_recovery *recovery;
    int code;       /* to end with, when nothing fails */
    unsigned ended; /* by whose wish the run ends before its last step; 0: by nobody's */
} tri_train_run;

/* Whether gradients are scaled (fp16). */
static inline bool tri_train_has_scaler(const tri_train_run *run)
{
    return run->session->session.config.compile.precision.compute == TRI_F16;
}

/* train_files.c. A file of the run directory; the caller frees the path. */
tr_status tri_train_in_dir(const tri_train_run *run, const char *name, char **path, tr_error *err);
/* Of a tri_train_run, by rank 0: settings, tokenizer, metrics. */
tr_status tri_train_open_files(void *run, tr_error *err);

/* train_print.c, for rank 0. */
tr_status tri_train_print_start(const tri_train_run *run, tr_error *err);
void tri_train_print_end(const tri_train_run *run);
/* "held-out loss 0.6912  accuracy 53.1%", as much of it as the task has; returns text. */
char *tri_train_held_out(const tri_train_run *run, char *text, size_t size);
/* "[epoch 1/3] loss 0.6931  held-out loss 0.6912  accuracy 53.1%" */
void tri_train_show_epoch(tri_train_run *run, const tr_step *step, double loss, bool evaluated);
void tri_train_show_step(tri_train_run *run, const tr_step *step);
void tri_train_show_skipped(tri_train_run *run, const tr_step *step);

#endif
