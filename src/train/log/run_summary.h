/* What metrics.jsonl says, in short: for lists of many runs.
 *
 * A long file is read once. RUN/.summary.json then keeps what was read and how far, and the next
 * visit goes on from there, unless the file has been replaced, cut or changed since: the inode, the
 * time of its last change and a checksum of its ends say so. Where it cannot be written, or a file
 * of somebody else has that name, every visit reads all. */
#ifndef TRI_TRAIN_LOG_RUN_SUMMARY_H
#define TRI_TRAIN_LOG_RUN_SUMMARY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TRI_SUMMARY_BINS = 64 };

/* NAN: not known. */
typedef struct tri_run_summary {
    int64_t num_lines, step;   /* the last one, 0: none yet */
    int64_t tokens;            /* -1: not known */
    int64_t epoch, epoch_step; /* the last epoch that ended, and the step with which it did */
    double loss;               /* of the last line */
    double tokens_per_s;       /* mean over some sixty lines */
    double first_time, time;   /* of the first and the last line, seconds since 1970 */
    double gap_s;              /* between lines, mean over some sixty */
    double slow_gap_s;         /* the longest of some thousand: evaluations and saves */
    double eval_loss, best_eval_loss;
    int64_t eval_step, best_eval_step;
    /* The losses: bin i has those of steps i*width+1 to (i+1)*width that are finite. */
    int64_t width;
    int64_t count[TRI_SUMMARY_BINS];
    double sum[TRI_SUMMARY_BINS];
} tri_run_summary;

/* Of a run without metrics.jsonl: that there are no lines. */
tr_status tri_run_summary_read(const char *run_dir, tri_run_summary *summary, tr_error *err);

#endif
