/* Files for other tools as an observer of a run: a row at every STEP. */
#ifndef TRI_TRAIN_LOG_LOGS_OBSERVER_H
#define TRI_TRAIN_LOG_LOGS_OBSERVER_H

#include "train/run/observer.h"

/* Those that run->config.logs names, which is not empty; by rank 0, when the run knows from which
 * step it goes on. */
tr_status tri_logs_observer(const struct tri_run *run, tri_observer *observer, tr_error *err);

#endif
