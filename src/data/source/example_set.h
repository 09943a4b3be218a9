/* Examples that were tokenized when the data was opened, and the rows that are made of them.
 *
 * Which examples are held out does not depend on the seed, nor on their order in the file being
 * without a pattern (files are often sorted by label): they are taken from all over it. Rows of
 * training come in another order in each epoch.
 *
 * A row is one example and padding; or, packed, as many as fit, each a document of its own. What
 * goes into a row together is decided once, when the data is opened, so that a row stays a pure
 * function of its number. */
#ifndef TRI_DATA_SOURCE_EXAMPLE_SET_H
#define TRI_DATA_SOURCE_EXAMPLE_SET_H

#include "data/source/entries.h"
#include "data/source/pack.h"
#include "data/source/source.h"
#include "data/tokenizer/tokenizer.h"

typedef struct tri_example {
    uint64_t begin; /* of its tokens among all */
    int32_t num;    /* of its tokens */
    int32_t places; /* it takes in a row */
    int32_t answer; /* the first of its tokens that is learned (instruct) */
    int32_t label;  /* (classify) */
} tri_example;

typedef struct tri_example_set {
    tri_tokenizer *tokenizer; /* NULL once the rows are made */
    int64_t vocab;            /* its size */
    const char *source;       /* of the configuration, for messages while opening */
    tri_ids ids;              /* of all examples, one after the other */
    uint8_t *types;           /* of all, or NULL: all 0 */
    size_t num_types, types_capacity;
    tri_example *item;
    size_t num, capacity;
    int64_t num_files, num_cut, num_dropped;
    int64_t seq_len;
    uint64_t seed;
    uint32_t *order;      /* the examples, row by row: those held out, then the others */
    size_t *row_begin;    /* of each row in order; one more for the end */
    uint64_t num_rows[2]; /* by split */
} tri_example_set;

/* Opens the tokenizer (config->tokenizer; "" is bytes). */
tr_status tri_example_set_init(tri_example_set *set, const tri_data_config *config, tr_error *err);
void tri_example_set_fini(tri_example_set *set);

/* Adds an example whose tokens are the last num of set->ids. */
tr_status tri_example_set_add(tri_example_set *set, const tri_example *example, tr_error *err);

/* After the last one: makes the splits and the rows, and lets go of what is not needed for them. */
tr_status tri_example_set_rows(tri_example_set *set, const tri_data_config *config, tr_error *err);

/* Which row a sample is, among those of its split. */
uint64_t tri_example_set_window(const tri_example_set *set, tri_split split, uint64_t sample);
/* The examples of a row: *num of them, as indices. */
const uint32_t *tri_example_set_row(const tri_example_set *set, tri_split split, uint64_t window,
                                    size_t *num);

/* ", 3 cut, 1 dropped, 93 rows of 128, 5 more for evaluation"; returns text. */
char *tri_example_set_describe(const tri_example_set *set, char *text, size_t text_size);

#endif
