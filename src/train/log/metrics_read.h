/* Reading metrics.jsonl, also while it is being written. */
#ifndef TRI_TRAIN_LOG_METRICS_READ_H
#define TRI_TRAIN_LOG_METRICS_READ_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What others want of a line. A number that is missing or null is NAN. */
typedef struct tri_metrics_line {
    int64_t step;   /* from 1, in lines of every version */
    int64_t tokens; /* -1: not known */
    int64_t epoch;  /* that ended with this step; 0: none did */
    double loss, grad_norm, lr, step_ms, tokens_per_s, eval_loss;
    double time; /* seconds since 1970 */
} tri_metrics_line;

/* *ours: it is the line of a step; anything else is not an error, and *line is undefined. Fails for
 * want of memory only. */
tr_status tri_metrics_line_read(const char *text, size_t num_bytes, tri_metrics_line *line,
                                bool *ours, tr_error *err);

typedef void (*tri_metrics_visit)(void *context, const tri_metrics_line *line);

/* Calls visit for every line of a step from byte *offset on, which begins a line. *offset is then
 * behind the last whole line: one that is still being written is left for later. */
tr_status tri_metrics_scan(int fd, const char *path, int64_t *offset, tri_metrics_visit visit,
                           void *context, tr_error *err);

/* The same of the whole file of a run. One that is not there has no lines. */
tr_status tri_metrics_each(const char *run_dir, tri_metrics_visit visit, void *context,
                           tr_error *err);

#endif
