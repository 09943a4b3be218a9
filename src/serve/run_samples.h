/* Text that a model writes while it is trained: what it has learnt, to be read.
 *
 * Every token is a run of the prediction program, by all ranks, with the weights as they lie: so
 * any layout can, nothing is gathered, and the training program and its states are not touched. A
 * text depends on the weights, the prompt, run.seed and the step alone. */
#ifndef TRI_SERVE_RUN_SAMPLES_H
#define TRI_SERVE_RUN_SAMPLES_H

#include "train/run/run_sampler.h"

extern const tri_run_sampler tri_run_samples;

#endif
