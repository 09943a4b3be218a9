/* metrics.jsonl: one JSON object a line, one line a step.
 *
 * Lines are appended, each in a single write, so that a reader at any moment (or after a crash)
 * sees whole lines; a half-written last line left by an earlier crash is cut off when the file is
 * opened. Every line ends with the time of its step. Numbers that are not finite are written as
 * null, since JSON has no name for them. Which numbers a row has, and what they are called in this
 * file and in those for other tools, is one table: row_numbers.h. */
#ifndef TRI_TRAIN_LOG_METRICS_H
#define TRI_TRAIN_LOG_METRICS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_metrics tri_metrics;

typedef struct tri_metrics_row {
    int64_t step;  /* from 1 */
    double time_s; /* when it was done: seconds since 1970 */
    double loss;   /* of a float: nine digits are written, which give it back exactly */
    double grad_norm;
    double lr;
    int64_t tokens; /* seen since the run began */
    double step_ms;
    double tokens_per_s;
    int64_t mem_peak_bytes;
    int64_t slowest_rank;
    double slowest_ms; /* own time of that rank, without waiting for others */
    double own_ms;     /* own time, mean over the ranks */
    double waited_ms;  /* for other ranks, mean over the ranks */
    int64_t slow_rank; /* that is named as slower than its peers; -1: none is, and it is left out */
    bool has_eval;     /* whether eval_loss is of this step; it is left out otherwise */
    double eval_loss;
    double eval_accuracy; /* left out when it is not a number */
    int64_t epoch;        /* that ended with this step, from 1; 0: none did, and it is left out */
    double epoch_loss;    /* mean over the targets of the epoch */
    double loss_scale;    /* of this step; 0: there is no loss scaler, and it is left out */
    int64_t skipped;  /* steps so far that updated nothing; 0 is left out without a loss scaler */
    int64_t replayed; /* steps so far that were replayed since the run was started; 0: left out */
    int64_t replay_differs;        /* of them: those that had other bits */
    bool has_stall;                /* whether a checkpoint was taken since the line before */
    const struct tri_shown *stats; /* beside the loss: train/step_stats.h */
    size_t num_stats;
    const float *layer_loads; /* of layers with experts: the largest load over the mean */
    size_t num_layer_loads;
    double ckpt_stall_ms; /* how long that held up the training; left out otherwise */
} tri_metrics_row;

tr_status tri_metrics_open(const char *path, tri_metrics **metrics, tr_error *err);

/* A full disk must not end a run that may go on: only the first failure is reported (the caller
 * warns). Later lines are still tried, and what fails then returns TR_OK. */
tr_status tri_metrics_write(tri_metrics *metrics, const tri_metrics_row *row, tr_error *err);

void tri_metrics_close(tri_metrics *metrics);

#endif
