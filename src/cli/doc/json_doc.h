/* What --json prints: one document, made member by member.
 *
 * Keys are snake_case with their unit in the name (bytes, seconds, ms, share), numbers are numbers,
 * what is not known is null. docs/json.md lists them; a key that is there keeps its meaning. */
#ifndef TRI_CLI_JSON_DOC_H
#define TRI_CLI_JSON_DOC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/text.h"

/* An object, which tri_doc_print or tri_doc_add takes. Memory that runs out on the way is told
 * there. */
json_t *tri_doc_begin(void);

void tri_doc_number(json_t *object, const char *key, double value); /* not finite: null */
void tri_doc_count(json_t *object, const char *key, int64_t value);
void tri_doc_count_from(json_t *object, const char *key, int64_t value,
                        int64_t least); /* or null */
void tri_doc_flag(json_t *object, const char *key, bool value);
void tri_doc_null(json_t *object, const char *key);
/* NULL: null. A name need not be UTF-8, but JSON is. */
void tri_doc_text(json_t *object, const char *key, const char *value);
void tri_doc_text_item(json_t *list, const char *value);
/* What was added belongs to the object or list that it was added to. */
json_t *tri_doc_object(json_t *object, const char *key);
json_t *tri_doc_list(json_t *object, const char *key);
json_t *tri_doc_item(json_t *list); /* an object at the end of a list */

/* On a line of its own. Both free it. */
tr_status tri_doc_print(json_t *doc, FILE *file, tr_error *err);
tr_status tri_doc_add(json_t *doc, tri_text *text, tr_error *err);

#endif
