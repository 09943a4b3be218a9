/* The end of a file of JSON lines that grows: its last lines, and those that are new. */
#ifndef TRI_CLI_WATCH_TAIL_H
#define TRI_CLI_WATCH_TAIL_H

#include <jansson.h>

#include "base/text.h"

typedef struct tri_tail {
    int64_t inode, offset; /* how far it was read; inode 0: not yet */
} tri_tail;

/* Takes what is there as read. */
void tri_tail_begin(tri_tail *tail, const char *dir, const char *name);
/* Adds the whole lines that are new, at most so many bytes of them: when there are more, the last
 * ones. A file that was cut or replaced begins anew. Returns whether there are any. */
bool tri_tail_new(tri_tail *tail, const char *dir, const char *name, size_t most, tri_text *text);
/* The last lines of a file that are objects, at most so many, in their order; none when there is no
 * such file. A list that the caller owns, or NULL without memory. */
json_t *tri_tail_last(const char *dir, const char *name, size_t most);

#endif
