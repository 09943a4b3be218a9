/* Context parallelism, on the host: every rank reads whole rows, and gives its program the tokens
 * that are dealt to it.
 *
 * Ranks of a ring get the tokens that deal.h says, each group of ranks that divide heads the same
 * ones, of which each member has a run. All compute the same map, so nobody has to tell. */
#ifndef TRI_TRAIN_CONTEXT_H
#define TRI_TRAIN_CONTEXT_H

#include "compile/compile.h"
#include "data/data.h"
#include "train/deal_keys.h"

typedef struct tri_context {
    tri_deal deal;         /* over the ranks of a ring */
    int64_t begin, size;   /* this rank's tokens in dealt order */
    tri_row row;           /* all of a row, as it is read; docs are NULL where nobody asks */
    int32_t (*span)[2];    /* of the rows of a micro-batch, what each place sees; NULL: its row */
    int32_t *places;       /* of those rows, the places of the tokens in dealt order */
    tri_key_exchange keys; /* which keys go where, for those rows */
    bool has_keys;         /* they go by that plan */
    int32_t *numbers;      /* the memory of rows, spans and places */
} tri_context;

/* NULL in *context: tokens are not divided. */
tr_status tri_context_create(const tri_compile_config *config, tri_deal_kind kind,
                             tri_context **context, tr_error *err);
void tri_context_destroy(tri_context *context);

/* Deals out the row that has been read, as row r of its micro-batch. */
void tri_context_deal(tri_context *context, int64_t r);
/* This rank's share of an array of that row: nothing where there is no memory for it. */
void tri_context_take(const tri_context *context, int64_t r, const int32_t *of_row, int32_t *to);
/* What every rank has of all tokens, in dealt order: their places, and what they see. */
void tri_context_give_places(const tri_context *context, int64_t r, int32_t *places, int32_t *span);

/* The plan of the keys of a micro-batch, when all of its rows are dealt. */
typedef struct tri_key_lists {
    int32_t *sent, *got, *out, *in, *back, *sum; /* as in tri_key_exchange; NULL: not asked for */
} tri_key_lists;
void tri_context_give_keys(tri_context *context, const tri_key_lists *to);

#endif
