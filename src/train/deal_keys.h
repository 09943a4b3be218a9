/* Which keys the ranks of context parallelism send each other, for a micro-batch of dealt rows.
 *
 * With every rank, a rank exchanges `room` slots, the same number for each pair, since the buffers
 * have the shapes of a step program; as many as needed are used, from the first on. A rank sends
 * its keys to itself as well, so that all that it sees comes from one place. Local keys are
 * numbered row after row: b * sizes[self] + j. */
#ifndef TRI_TRAIN_DEAL_KEYS_H
#define TRI_TRAIN_DEAL_KEYS_H

#include "train/deal.h"

typedef struct tri_key_exchange {
    int32_t self;
    int64_t num_rows;
    int64_t room;        /* num_rows * the largest of sizes */
    int64_t *sent, *got; /* [num_ranks], slots in use to and from each rank */
    int32_t *out;        /* [num_ranks * room], the local key that goes to rank r in slot i; -1 */
    int32_t *in;         /* [num_rows * length], the slot of `got` where the key of each token, in
                            dealt order, arrives, r * room + i; -1: self does not need it */
    int32_t *back;       /* [num_ranks * room], the inverse of `in`; -1: an unused slot */
    int32_t *sum;        /* [num_rows * sizes[self] * num_ranks], the slot of `out` in which a local
                            key goes to rank r, r * room + i; -1: rank r does not need it */
    tri_deal_runs needed; /* of the row last planned */
} tri_key_exchange;

/* On failure nothing is left to free. */
tr_status tri_key_exchange_init(tri_key_exchange *keys, const tri_deal *deal, int32_t self,
                                int64_t num_rows, tr_error *err);
void tri_key_exchange_fini(tri_key_exchange *keys);

/* span and places: num_rows times as in tri_deal_row. */
void tri_key_exchange_plan(tri_key_exchange *keys, const tri_deal *deal, const int32_t (*span)[2],
                           const int32_t *places);

#endif
