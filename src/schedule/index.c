#include "schedule/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr_status number(tri_schedule_index *index, const tri_schedule *s, tr_error *err)
{
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        for (size_t i = 0; i < s->ranks[r].count; i++) {
            const tri_action *a = &s->ranks[r].actions[i];
            if (a->chunk >= s->num_chunks || a->microbatch >= s->num_microbatches)
                return tri_fail(
                    err, TR_ERROR_INPUT,
                    "rank %u's action %zu is for chunk %u and micro-batch %u, but there "
                    "are %u chunks and %u micro-batches",
                    r, i + 1, a->chunk, a->microbatch, s->num_chunks, s->num_microbatches);
            size_t cell = (size_t)a->chunk * s->num_microbatches + a->microbatch;
            uint32_t id = index->first[r] + (uint32_t)i;
            tri_action_kind also = a->kind == TRI_ACTION_B ? TRI_ACTION_I : a->kind;
            if (index->at[a->kind][cell] == TRI_NO_ACTION)
                index->at[a->kind][cell] = id;
            if (index->at[also][cell] == TRI_NO_ACTION)
                index->at[also][cell] = id;
        }
    }
    return TR_OK;
}

tr_status tri_schedule_index_init(tri_schedule_index *index, const tri_schedule *s, tr_error *err)
{
    *index = (tri_schedule_index){.schedule = s};
    size_t cells = (size_t)s->num_chunks * s->num_microbatches;
    index->first = calloc((size_t)s->num_ranks + 1, sizeof *index->first);
    bool failed = !index->first;
    for (int k = 0; k < TRI_NUM_ALL_ACTIONS; k++) {
        index->at[k] = malloc(cells * sizeof *index->at[k]);
        failed = failed || !index->at[k];
    }
    if (failed) {
        tri_schedule_index_fini(index);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    }
    for (int k = 0; k < TRI_NUM_ALL_ACTIONS; k++)
        memset(index->at[k], 0xff, cells * sizeof *index->at[k]);
    for (uint32_t r = 0; r < s->num_ranks; r++)
        index->first[r + 1] = index->first[r] + (uint32_t)s->ranks[r].count;
    index->num_actions = index->first[s->num_ranks];
    tr_status status = number(index, s, err);
    if (status != TR_OK)
        tri_schedule_index_fini(index);
    return status;
}

void tri_schedule_index_fini(tri_schedule_index *index)
{
    free(index->first);
    for (int k = 0; k < TRI_NUM_ALL_ACTIONS; k++)
        free(index->at[k]);
    *index = (tri_schedule_index){0};
}

static uint32_t rank_of(const tri_schedule_index *index, uint32_t action)
{
    uint32_t low = 0, high = index->schedule->num_ranks;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (index->first[middle] <= action)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static const tri_action *action_of(const tri_schedule_index *index, uint32_t action)
{
    uint32_t rank = rank_of(index, action);
    return &index->schedule->ranks[rank].actions[action - index->first[rank]];
}

char *tri_index_text(const tri_schedule_index *index, uint32_t action, char out[96])
{
    char name[48];
    uint32_t rank = rank_of(index, action);
    snprintf(out, 96, "rank %u's %s (action %u)", rank,
             tri_action_text(action_of(index, action), name), action - index->first[rank] + 1);
    return out;
}

uint32_t tri_message_peer(const tri_schedule *schedule, const tri_action *message)
{
    tri_action mate = tri_message_mate(message);
    return tri_schedule_home(schedule, mate.chunk, mate.microbatch);
}

tri_action tri_message_mate(const tri_action *message)
{
    tri_action mate = *message;
    switch (message->kind) {
    case TRI_ACTION_SEND_F:
        mate.kind = TRI_ACTION_RECV_F;
        mate.chunk++;
        break;
    case TRI_ACTION_RECV_F:
        mate.kind = TRI_ACTION_SEND_F;
        mate.chunk--;
        break;
    case TRI_ACTION_SEND_B:
        mate.kind = TRI_ACTION_RECV_B;
        mate.chunk--;
        break;
    default:
        mate.kind = TRI_ACTION_SEND_B;
        mate.chunk++;
        break;
    }
    return mate;
}
