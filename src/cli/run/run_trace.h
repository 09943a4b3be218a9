/* The trace of a rank's training steps, one file for each rank in the run directory. */
#ifndef TRI_CLI_RUN_RUN_TRACE_H
#define TRI_CLI_RUN_RUN_TRACE_H

#include "api/api.h"
#include "cli/cli.h"
#include "run/trace.h"

/* *trace stays NULL without run.trace. */
tr_status tri_run_trace_open(const tri_cli *cli, tr_session *session, int rank, int64_t num_steps,
                             tri_trace **trace, tr_error *err);
tr_status tri_run_trace_write(const tri_trace *trace, const char *dir, int rank, tr_error *err);
/* "trace.json" of rank 0, "trace-3.json" of others, in the run directory. */
void tri_run_trace_path(const char *dir, int rank, char *path, size_t size);

#endif
