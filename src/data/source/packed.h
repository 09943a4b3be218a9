/* Documents of a long run of units (bytes or tokens), packed into rows (data.pack with
 * data.task=lm).
 *
 *     row    | document 7      | document 12, from its 65th token | document 3 |  padding  |
 *     docs    0 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 2 2 2 2 2 -1 -1 -1 -1
 *
 * A document is one piece; a longer one is cut into pieces of seq_len and a rest. Pieces go into
 * rows by best-fit, the longest first, PACK_WINDOW of them at a time. What shares a row is decided
 * once, when the data is opened, so that a row stays a pure function of (seed, sample): rows of
 * training come in another order in each epoch, those held out in one that is the same for all
 * seeds, and neither is sorted by length.
 *
 * 1. Every unit of a split is in exactly one piece, and every piece in one row.
 * 2. A target is the next unit of its piece. The last of a piece has the separator after it as its
 *    target, when there is one and the document has not ended with one already.
 *
 * A piece takes 8 bytes of memory, a row as many again. */
#ifndef TRI_DATA_SOURCE_PACKED_H
#define TRI_DATA_SOURCE_PACKED_H

#include "data/source/windows.h"

typedef struct tri_packed {
    /* Copies units at .. at + num - 1 of the run; -1 stands for one that cannot be. */
    void (*copy)(const void *state, uint64_t at, uint64_t num, int32_t *out);
    int32_t separator;    /* -1: documents have none */
    bool separator_first; /* it begins documents */
    uint64_t seq_len, seed;
    uint64_t end[2];      /* of each split in the run */
    uint64_t *piece;      /* begin and length, row by row: training, then evaluation */
    size_t *row_begin;    /* of each row among the pieces; one more for the end */
    uint64_t num_rows[2]; /* by split */
    uint64_t num_documents;
    /* While documents are added: */
    const char *source; /* for messages */
    uint64_t at;        /* where the next one begins */
    uint64_t longest;   /* document so far */
    tri_split split;    /* it is of */
    size_t num, capacity, num_done;
    size_t rows, rows_capacity;
} tri_packed;

/* Begins with the splits that `windows` has. copy and the separator are the caller's to set. */
tr_status tri_packed_init(tri_packed *packed, const tri_data_config *config,
                          const tri_windows *windows, tr_error *err);
void tri_packed_fini(tri_packed *packed);

/* The document that is being added ends before unit `next`, where another begins: to be called for
 * every border, in order. One that lies in both splits is cut in two. */
tr_status tri_packed_cut(tri_packed *packed, uint64_t next, tr_error *err);
/* After the last one. */
tr_status tri_packed_end(tri_packed *packed, tr_error *err);

/* Which row a sample is, among those of its split. */
uint64_t tri_packed_number(const tri_packed *packed, tri_split split, uint64_t sample);
/* Fills the row of a sample; state is what copy gets. */
void tri_packed_row(const tri_packed *packed, const void *state, tri_split split, uint64_t sample,
                    const tri_row *row);

/* "1,412 documents, 93 rows of 128, 99.2% full, 5 more for evaluation"; returns text. */
char *tri_packed_describe(const tri_packed *packed, char *text, size_t text_size);

#endif
