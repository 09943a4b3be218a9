/* The trace of a run's first steps: recorded by each rank, written as one file for all of them.
 *
 * All ranks record the same steps, as many as there is room for. A run that ends well has
 * trace.json when it has ended. Of one that fails, each rank that is left leaves its part, and
 * whoever outlives the ranks joins these (tri_trace_join). */
#ifndef TRI_TRAIN_RUN_RUN_TRACE_H
#define TRI_TRAIN_RUN_RUN_TRACE_H

#include "run/trace/trace_program.h"
#include "train/ranks.h"

struct tri_run;

/* Of so many steps at most. Collective, as are those below but the last. */
tr_status tri_run_trace_open(struct tri_run *run, tr_error *err);
/* Around a step; the executor records between them. */
void tri_run_trace_begin_step(struct tri_run *run);
void tri_run_trace_end_step(struct tri_run *run);
/* Of all ranks. One whose machine does not see the run directory is left out, with a warning. */
tr_status tri_run_trace_write(struct tri_run *run, tr_error *err);
/* This rank's part, unless the whole was written. */
void tri_run_trace_close(struct tri_run *run);

/* Joins the parts that ranks of a failed run have left, by whoever holds the run directory or,
 * where nobody does, whoever looks at it. What cannot be joined stays as it is. */
void tri_run_trace_gather(const char *dir);
void tri_run_trace_gather_left(const char *dir);

#endif
