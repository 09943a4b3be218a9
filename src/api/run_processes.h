/* A run whose ranks are processes: `trireme train`, started for it. */
#ifndef TRI_API_RUN_PROCESSES_H
#define TRI_API_RUN_PROCESSES_H

#include "trireme/run.h"

/* Settings are complete and checked. state may be NULL. */
tr_status tri_train_processes(const tr_settings *settings, const tr_run_options *options,
                              tr_run_state *state, tr_error *err);

#endif
