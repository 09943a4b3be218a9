/* loss.svg: the curve that every run leaves in its directory. */
#ifndef TRI_TRAIN_PLOT_RUN_PICTURE_H
#define TRI_TRAIN_PLOT_RUN_PICTURE_H

#include "base/error.h"

#include <stdbool.h>

#define TRI_RUN_PICTURE "loss.svg"

/* Draws the losses of metrics.jsonl and the held-out ones, if there are any. A picture of ours is
 * replaced, another file of that name is an error. *drawn: false when there is nothing to draw. */
tr_status tri_run_picture(const char *run_dir, bool *drawn, tr_error *err);

#endif
