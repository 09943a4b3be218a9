/* Whose gradient is not finite: a walk over the accumulators of a step that was skipped, for the
 * message that ends a run.
 *
 * Once a number is not finite, so is everything that the backward makes of it. The tensor to name
 * is therefore the first one in the order of the backward, not of the model. */
#ifndef TRI_TRAIN_NONFINITE_H
#define TRI_TRAIN_NONFINITE_H

#include "train/session.h"

/* Members of 8 bytes, so that it can travel as so many numbers. */
typedef struct tri_nonfinite {
    int64_t place;      /* of the tensor in the backward; INT64_MAX: every gradient is finite */
    int64_t param;      /* in the table of parameters */
    int64_t num, of;    /* elements of this rank's piece that are not finite, of how many */
    int64_t tensors;    /* with such elements, the first included */
    int64_t of_tensors; /* that have a gradient here */
    int64_t largest;    /* the parameter with the largest finite element, -1: there is none */
    double reach;       /* of that element */
} tri_nonfinite;

/* Looks at what this rank has of the gradients of the step that was last run. */
tr_status tri_nonfinite_find(const tri_session *session, tri_nonfinite *found, tr_error *err);
/* Adds a sentence on it to the message in err. rank: whose it is; -1 when there is only one. */
void tri_nonfinite_add(const tri_session *session, const tri_nonfinite *found, int rank,
                       tr_error *err);

/* The error for a model that computes something which is not finite, with the first parameter that
 * holds such a number itself, where the host can see the weights. */
tr_status tri_nonfinite_fail(const tri_session *session, const char *what, tr_error *err);

#endif
