/* Epochs: which sample is which row of which step.
 *
 * Counting steps, samples follow each other without end: row r of step s is sample s * batch + r.
 * Counting epochs, an epoch is a whole number of steps. Its samples come once each, and the places
 * that are left over in its last batch are padding:
 *
 *     10 rows, batch 4     | 0 1 2 3 | 4 5 6 7 | 8 9 - - |     the next epoch begins with 10
 *
 * Either way a sample is a pure function of (step, row): the data cursor is the number of steps
 * done, however the rows of a batch are divided over ranks. */
#ifndef TRI_TRAIN_EPOCHS_H
#define TRI_TRAIN_EPOCHS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_epochs {
    int64_t num;   /* epochs to train; 0: steps are counted, and the rest is 0 too */
    int64_t rows;  /* of an epoch */
    int64_t steps; /* of an epoch: rows / batch, rounded up */
} tri_epochs;

/* rows may be TRI_DATA_ENDLESS, of which there are no epochs. */
tr_status tri_epochs_init(tri_epochs *epochs, int64_t num, int64_t rows, int64_t batch,
                          tr_error *err);

/* Steps of the whole run; max_steps (0: none) ends it earlier. */
int64_t tri_epochs_num_steps(const tri_epochs *epochs, int64_t max_steps);

/* The sample of a row of a step's batch; false for padding. */
bool tri_epochs_sample(const tri_epochs *epochs, int64_t batch, int64_t step, int64_t row,
                       uint64_t *sample);

/* How many rows of a step's batch are no padding. */
int64_t tri_epochs_batch_rows(const tri_epochs *epochs, int64_t batch, int64_t step);

/* Whether an epoch ends with this step: its number, from 1; otherwise 0. */
int64_t tri_epochs_ended(const tri_epochs *epochs, int64_t step);

#endif
