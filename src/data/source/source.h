/* What a source of rows provides. A new source is one file that fills this table, and one line in
 * tri_data_open. */
#ifndef TRI_DATA_SOURCE_SOURCE_H
#define TRI_DATA_SOURCE_SOURCE_H

#include "data/data.h"

typedef struct tri_data_source {
    void *state;
    int64_t vocab_needed;
    bool mixed;           /* samples do not go through the windows one by one: no epochs */
    int64_t num_labels;   /* 0: rows have a target for every token */
    uint64_t fingerprint; /* of the tokenizer that made the tokens; 0: none, or not known */
    void (*row)(const void *state, tri_split split, uint64_t sample, const tri_row *row);
    int64_t (*num_windows)(const void *state, tri_split split);
    /* Which of them a sample is; NULL where samples are all different. */
    uint64_t (*window)(const void *state, tri_split split, uint64_t sample);
    /* What was wrong with a row that was asked for; NULL for sources where nothing can be. */
    tr_status (*problem)(const void *state, tr_error *err);
    void (*describe)(const void *state, char *text, size_t text_size);
    void (*destroy)(void *state);
} tri_data_source;

/* config has been checked by tri_data_open: a source, seq_len >= 1, 0 <= eval_fraction < 1. */
tr_status tri_synthetic_source_create(const tri_data_config *config, tri_data_source *source,
                                      tr_error *err);
tr_status tri_synthetic_labels_create(const tri_data_config *config, tri_data_source *source,
                                      tr_error *err);
tr_status tri_text_source_create(const tri_data_config *config, tri_data_source *source,
                                 tr_error *err);
tr_status tri_classify_source_create(const tri_data_config *config, tri_data_source *source,
                                     tr_error *err);
tr_status tri_instruct_source_create(const tri_data_config *config, tri_data_source *source,
                                     tr_error *err);
tr_status tri_mlm_source_create(const tri_data_config *config, tri_data_source *source,
                                tr_error *err);

tr_status tri_token_source_create(const tri_data_config *config, tri_data_source *source,
                                  tr_error *err);
/* Several sources with weights; config->source is the list. */
tr_status tri_blend_source_create(const tri_data_config *config, tri_data_source *source,
                                  tr_error *err);
/* One of the above but a blend, by what config->source is. */
tr_status tri_single_source_create(const tri_data_config *config, tri_data_source *source,
                                   tr_error *err);

/* Writes docs and positions of a row from its first token to its last: positions begin at 0 again
 * where the document number changes. */
typedef struct tri_documents {
    const tri_row *row;
    bool on; /* off: the row keeps what the caller preset */
    int32_t document;
    uint64_t begin;
} tri_documents;

static inline void tri_documents_put(tri_documents *d, uint64_t i, int32_t document)
{
    if (!d->on)
        return;
    if (document != d->document)
        d->begin = i;
    d->document = document;
    if (d->row->docs)
        d->row->docs[i] = document;
    if (d->row->positions)
        d->row->positions[i] = (int32_t)(i - d->begin);
}

/* Where a pseudo-random reordering of 0 .. num - 1, one per (seed, epoch), puts i. A bijection
 * that needs no table. */
uint64_t tri_data_shuffle(uint64_t seed, uint64_t epoch, uint64_t num, uint64_t i);

#endif
