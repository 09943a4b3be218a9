/* Which tokens of a row each rank of context parallelism gets.
 *
 * A row of `length` tokens is cut over num_ranks ranks. Each gets exactly as many as `sizes` says,
 * but which ones is dealt out anew for every row, so that all have equally much attention to
 * compute: pairs of a query and a key that it sees, called area. The map is a pure function of its
 * arguments, in integers, so every rank finds the same one without asking the others.
 *
 * A token has a place in the row, [0, length), and a position in dealt order: those of rank 0 come
 * first, and the places of a rank ascend. A query at place t sees the keys of its document, without
 * those after t (causal) and those before t + 1 - window. */
#ifndef TRI_TRAIN_DEAL_H
#define TRI_TRAIN_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "trireme/status.h"

typedef enum tri_deal_kind {
    TRI_DEAL_PLAIN,   /* a contiguous run for each rank */
    TRI_DEAL_ZIGZAG,  /* a run from the front and one from the back: equal areas of one document */
    TRI_DEAL_BALANCED /* equal areas of any documents, which stay on few ranks, in runs of at least
                       * 128 tokens; of fewer where a rank has less than eight times as many */
} tri_deal_kind;

typedef struct tri_deal {
    tri_deal_kind kind;
    int32_t num_ranks;
    int64_t length; /* tokens of a row */
    int64_t *sizes; /* [num_ranks], tokens of each rank; their sum is length */
    bool causal;
    int32_t window;               /* 0: all */
    struct tri_deal_table *table; /* scratch of TRI_DEAL_BALANCED */
} tri_deal;

/* Runs of places, ascending for each rank: those of rank r are run[first[r]] to before
 * run[first[r + 1]], each [begin, end). */
typedef struct tri_deal_runs {
    int32_t (*run)[2]; /* room for `length` */
    int32_t *first;    /* [num_ranks + 1] */
} tri_deal_runs;

/* Copies sizes. On failure nothing is left to free. */
tr_status tri_deal_init(tri_deal *deal, tri_deal_kind kind, int32_t num_ranks, const int64_t *sizes,
                        bool causal, int32_t window, tr_error *err);
void tri_deal_fini(tri_deal *deal);

/* From documents to spans, the places [begin, end) that each query sees before causal and window. A
 * document is a run of equal ids; a negative one is padding, which sees nothing and which nobody
 * sees: an empty span. docs NULL: all one document. */
void tri_deal_spans(const int32_t *docs, int64_t length, int32_t (*span)[2]);

/* The places of the tokens in dealt order. Spans are those of tri_deal_spans; NULL: all one
 * document. No memory is allocated; a deal is for one thread at a time. */
void tri_deal_row(tri_deal *deal, const int32_t (*span)[2], int32_t *places);

/* Area of the queries at places [begin, end). */
int64_t tri_deal_area(const tri_deal *deal, const int32_t (*span)[2], int64_t begin, int64_t end);
/* Area of each rank of a dealt row. */
void tri_deal_areas(const tri_deal *deal, const int32_t (*span)[2], const int32_t *places,
                    int64_t *areas);

/* The end of the run of consecutive places that begins at position i; it goes no further than
 * `end`. */
int64_t tri_deal_run_end(const int32_t *places, int64_t i, int64_t end);
/* The places of the keys that some query of each rank sees. */
void tri_deal_needed(const tri_deal *deal, const int32_t (*span)[2], const int32_t *places,
                     tri_deal_runs *needed);

#endif
