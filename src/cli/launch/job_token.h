/* Where the ranks of a job that others started find its token when TRIREME_TOKEN is not set. */
#ifndef TRI_CLI_LAUNCH_JOB_TOKEN_H
#define TRI_CLI_LAUNCH_JOB_TOKEN_H

#include <stdbool.h>

#include "base/error.h"

/* The file, on the heap: in run.dir when the verb writes there or when it exists, otherwise in a
 * private directory of this machine. cleans: removes what jobs that were killed left in run.dir,
 * which the caller has to itself. */
tr_status tri_job_token_path(const char *run_dir, bool writes, int port, bool cleans, char **path,
                             tr_error *err);

#endif
