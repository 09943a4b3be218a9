/* One rank's part of a checkpoint that is being written: rank-R.safetensors, and a report of what
 * is in it, from which the manifest is made when all ranks have reported. */
#ifndef TRI_CKPT_RANK_FILE_H
#define TRI_CKPT_RANK_FILE_H

#include "base/checksum.h"
#include "ckpt/manifest.h"

/* A shard to be written. */
typedef struct tri_rank_item {
    const char *name;
    tri_ckpt_kind kind;
    tri_region region; /* not empty */
} tri_rank_item;

typedef struct tri_rank_file {
    int fd, rank;
    char *dir, *path;
    const tri_rank_item *items;
    size_t num_items, at; /* the item whose bytes come next */
    int64_t left;         /* of them */
    int64_t offset;       /* in the file */
    int64_t unsynced;     /* bytes since the last sync */
    tri_checksum hash;
    tri_manifest report;
} tri_rank_file;

/* Writes the header. The items must stay as they are until the end. */
tr_status tri_rank_file_begin(tri_rank_file *file, const char *dir, int rank, int64_t step,
                              const tri_rank_item *items, size_t num_items, tr_error *err);
/* The elements of all items, one after the other, in pieces of any size. */
tr_status tri_rank_file_write(tri_rank_file *file, const void *data, size_t num_bytes,
                              tr_error *err);
/* Everything is on the disk when it returns, the report last. */
tr_status tri_rank_file_end(tri_rank_file *file, tr_error *err);
/* Frees; harmless after the end. What was written stays in the temporary directory. */
void tri_rank_file_fini(tri_rank_file *file);

/* Names, each of at most 64 bytes; they return `name`. */
char *tri_rank_file_name(int rank, char name[64]);        /* "rank-3.safetensors" */
char *tri_rank_file_report_name(int rank, char name[64]); /* "rank-3.report.json" */
char *tri_rank_file_failed_name(int rank, char name[64]); /* "rank-3.failed", with the reason */

#endif
