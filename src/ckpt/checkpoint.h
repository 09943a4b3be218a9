/* A checkpoint on disk, read: any region of any tensor, by whoever needs it.
 *
 * A reader reads its own elements from the files that have them; nobody gathers anything, and
 * memory does not grow with the size of the checkpoint. Files are read and not mapped: a disk that
 * cannot give the bytes is then an error and not a signal.
 *
 * Damaged (TR_ERROR_DAMAGED) is a checkpoint whose bytes were read and are not those that were
 * written, or one that lacks a file. One that cannot be read (TR_ERROR_RUNTIME) may be whole, and
 * so is one of a newer version (TR_ERROR_INPUT): nobody may rename it or pass it over. */
#ifndef TRI_CKPT_CHECKPOINT_H
#define TRI_CKPT_CHECKPOINT_H

#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"

typedef struct tri_checkpoint {
    char *path;
    tri_manifest manifest;
    uint64_t bytes_read; /* by tri_checkpoint_read, so far */
    /* The file that is open now, and a stretch of it. */
    size_t file;
    int fd;
    char *window;
    int64_t window_at;
    size_t window_bytes;
    /* Reads what it would and counts, but copies nothing. */
    bool counts_only;
} tri_checkpoint;

/* Whether a directory holds a manifest. */
bool tri_checkpoint_is_dir(const char *path);

/* The checkpoint that a path stands for, on the heap: itself, or the newest of a run directory or
 * of its ckpt folder, or ckpt/best (ckpt_best.h). None is an error. */
tr_status tri_checkpoint_locate(const char *path, char **found, tr_error *err);
/* The same, but none is no error: *found is then NULL. */
tr_status tri_checkpoint_look(const char *path, char **found, tr_error *err);

/* The manifest, and that all files are there in the size it says. */
tr_status tri_checkpoint_open(tri_checkpoint *ckpt, const char *path, tr_error *err);
void tri_checkpoint_close(tri_checkpoint *ckpt);

/* After one that is damaged was named: adds to the message which other one there is, or what to do
 * where there is none. Only for whoever does not go on with another by itself. */
tr_status tri_checkpoint_advise(tr_error *err, tr_status status, const char *path);

/* What to verify, beside the headers of the files: bits 1 << TRI_CKPT_... */
enum { TRI_VERIFY_WEIGHTS = 1 << TRI_CKPT_WEIGHT, TRI_VERIFY_ALL = ~0 };
/* Compares checksums of one of `parts` about equal shares of all bytes: ranks divide the work. The
 * message names the file and the tensor. *bytes (may be NULL) receives how much was read. */
tr_status tri_checkpoint_verify(const tri_checkpoint *ckpt, int kinds, int part, int parts,
                                uint64_t *bytes, tr_error *err);

/* Elements of a region of a tensor, dense, in the order of the region. */
tr_status tri_checkpoint_read(tri_checkpoint *ckpt, const char *name, const tri_region *region,
                              float *to, tr_error *err);

#endif
