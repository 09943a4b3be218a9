/* The labels of classified data: names and their numbers.
 *
 * In a file a label is a text or a whole number. Texts are numbered in the order of their bytes.
 * Numbers are what they are: with 0, 1 and 4 in the data there are five labels. The list of names
 * is the setting data.labels, so it is written down with the run, and other data is read with the
 * same numbers. */
#ifndef TRI_DATA_SOURCE_LABELS_H
#define TRI_DATA_SOURCE_LABELS_H

#include "data/source/entries.h"
#include "data/tokenizer/bpe_words.h"

enum { TRI_MAX_LABELS = 100000 };

/* name[i] is label i; its count is how many examples have it. */
typedef struct tri_labels {
    tri_words names;
} tri_labels;

/* From "negative;positive". Names must differ. */
tr_status tri_labels_parse(const char *text, tri_labels *labels, tr_error *err);
void tri_labels_fini(tri_labels *labels);

/* The label of an entry, counted; one that is not in the list is an error. */
tr_status tri_labels_read(tri_labels *labels, const tri_entry *entry, const char *field,
                          int32_t *label, tr_error *err);

/* Goes through a source and makes the list of its labels; the caller frees the text. */
tr_status tri_labels_scan(const char *source, const char *field, char **text, tr_error *err);

/* "2 labels: negative 52%, positive 48%"; returns text. */
char *tri_labels_describe(const tri_labels *labels, char *text, size_t text_size);

#endif
