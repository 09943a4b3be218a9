/* A file that grows by whole records, whatever the disk does: what is put is gathered in memory and
 * written behind the last whole record. A write that fails, or is cut short, loses the rows it was
 * to write, which are counted, and the next one begins at the same place. So a file that lacks rows
 * is still one that its readers understand. Used by the thread of train/log/logs.c alone. */
#ifndef TRI_TRAIN_LOG_LOG_FILE_H
#define TRI_TRAIN_LOG_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"

typedef struct tri_log_file {
    char *path; /* owned */
    int fd;     /* -1: it is not open */
    off_t size; /* of what is whole */
    bool torn;  /* there may be more behind it */
    tri_text pending;
    int64_t pending_rows;
    int64_t lost_rows;
    int reason; /* why the first write failed, an errno, or 0 */
} tri_log_file;

void tri_log_file_init(tri_log_file *file);
void tri_log_file_fini(tri_log_file *file);

/* Opens a regular file of any length, or makes it; 0 or an errno. size is its length. */
int tri_log_file_open(tri_log_file *file, const char *path);
/* What is behind so many bytes goes; 0 or an errno. */
int tri_log_file_cut(tri_log_file *file, off_t size);
/* Where the next byte will stand. */
off_t tri_log_file_end(const tri_log_file *file);
void tri_log_file_put(tri_log_file *file, const void *data, size_t num_bytes);
void tri_log_file_flush(tri_log_file *file);
/* What is pending, and the rows in it, are lost. */
void tri_log_file_drop(tri_log_file *file, int reason);

#endif
