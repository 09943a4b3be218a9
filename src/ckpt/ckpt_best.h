/* The checkpoint with the least held-out loss. Each says in its manifest what was measured of it,
 * so which one is best is never noted anywhere else, and cannot be wrong after a kill. */
#ifndef TRI_CKPT_CKPT_BEST_H
#define TRI_CKPT_CKPT_BEST_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The number of a manifest; one that was not evaluated has none. */
#define TRI_CKPT_EVAL_LOSS "eval_loss"

/* Of dir/step-N; NAN when it was not evaluated. */
tr_status tri_ckpt_eval_loss(const char *dir, int64_t step, double *loss, tr_error *err);
/* Whether the one of a step and loss comes before another: less, or equal and earlier. One without
 * a loss comes before none. */
bool tri_ckpt_is_better(double loss, int64_t step, double than, int64_t than_step);
/* The best in a folder of checkpoints, -1: none was evaluated. */
tr_status tri_ckpt_best(const char *dir, int64_t *step, double *loss, tr_error *err);
/* Whether a path means the best checkpoint of a folder: it ends in "/best", and nothing is there.
 * *found is then that checkpoint, on the heap; none is wrong input. */
tr_status tri_ckpt_find_best(const char *path, char **found, tr_error *err);

#endif
