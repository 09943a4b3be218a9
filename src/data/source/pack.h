/* Several pieces in a row, side by side: examples, or documents. Each sees itself only, and its
 * positions begin at 0. */
#ifndef TRI_DATA_SOURCE_PACK_H
#define TRI_DATA_SOURCE_PACK_H

#include "data/data.h"

/* Puts the pieces order[0 .. num), of which order[i] takes places[i] places, into as few rows of
 * seq_len as best-fit finds, and orders them by row. begin gets where each row begins, its first
 * entry being `base`, and must have room for num of them. Returns the number of rows, or 0 without
 * memory. */
size_t tri_pack(const int32_t *places, uint32_t *order, size_t num, int64_t seq_len, size_t base,
                size_t *begin);

/* Writes positions and document ids of `places` places from `at` on, for the which-th piece. */
void tri_pack_places(const tri_row *row, int64_t at, int64_t places, int32_t which);
/* The rest of a row is padding. */
void tri_pack_padding(const tri_row *row, int64_t at, int64_t seq_len);

#endif
