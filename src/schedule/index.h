/* Where everything is: for each kind, chunk and micro-batch the action, as a number over all ranks
 * (first[rank] + place in the rank's list). Checker, machine and simulator look things up here. */
#ifndef TRI_SCHEDULE_INDEX_H
#define TRI_SCHEDULE_INDEX_H

#include "schedule/schedule.h"

#define TRI_NO_ACTION UINT32_MAX

typedef struct tri_schedule_index {
    const tri_schedule *schedule;
    uint32_t *first; /* [num_ranks + 1] */
    uint32_t num_actions;
    /* at[kind][chunk * num_microbatches + micro-batch]; of doubles the first. B stands under I as
     * well, so that I finds whatever makes the gradient of a chunk's input. U is not here. */
    uint32_t *at[TRI_NUM_ALL_ACTIONS];
} tri_schedule_index;

/* The schedule must outlive the index. Actions out of range are an error. */
tr_status tri_schedule_index_init(tri_schedule_index *index, const tri_schedule *schedule,
                                  tr_error *err);
void tri_schedule_index_fini(tri_schedule_index *index);

static inline uint32_t tri_index_find(const tri_schedule_index *index, tri_action_kind kind,
                                      uint32_t chunk, uint32_t microbatch)
{
    return index->at[kind][(size_t)chunk * index->schedule->num_microbatches + microbatch];
}

/* "rank 1's 1F0 (action 3)", counted from 1. Returns out. */
char *tri_index_text(const tri_schedule_index *index, uint32_t action, char out[96]);

/* The rank at the other end of a message. */
uint32_t tri_message_peer(const tri_schedule *schedule, const tri_action *message);
/* The other half of a message: the kind and chunk of the receive for a send and the reverse. */
tri_action tri_message_mate(const tri_action *message);

#endif
