/* All lines of a run, for curves and comparisons. */
#ifndef TRI_TRAIN_LOG_RUN_CURVE_H
#define TRI_TRAIN_LOG_RUN_CURVE_H

#include "train/log/metrics_read.h"

typedef struct tri_run_curve {
    tri_metrics_line *lines; /* by step, every step once: of several lines the last counts */
    size_t num, capacity;
    bool failed;
} tri_run_curve;

/* Wrong input when there are no lines. */
tr_status tri_run_curve_read(tri_run_curve *curve, const char *run_dir, tr_error *err);
void tri_run_curve_free(tri_run_curve *curve);

#endif
