/* From actions that compute to the same with messages between them.
 *
 * One walk over all ranks, in rounds: in each, every rank runs its next action if what it needs has
 * been made. When an action has made something for another rank, the send is put behind it and, at
 * the same moment, the receive at the end of the other rank's list so far. schedule.h says why the
 * result cannot deadlock. It also means that a receive stands early: as soon as the value can be
 * there, and not just before it is used. */
#include <stdlib.h>
#include <string.h>

#include "schedule/index.h"

typedef struct lowering {
    const tri_schedule *from;
    tri_schedule *to;
    size_t *next;         /* of each rank */
    uint8_t *f_at, *b_at; /* [chunk][micro-batch]: output, input gradient: 1 made, 2 received */
} lowering;

enum { MADE = 1, ARRIVED = 2 };

void tri_schedule_join_backward(tri_schedule *s)
{
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        tri_action_list *list = &s->ranks[r];
        size_t count = 0;
        for (size_t i = 0; i < list->count; i++) {
            tri_action a = list->actions[i];
            const tri_action *next = i + 1 < list->count ? &list->actions[i + 1] : NULL;
            if (a.kind == TRI_ACTION_I && next && next->kind == TRI_ACTION_W &&
                next->chunk == a.chunk && next->microbatch == a.microbatch) {
                a.kind = TRI_ACTION_B;
                i++;
            }
            list->actions[count++] = a;
        }
        list->count = count;
    }
}

static size_t cell(const lowering *w, uint32_t chunk, uint32_t m)
{
    return (size_t)chunk * w->from->num_microbatches + m;
}

static bool same_rank(const lowering *w, uint32_t a, uint32_t b, uint32_t m)
{
    return tri_schedule_home(w->from, a, m) == tri_schedule_home(w->from, b, m);
}

static bool is_ready(const lowering *w, const tri_action *a)
{
    uint32_t c = a->chunk, m = a->microbatch;
    switch (a->kind) {
    case TRI_ACTION_F:
        return c == 0 || w->f_at[cell(w, c - 1, m)] >= (same_rank(w, c, c - 1, m) ? MADE : ARRIVED);
    case TRI_ACTION_I:
    case TRI_ACTION_B:
        if (w->f_at[cell(w, c, m)] == 0)
            return false;
        return c + 1 == w->from->num_chunks ||
               w->b_at[cell(w, c + 1, m)] >= (same_rank(w, c, c + 1, m) ? MADE : ARRIVED);
    case TRI_ACTION_W:
        return w->b_at[cell(w, c, m)] > 0;
    default:
        return true;
    }
}

/* The send behind its action, the receive at the other rank. */
static tr_status send(lowering *w, uint32_t rank, const tri_action *a, tr_error *err)
{
    bool forward = a->kind == TRI_ACTION_F;
    bool backward = a->kind == TRI_ACTION_I || a->kind == TRI_ACTION_B;
    if (!forward && !backward)
        return TR_OK;
    bool end = forward ? a->chunk + 1 == w->from->num_chunks : a->chunk == 0;
    uint8_t *at = &(forward ? w->f_at : w->b_at)[cell(w, a->chunk, a->microbatch)];
    *at = MADE;
    tri_action message = {.kind = forward ? TRI_ACTION_SEND_F : TRI_ACTION_SEND_B,
                          .chunk = a->chunk,
                          .microbatch = a->microbatch};
    if (end || tri_message_peer(w->from, &message) == rank)
        return TR_OK;
    *at = ARRIVED;
    TRI_TRY(tri_schedule_add(w->to, rank, message, err));
    return tri_schedule_add(w->to, tri_message_peer(w->from, &message), tri_message_mate(&message),
                            err);
}

/* The next action of a rank, or all of an overlapped pair, with the messages behind them. */
static tr_status step(lowering *w, uint32_t rank, bool *moved, tr_error *err)
{
    const tri_action_list *list = &w->from->ranks[rank];
    const tri_action *a = &list->actions[w->next[rank]];
    size_t num = tri_actions_at_once(list, w->next[rank]);
    for (size_t i = 0; i < num; i++)
        if (i < 2 && !is_ready(w, &a[i])) /* a W behind its I needs nothing else */
            return TR_OK;
    *moved = true;
    w->next[rank] += num;
    for (size_t i = 0; i < num; i++)
        TRI_TRY(tri_schedule_add(w->to, rank, a[i], err));
    for (size_t i = 0; i < num; i++)
        TRI_TRY(send(w, rank, &a[i], err));
    return TR_OK;
}

static tr_status walk_all(lowering *w, tr_error *err)
{
    bool moved = true, left = true;
    while (left && moved) {
        moved = left = false;
        for (uint32_t r = 0; r < w->from->num_ranks; r++) {
            if (w->next[r] == w->from->ranks[r].count)
                continue;
            left = true;
            TRI_TRY(step(w, r, &moved, err));
        }
    }
    if (!left)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "the schedule cannot run to its end, so it gets no messages; check it first");
}

tr_status tri_schedule_lower(tri_schedule *s, tr_error *err)
{
    if (s->has_messages)
        return tri_fail(err, TR_ERROR_INPUT, "the schedule has its sends and receives already");
    tri_schedule to = {.num_ranks = s->num_ranks};
    size_t cells = (size_t)s->num_chunks * s->num_microbatches;
    lowering w = {.from = s, .to = &to};
    to.ranks = calloc(s->num_ranks, sizeof *to.ranks);
    w.next = calloc(s->num_ranks, sizeof *w.next);
    w.f_at = calloc(cells, 1);
    w.b_at = calloc(cells, 1);
    tr_status status = TR_OK;
    if (!to.ranks || !w.next || !w.f_at || !w.b_at)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    if (status == TR_OK)
        status = walk_all(&w, err);
    if (status == TR_OK) {
        tri_action_list *old = s->ranks;
        s->ranks = to.ranks;
        to.ranks = old;
        s->has_messages = true;
    }
    tri_schedule_fini(&to);
    free(w.next);
    free(w.f_at);
    free(w.b_at);
    return status;
}
