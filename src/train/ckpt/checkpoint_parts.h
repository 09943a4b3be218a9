/* What saving and loading of checkpoints share. */
#ifndef TRI_TRAIN_CKPT_CHECKPOINT_PARTS_H
#define TRI_TRAIN_CKPT_CHECKPOINT_PARTS_H

#include "ckpt/checkpoint.h"
#include "train/ckpt/checkpoint.h"
#include "train/pieces.h"

/* "run_dir/ckpt" on the heap, or NULL. */
char *tri_checkpoint_dir(const char *run_dir);
/* A number of every rank, by rank. Collective. */
tr_status tri_checkpoint_gather(tri_ranks *ranks, int64_t own, int64_t *all, tr_error *err);

/* Bytes that a rank reads between two meetings with the others: a wait has a deadline, and a disk
 * may be slow. */
#define TRI_CHECKPOINT_ROUND_BYTES 268435456.0
/* Opens and verifies, each rank its share of the bytes; all return the same. Damaged only when rank
 * 0 has seen it, too. Collective. */
tr_status tri_checkpoint_open_together(tri_ranks *ranks, const char *path, tri_checkpoint *ckpt,
                                       tr_error *err);
/* tri_checkpoint_locate by rank 0, so that all load the same one even while another run writes more
 * of them. Collective. */
tr_status tri_checkpoint_locate_together(tri_ranks *ranks, const char *path, char **at,
                                         tr_error *err);

/* The value with the loss scale, or TRI_NONE. */
tri_id tri_checkpoint_scaler(const tri_session *session);
/* Under which a checkpoint keeps the losses that spikes are judged by. */
extern const char *const tri_checkpoint_loss_names[TRI_SPIKE_WINDOW];
/* Whether some state rests in a code (graph/code.h). */
bool tri_checkpoint_codes(const tri_session *session);

#endif
