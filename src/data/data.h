/* Rows of tokens to train on.
 *
 * A row is a pure function of (seed, sample), where sample = step * batch + row of the batch. That
 * is all the state there is: the data cursor is one integer, and every layout and every resumed
 * run sees the same rows in the same order. An opened tri_data never changes, so any number of
 * threads may ask it for rows.
 *
 * Sources:
 *   "synthetic"  tokens of a Zipf distribution, half of which follow a fixed map of the token
 *                before; nothing needs a file, and there is something to learn. Where rows
 *                have labels: words of which some hint at one (synthetic_labels.c)
 *   a path       a text file, or a directory whose regular files are put one after the other in
 *                the order of their names (links, hidden files and subdirectories are left out),
 *                read as plain bytes */
#ifndef TRI_DATA_DATA_H
#define TRI_DATA_DATA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_data tri_data;

typedef enum tri_split { TRI_SPLIT_TRAIN, TRI_SPLIT_EVAL } tri_split;

/* What a row is made for. */
typedef enum tri_data_task {
    TRI_DATA_LM,       /* the token after each token */
    TRI_DATA_MLM,      /* tokens that were masked */
    TRI_DATA_CLASSIFY, /* a label for each row */
    TRI_DATA_INSTRUCT  /* the answer to a prompt */
} tri_data_task;

/* What becomes of an example that is longer than a row. */
typedef enum tri_too_long { TRI_TOO_LONG_CUT, TRI_TOO_LONG_DROP, TRI_TOO_LONG_REFUSE } tri_too_long;

typedef struct tri_data_config {
    const char *source;    /* data.source */
    int64_t seq_len;       /* data.seq_len: tokens in a row */
    int64_t vocab;         /* model.vocab; 0 where the source may choose (text: 256) */
    uint64_t seed;         /* run.seed */
    double eval_fraction;  /* data.eval_fraction: this part of a text, from its end, is kept for
                              evaluation, but never less than one window; 0 keeps nothing */
    tri_data_task task;    /* data.task */
    const char *tokenizer; /* data.tokenizer; NULL or "": bytes */
    const char *field;     /* data.field ... : as the settings of these names */
    const char *pair_field, *label_field, *labels;
    const char *answer_field, *template, *template_input;
    bool pack;
    tri_too_long too_long;
    double mask_fraction;
    int64_t num_labels; /* model.num_labels, for made-up rows with labels */
    int64_t samples;    /* data.samples: how many of these; 0: no end of them */
} tri_data_config;

tr_status tri_data_open(const tri_data_config *config, tri_data **data, tr_error *err);
void tri_data_close(tri_data *data);

/* One row of a batch. The caller points at what its program reads, NULL for the rest, and presets
 * it: tokens and types 0, targets -1, positions 0, 1, 2 ..., docs 0. A source overwrites what it
 * knows better. */
typedef struct tri_row {
    int32_t *tokens;     /* [seq_len] */
    int32_t *targets;    /* [num_targets], negative: no loss here */
    int32_t *positions;  /* [seq_len] */
    int32_t *docs;       /* [seq_len]: tokens of equal ids see each other; negative: padding */
    int32_t *types;      /* [seq_len]: kinds of token (bert's first and second sentence) */
    float *x, *target;   /* [dim], for models without tokens; the arrays above are then NULL */
    int64_t num_targets; /* seq_len, or 1 where a row as a whole has a label */
} tri_row;

/* Fills a row: for plain text seq_len tokens and as targets[i] the token after tokens[i]. Training
 * rows go through all windows once in each epoch, in an order and with borders that differ from
 * epoch to epoch; evaluation rows go through theirs from first to last and begin again. The split
 * must not be empty. */
void tri_data_row(const tri_data *data, tri_split split, uint64_t sample, const tri_row *row);

/* The windows of one epoch; 0 for a split that was not asked for. */
#define TRI_DATA_ENDLESS INT64_MAX
int64_t tri_data_num_windows(const tri_data *data, tri_split split);

/* Which window of the epoch a sample is: each is one sample of every epoch. */
uint64_t tri_data_window(const tri_data *data, tri_split split, uint64_t sample);

/* Tokens are in [0, this): the smallest model.vocab that fits. */
int64_t tri_data_vocab_needed(const tri_data *data);

/* Where rows have a label each (row.num_targets is 1), how many there are; otherwise 0. */
int64_t tri_data_num_labels(const tri_data *data);

/* "268 KiB of text in 12 files, bytes, 1,980 windows of 128, 103 more for evaluation"; returns
 * text. */
char *tri_data_describe(const tri_data *data, char *text, size_t text_size);

#endif
