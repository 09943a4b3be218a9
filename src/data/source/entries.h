/* The entries of labelled data: JSON objects, wherever they stand.
 *
 * A source is a file or a directory. A file is JSONL (one object a line) or one JSON list of
 * objects, as some data sets are published; plain, gzip or zstd. Of a directory, the files that are
 * JSONL by their name count, in the order of their names. */
#ifndef TRI_DATA_SOURCE_ENTRIES_H
#define TRI_DATA_SOURCE_ENTRIES_H

#include "data/lines.h"
#include "data/unicode/unicode.h"

typedef struct tri_entry {
    const char *path;
    int64_t number; /* its line; or, in a list, which one it is, from 1 */
    bool in_list;
    const json_t *object;
} tri_entry;

/* Called for each entry, in order; a failure ends the walk. */
typedef tr_status (*tri_entry_fn)(void *context, const tri_entry *entry, tr_error *err);

/* num_files (may be NULL) is how many there were. A source without entries is an error. */
tr_status tri_entries_each(const char *source, tri_entry_fn fn, void *context, int64_t *num_files,
                           tr_error *err);

/* A member that is a text. One that is absent or null gives "" when it is optional; otherwise the
 * error tells what members there are, and to set the setting `key`. */
tr_status tri_entry_text(const tri_entry *entry, const char *field, const char *key, bool optional,
                         const char **text, size_t *num_bytes, tr_error *err);

/* tri_fail with the place of the entry before the message: "train.jsonl, line 12: ..." */
tr_status tri_entry_fail(const tri_entry *entry, tr_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a message that is in err already. */
tr_status tri_entry_prefix(const tri_entry *entry, tr_status status, tr_error *err);

/* Calls fn for every file of a source, a directory's in order; jsonl_only leaves out others there.
 * Finding none is an error. */
typedef tr_status (*tri_file_fn)(void *context, const char *path, tr_error *err);
tr_status tri_files_each(const char *source, bool jsonl_only, tri_file_fn fn, void *context,
                         tr_error *err);

/* A whole file, unpacked; the caller frees it with tri_bytes_fini. */
tr_status tri_file_text(const char *path, tri_bytes *text, tr_error *err);

#endif
