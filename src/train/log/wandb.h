/* The log of W&B's offline runs, as wandb/sdk/internal/datastore.py has it: a header of 7 bytes,
 * then blocks of 32 KiB (the first includes the header) with records that are cut where a block
 * ends. Before each piece stand the CRC-32 of its kind and data, its length and its kind. */
#ifndef TRI_TRAIN_LOG_WANDB_H
#define TRI_TRAIN_LOG_WANDB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TRI_WANDB_BLOCK_BYTES = 32768, TRI_WANDB_HEAD_BYTES = 7 };
typedef enum tri_wandb_piece {
    TRI_WANDB_FULL = 1,
    TRI_WANDB_FIRST,
    TRI_WANDB_MIDDLE,
    TRI_WANDB_LAST
} tri_wandb_piece;
extern const unsigned char tri_wandb_header[TRI_WANDB_HEAD_BYTES];

/* Fields of wandb/proto/wandb_internal.proto. */
enum {
    TRI_WANDB_RECORD_NUM = 1,
    TRI_WANDB_RECORD_HISTORY = 2,
    TRI_WANDB_RECORD_SUMMARY = 3,
    TRI_WANDB_RECORD_CONFIG = 5,
    TRI_WANDB_RECORD_RUN = 17,
    TRI_WANDB_RECORD_EXIT = 18,
    TRI_WANDB_RECORD_VERSION = 21,
    TRI_WANDB_VERSION_INFO = 1,
    TRI_WANDB_VERSION_PRODUCER = 1,
    TRI_WANDB_HISTORY_STEP = 2,
    TRI_WANDB_STEP_NUM = 1,
    TRI_WANDB_RUN_START = 17,
    TRI_WANDB_TIME_SECONDS = 1,
    TRI_WANDB_TIME_NANOS = 2
};

/* In front of the version, in the first record. */
#define TRI_WANDB_PRODUCER "trireme "

uint32_t tri_wandb_sum(tri_wandb_piece kind, const void *data, size_t num_bytes);

/* What is in a file that is to be continued after so many steps. */
typedef struct tri_wandb_found {
    bool is_log;     /* it begins with the header */
    bool is_ours;    /* we began it */
    bool has_run;    /* it has a record of the run */
    off_t end;       /* of the records that stay: not the first that is damaged, the end of the
                        run, or of a later step, nor any behind it */
    int64_t num;     /* of the last of them */
    int64_t start_s; /* of the run, seconds since 1970 */
} tri_wandb_found;

/* 0 or an errno. */
int tri_wandb_scan(int fd, int64_t steps, tri_wandb_found *found);

#endif
