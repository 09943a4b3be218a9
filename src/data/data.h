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
 *   tokens       a directory of `trireme data prepare`, a directory of shards, a shard, a .bin of
 *                llm.c
 *   text         a file, or a directory whose regular files are put one after the other in the
 *                order of their names (links, hidden files and subdirectories are left out); read
 *                as plain bytes, or, with a tokenizer, prepared once and then read as tokens
 *   several      "a:0.7,b:0.3": each sample comes from one of them, in these proportions
 *   entries      JSONL for a task: labelled texts, instructions; held in memory */
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
struct tri_prepare_progress;

typedef struct tri_data_config {
    const char *source;    /* data.source */
    int64_t seq_len;       /* data.seq_len: tokens in a row */
    int64_t vocab;         /* model.vocab; 0 where the source may choose (text: 256) */
    uint64_t seed;         /* run.seed */
    double eval_fraction;  /* data.eval_fraction: this part of a text, from its end, is kept for
                              evaluation, but never less than one window; 0 keeps nothing. Tokens
                              that were prepared with a part for evaluation keep that one */
    bool mask_documents;   /* data.mask_documents: rows say which document each token is of, and
                              positions begin again with each */
    const char *tokenizer; /* data.tokenizer; NULL or "": that of prepared tokens, or bytes */
    const char *field;     /* data.field: of JSONL; NULL: "text" */
    const char *cache;     /* text that is prepared goes to the subdirectory data of this */
    int num_threads;       /* to prepare with; 0: one for each core */
    void (*progress)(void *context, const struct tri_prepare_progress *now); /* or NULL */
    void *progress_context;
    uint64_t fingerprint; /* of the tokenizer, for sources; 0: not known. Set by tri_data_open */
    tri_data_task task;   /* data.task */
    /* As the settings data.pair_field ... : */
    const char *pair_field, *label_field, *labels;
    const char *answer_field, *template, *template_input;
    bool pack;
    tri_too_long too_long;
    double mask_fraction;
    int64_t num_labels; /* model.num_labels, for made-up rows with labels */
    int64_t samples;    /* data.samples: how many of these; 0: no end of them */
} tri_data_config;

/* The first open of a text with a tokenizer prepares it; others, of any process, wait and use what
 * it made for as long as the files, the tokenizer and the field stay the same. */
tr_status tri_data_open(const tri_data_config *config, tri_data **data, tr_error *err);
void tri_data_close(tri_data *data);

/* Only the preparing: of every text that tri_data_open would prepare. */
tr_status tri_data_prepare(const tri_data_config *config, tr_error *err);

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

/* Whether all rows so far were right. A damaged file of tokens is noticed when its tokens are used:
 * ask after filling a batch, before computing with it. */
tr_status tri_data_problem(const tri_data *data, tr_error *err);

/* The windows of one epoch; 0 for a split that was not asked for. */
#define TRI_DATA_ENDLESS INT64_MAX
int64_t tri_data_num_windows(const tri_data *data, tri_split split);

/* The samples of an epoch of training, in which each window comes once; TRI_DATA_ENDLESS where
 * there are no epochs: synthetic tokens, several sources with weights. */
int64_t tri_data_epoch_rows(const tri_data *data);
/* Which window of the epoch a sample is: each is one sample of every epoch. */
uint64_t tri_data_window(const tri_data *data, tri_split split, uint64_t sample);

/* Tokens are in [0, this): the smallest model.vocab that fits. */
int64_t tri_data_vocab_needed(const tri_data *data);

/* Where rows have a label each (row.num_targets is 1), how many there are; otherwise 0. */
int64_t tri_data_num_labels(const tri_data *data);

/* "268 KiB of text in 12 files, bytes, 1,980 windows of 128, 103 more for evaluation"; returns
 * text. */
char *tri_data_describe(const tri_data *data, char *text, size_t text_size);

/* Whether a source, or a part of a list of them, is tokens already. */
bool tri_data_has_tokens(const char *source);

/* The vocabulary that a source needs, without preparing anything; 0: any will do. */
tr_status tri_data_vocab(const tri_data_config *config, int64_t *vocab, tr_error *err);

/* The tokenizer that made the tokens; NULL when they are plain bytes, or nobody knows. Text must
 * have been prepared by tri_data_open. */
struct tri_tokenizer;
tr_status tri_data_tokenizer(const tri_data_config *config, struct tri_tokenizer **tokenizer,
                             tr_error *err);

#endif
