/* Prompt templates: text with {places} for the fields of an entry.
 *
 *     Question: {question}\nAnswer: {output}
 *
 * Everything before the answer's place is the prompt; the answer, and what follows it, is what the
 * model learns to write. "{{" and "}}" are braces; \n, \t and \\ stand for a line end, a tab and a
 * backslash, for settings given on a command line. */
#ifndef TRI_DATA_SOURCE_TEMPLATE_H
#define TRI_DATA_SOURCE_TEMPLATE_H

#include "data/source/entries.h"
#include "data/unicode/unicode.h"

typedef struct tri_template tri_template;

/* key is the setting that it comes from, for messages; answer the name of the answer's field. */
tr_status tri_template_parse(const char *key, const char *text, const char *answer,
                             tri_template **out, tr_error *err);
void tri_template_destroy(tri_template *out); /* NULL is fine */

/* Appends. A field that the entry lacks is an error, except "input", which may be absent. */
tr_status tri_template_render(const tri_template *in, const tri_entry *entry, tri_bytes *prompt,
                              tri_bytes *answer, tr_error *err);

/* The two forms that data.template=alpaca stands for. */
extern const char tri_template_alpaca[], tri_template_alpaca_input[];

#endif
