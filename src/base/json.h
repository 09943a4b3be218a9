/* Reading JSON texts. The library that parses them reports a lack of memory as bad syntax in some
 * places, and in others leaves a byte out of a string without a word. Here that is an error of its
 * own, so that a good file is neither called damaged nor read wrongly. */
#ifndef TRI_BASE_JSON_H
#define TRI_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* flags as of json_loadb. TR_ERROR_INPUT: it is not JSON; the message says where, and why (it may
 * be NULL) has the place for one that knows more of the text. TR_ERROR_RUNTIME: no memory. *root is
 * NULL then. name stands for the text in messages. */
tr_status tri_json_load(const char *name, const char *text, size_t num_bytes, size_t flags,
                        json_t **root, json_error_t *why, tr_error *err);
/* The same of a whole file, whose errors may be those of tri_file_read, too: then why->line is 0.
 */
tr_status tri_json_load_file(const char *path, size_t flags, json_t **root, json_error_t *why,
                             tr_error *err);

/* For values that are built member by member: what there was no memory for is missing, and a call
 * between the two need not look. Of each thread for itself. */
void tri_json_begin(void);
bool tri_json_built(void); /* false: memory ran out since tri_json_begin */
/* json_dumps of what was built, on the heap: NULL when memory ran out since tri_json_begin, or
 * here.
 */
char *tri_json_dump(const json_t *value, size_t flags);

#endif
