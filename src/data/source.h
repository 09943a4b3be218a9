/* What a source of rows provides. A new source is one file that fills this table, and one line in
 * tri_data_open. */
#ifndef TRI_DATA_SOURCE_H
#define TRI_DATA_SOURCE_H

#include "data/data.h"

typedef struct tri_data_source {
    void *state;
    int64_t vocab_needed;
    int64_t num_labels; /* 0: rows have a target for every token */
    void (*row)(const void *state, tri_split split, uint64_t sample, const tri_row *row);
    int64_t (*num_windows)(const void *state, tri_split split);
    /* Which of them a sample is; NULL where samples are all different. */
    uint64_t (*window)(const void *state, tri_split split, uint64_t sample);
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

/* Where a pseudo-random reordering of 0 .. num - 1, one per (seed, epoch), puts i. A bijection
 * that needs no table. */
uint64_t tri_data_shuffle(uint64_t seed, uint64_t epoch, uint64_t num, uint64_t i);

/* "1,980"; returns text. */
char *tri_data_grouped(int64_t value, char text[32]);

#endif
