/* What saving and loading of checkpoints share. */
#ifndef TRI_TRAIN_CHECKPOINT_PARTS_H
#define TRI_TRAIN_CHECKPOINT_PARTS_H

#include "train/checkpoint.h"
#include "train/pieces.h"

/* "run_dir/ckpt" on the heap, or NULL. */
char *tri_checkpoint_dir(const char *run_dir);
/* A number of every rank, by rank. Collective. */
tr_status tri_checkpoint_gather(tri_ranks *ranks, int64_t own, int64_t *all, tr_error *err);
/* The value with the loss scale, or TRI_NONE. */
tri_id tri_checkpoint_scaler(const tri_session *session);

#endif
