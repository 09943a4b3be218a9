/* Spikes of the loss, to a run: told with the batch, and rolled back where the settings say so. */
#ifndef TRI_TRAIN_RUN_RUN_SPIKE_H
#define TRI_TRAIN_RUN_RUN_SPIKE_H

#include "train/run/run.h"

/* After a step, which all ranks judge alike. Collective where it rolls back. */
tr_status tri_run_judge_spike(tri_run *run, const tr_step *step, tr_error *err);

#endif
