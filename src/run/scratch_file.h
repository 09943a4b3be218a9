/* A scratch file: memory of a run that lies on a disk. It has no name, so nothing of it is left
 * when the process ends, however that happens; nothing is ever resumed from it. */
#ifndef TRI_RUN_SCRATCH_FILE_H
#define TRI_RUN_SCRATCH_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tri_scratch_file {
    int fd; /* -1: there is none */
    uint64_t bytes;
    char dir[256]; /* for messages */
} tri_scratch_file;

/* Makes one of zeros in a directory, with its blocks reserved: a disk that is too full is found out
 * here. */
tr_status tri_scratch_file_open(tri_scratch_file *file, const char *dir, uint64_t bytes,
                                tr_error *err);
void tri_scratch_file_close(tri_scratch_file *file);
tr_status tri_scratch_file_read(const tri_scratch_file *file, uint64_t offset, void *to,
                                size_t bytes, tr_error *err);
tr_status tri_scratch_file_write(const tri_scratch_file *file, uint64_t offset, const void *from,
                                 size_t bytes, tr_error *err);

#endif
