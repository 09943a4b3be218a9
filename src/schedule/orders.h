/* The rows of the table, and what several orders share. */
#ifndef TRI_SCHEDULE_ORDERS_H
#define TRI_SCHEDULE_ORDERS_H

#include <math.h>

#include "schedule/schedule.h"

extern const tri_order tri_order_gpipe, tri_order_1f1b, tri_order_interleaved, tri_order_1f1b_v,
    tri_order_zb_h1, tri_order_zb_h2, tri_order_zb_v, tri_order_v_half, tri_order_v_min,
    tri_order_chimera, tri_order_dualpipe, tri_order_dualpipev, tri_order_gems, tri_order_pipedream,
    tri_order_pipedream_2bw;

/* Forward and whole backward of one micro-batch through all of a rank's chunks. */
static inline double tri_rank_work(const tri_schedule *s, const tri_action_costs *costs)
{
    return s->chunks_per_rank * (costs->kind[TRI_ACTION_F] + costs->kind[TRI_ACTION_B]);
}

static inline tri_action tri_action_of(tri_action_kind kind, uint32_t chunk, uint32_t microbatch)
{
    return (tri_action){.kind = kind, .chunk = chunk, .microbatch = microbatch};
}

/* one_f_one_b.c: the alternation that PipeDream, 2BW and 1F1B have in common; update_every 0 adds
 * no updates. */
tr_status tri_emit_1f1b(tri_schedule *schedule, uint32_t update_every, tr_error *err);

#endif
