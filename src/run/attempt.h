/* Attempts of a run that is started again when it fails, and whether another one is of any use. */
#ifndef TRI_RUN_ATTEMPT_H
#define TRI_RUN_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

/* What one attempt failed of. */
typedef struct tri_attempt {
    int rank, signal, code; /* as in tri_launch_result */
    int64_t step;           /* that it was in, from 1; -1: none yet */
    int64_t from_step;      /* steps that were done when it began */
} tri_attempt;

/* Why another attempt would end like the last two; NULL: it may not. before is NULL for the first.
 * A run that loses a rank now and then gets further each time, or fails elsewhere; one with a fault
 * of its own comes back to the same place. */
const char *tri_attempt_hopeless(const tri_attempt *before, const tri_attempt *now);

#endif
