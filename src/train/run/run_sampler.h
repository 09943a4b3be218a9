/* Where a run has text written by its model: what does so comes later in the order of folders
 * (serve/run_samples.h). */
#ifndef TRI_TRAIN_RUN_RUN_SAMPLER_H
#define TRI_TRAIN_RUN_RUN_SAMPLER_H

#include "base/error.h"

#include <stdint.h>

struct tri_run;

typedef struct tri_run_sampler {
    /* When the files of the run are there. Collective, as take is. */
    tr_status (*open)(struct tri_run *run, void **state, tr_error *err);
    /* Writes a text, keeps it and tells it (TRI_RUN_SAMPLED). */
    tr_status (*take)(struct tri_run *run, void *state, tr_error *err);
    void (*close)(void *state); /* NULL is fine */
} tri_run_sampler;

typedef struct tri_run_sampling {
    const tri_run_sampler *by;
    int64_t every; /* steps; 0: none */
    const char *prompt;
    int64_t num_tokens;
    double temperature; /* 0: always the likeliest token */
} tri_run_sampling;

#endif
