/* Files: mapping them to read, replacing them whole, and looking around in directories.
 *
 * Every error message begins with the path it is about. A file that cannot be read is wrong input
 * (TR_ERROR_INPUT); one that cannot be written is a failure while running (TR_ERROR_RUNTIME). */
#ifndef TRI_BASE_FS_H
#define TRI_BASE_FS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* A whole file, read-only. The caller owns the struct; an empty file has num_bytes 0. Whoever cuts
 * the file short while it is mapped makes a later read end in SIGBUS: our own writers never do,
 * they replace files by rename. */
typedef struct tri_mapping {
    const unsigned char *data;
    size_t num_bytes;
} tri_mapping;

/* "PATH: cannot be opened: why", and what to do about it; reason is an errno. Wrong input, unless
 * the machine is to blame (a disk that does not answer, no memory, no descriptors). */
tr_status tri_fail_open(tr_error *err, const char *path, int reason);
/* For a path at which tri_path_exists finds nothing: "PATH: cannot be found; ADVICE" when nothing
 * is there; what lies behind a folder that may not be entered, say, is an error of tri_fail_open.
 */
tr_status tri_fail_missing(tr_error *err, const char *path, const char *advice);
/* "PATH: is a directory", or a pipe ..., "not a regular file", and what to do about it. */
tr_status tri_fail_kind(tr_error *err, const char *path, unsigned mode);

/* The whole file on the heap, with a 0 behind it that does not count. Other than with a mapping, a
 * disk that cannot give the bytes is an error and not a signal. */
tr_status tri_file_read(const char *path, char **data, size_t *num_bytes, tr_error *err);

tr_status tri_mapping_open(tri_mapping *mapping, const char *path, tr_error *err);
void tri_mapping_close(tri_mapping *mapping); /* also fine on a zeroed or a closed one */

/* Whether something can be written at a path that a person gave, before the work whose result goes
 * there: wrong input when not, with what to do. Directories above it are made later where
 * makes_dirs says so, and must be there otherwise. Changes nothing, but what dead processes have
 * left there goes. */
tr_status tri_check_output(const char *path, bool makes_dirs, tr_error *err);

/* A file that appears whole or not at all: begin, write any number of times, then commit or abort.
 * Until commit the bytes are under a hidden temporary name in the same directory. When write or
 * commit fails the temporary is gone, the file that was there before is untouched, and the struct
 * may be dropped; abort after a failure or a commit does nothing. Only where a commit fails because
 * the directory cannot be synced the new file is there, and the message says so. */
typedef struct tri_atomic_file {
    int fd; /* -1 when nothing is open */
    char *path;
    char *temporary;
} tri_atomic_file;

tr_status tri_atomic_begin(tri_atomic_file *file, const char *path, tr_error *err);
tr_status tri_atomic_write(tri_atomic_file *file, const void *data, size_t num_bytes,
                           tr_error *err);
tr_status tri_atomic_commit(tri_atomic_file *file, tr_error *err);
void tri_atomic_abort(tri_atomic_file *file);

/* The three above in one call. */
tr_status tri_file_replace(const char *path, const void *data, size_t num_bytes, tr_error *err);

/* Makes a directory and those above it; one that exists already is fine. When it fails, errno has
 * the reason. */
tr_status tri_make_dirs(const char *path, tr_error *err);

/* What was renamed or made in a directory is on the disk afterwards, where that can be had; a disk
 * that fails to is an error. */
tr_status tri_sync_dir(const char *path, tr_error *err);

bool tri_path_exists(const char *path);
bool tri_path_is_dir(const char *path);
/* Whether something is there in a directory; needs no memory, so that no is no. */
bool tri_dir_has(const char *dir, const char *name);
/* Whether a directory was listed to its end and has no such entry. False when it cannot be told. */
bool tri_dir_lacks(const char *dir, const char *name);
/* "dir/name" on the heap, or NULL when there is no memory. */
char *tri_path_join(const char *dir, const char *name);

/* Names (not paths) of the regular files in a directory, in the order of their bytes. Symbolic
 * links, hidden files and subdirectories are left out. */
typedef struct tri_file_list {
    char **name;
    size_t num;
} tri_file_list;

tr_status tri_file_list_read(tri_file_list *list, const char *dir, tr_error *err);
void tri_file_list_free(tri_file_list *list);

#endif
