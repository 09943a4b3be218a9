/* A directory that appears complete or not at all: it is filled under a hidden name beside the one
 * asked for, and takes its name at the end. It holds files, no directories. */
#ifndef TRI_BASE_STAGED_DIR_H
#define TRI_BASE_STAGED_DIR_H

#include "base/error.h"

#include <stdbool.h>

typedef struct tri_staged_dir {
    char *path; /* as asked for, without a slash at its end */
    char *temp; /* where files are written meanwhile; NULL when nothing has begun */
    int held;   /* open on it, or -1 */
} tri_staged_dir;

/* What is there already must be an empty directory. With replace it may also be a directory that
 * holds the file `marker`, by which it can be seen to be one of ours: others are never removed. */
tr_status tri_staged_begin(tri_staged_dir *dir, const char *path, bool replace, const char *marker,
                           tr_error *err);
tr_status tri_staged_commit(tri_staged_dir *dir, tr_error *err);
void tri_staged_abort(tri_staged_dir *dir); /* takes it all away; harmless after a commit */

/* Removes a directory of files. */
void tri_remove_dir(const char *path);

#endif
