/* Writes a rank's part of checkpoints beside the training.
 *
 * The caller copies its elements into the staging memory, which is a ring; a thread writes them
 * from there to the disk. When the ring holds everything, the caller is stopped for a copy and no
 * longer; when it is smaller, the caller waits for room, and the disk sets the pace.
 *
 * A failure (a full disk) does not stop the caller: the rest is taken and thrown away, and the
 * outcome is told at the end. */
#ifndef TRI_CKPT_WRITER_H
#define TRI_CKPT_WRITER_H

#include "ckpt/ckpt_dir.h"
#include "ckpt/rank_file.h"

typedef struct tri_ckpt_writer tri_ckpt_writer;

/* Everything it points to must outlive the writer. */
typedef struct tri_ckpt_writer_config {
    const char *dir; /* of the checkpoints */
    int rank, num_ranks;
    const tri_rank_item *items; /* what this rank writes each time */
    size_t num_items;
    size_t staging_bytes; /* at most; 0: as much as one checkpoint takes */
    /* Memory that a device copies to well; NULL: any. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    tri_ckpt_keep keep;
    const char *const *needed; /* see tri_ckpt_commit, as for the next three */
    const char *extras_from;
    const char *const *extras;
    double patience_s;
} tri_ckpt_writer_config;

enum { TRI_CKPT_MAX_NUMBERS = 48 };

typedef struct tri_ckpt_save {
    int64_t step;
    uint64_t nonce; /* the same on all ranks, and another in every run */
    tri_ckpt_number numbers[TRI_CKPT_MAX_NUMBERS];
    size_t num_numbers;
} tri_ckpt_save;

tr_status tri_ckpt_writer_create(const tri_ckpt_writer_config *config, tri_ckpt_writer **writer,
                                 tr_error *err);
/* What is being written and has been staged whole is finished first, but for a rank 0 that others
 * leave waiting. NULL is fine. */
void tri_ckpt_writer_destroy(tri_ckpt_writer *writer);

/* Bytes of the staging memory. */
uint64_t tri_ckpt_writer_staging(const tri_ckpt_writer *writer);

/* Begins a checkpoint. The one before must have ended. */
void tri_ckpt_writer_begin(tri_ckpt_writer *writer, const tri_ckpt_save *save);
/* Where the next bytes go: *num_bytes of room, or 0 when there is none after timeout_s. */
void *tri_ckpt_writer_room(tri_ckpt_writer *writer, double timeout_s, size_t *num_bytes);
/* So many have been put there. The last ones end the checkpoint as far as the caller goes. */
void tri_ckpt_writer_put(tri_ckpt_writer *writer, size_t num_bytes);

/* Waits up to timeout_s; true when nothing is being written. *status and err are then the outcome
 * of the last checkpoint, told once: TR_OK afterwards. */
bool tri_ckpt_writer_wait(tri_ckpt_writer *writer, double timeout_s, tr_status *status,
                          tr_error *err);

#endif
