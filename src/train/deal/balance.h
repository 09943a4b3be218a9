/* TRI_DEAL_BALANCED, for train/deal.c alone. */
#ifndef TRI_TRAIN_DEAL_BALANCE_H
#define TRI_TRAIN_DEAL_BALANCE_H

#include "train/deal.h"

typedef struct tri_deal_table tri_deal_table;

/* NULL: no memory. */
tri_deal_table *tri_deal_table_create(int32_t num_ranks, const int64_t *sizes, int64_t length);
void tri_deal_table_destroy(tri_deal_table *table);
/* places as in tri_deal_row. */
void tri_deal_balance(const tri_deal *deal, const int32_t (*span)[2], int32_t *places);

#endif
