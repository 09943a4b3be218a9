/* The trace of a rank's training steps, one file for each rank in the run directory. */
#ifndef TRI_TRAIN_RUN_RUN_TRACE_H
#define TRI_TRAIN_RUN_RUN_TRACE_H

#include "run/trace.h"
#include "train/session.h"

/* Of the steps from here on, at most so many as there is room for. */
tr_status tri_run_trace_open(tri_session *session, int rank, int64_t num_steps, tri_trace **trace,
                             tr_error *err);
tr_status tri_run_trace_write(const tri_trace *trace, const char *dir, int rank, tr_error *err);
/* "trace.json" of rank 0, "trace-3.json" of others, in the run directory. */
void tri_run_trace_path(const char *dir, int rank, char *path, size_t size);

#endif
