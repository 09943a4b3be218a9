/* See machine.h. Since every lane is a queue whose order the program fixes, start and end of an
 * action do not depend on the order in which this code looks at the lanes: it may look at any lane
 * whose head could have become possible, until none can. */
#include "schedule/machine.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NEEDS = 4 };

typedef struct lane {
    uint32_t rank, peer;
    bool incoming;
    uint32_t head, last; /* actions; TRI_NO_ACTION when empty */
    double free_at;
    bool queued;
    uint32_t next_of_rank; /* lane, TRI_NO_ACTION ends the list */
} lane;

typedef struct machine {
    const tri_schedule_index *index;
    const tri_schedule *schedule;
    const tri_machine_options *options;
    uint32_t *lane_of, *next; /* [action] */
    double *start, *end;      /* [action]; end < 0: not done */
    lane *lanes;              /* the first num_ranks compute */
    uint32_t num_lanes, capacity;
    uint32_t *stack, depth;
    uint32_t num_done;
} machine;

static const tri_action *action(const machine *x, uint32_t id)
{
    uint32_t rank = x->lanes[x->lane_of[id]].rank;
    return &x->schedule->ranks[rank].actions[id - x->index->first[rank]];
}

static uint32_t find(const machine *x, tri_action_kind kind, uint32_t chunk, uint32_t m)
{
    return tri_index_find(x->index, kind, chunk, m);
}

/* What must have ended before this action may start, apart from its lane. An entry that is
 * TRI_NO_ACTION is needed and does not exist. */
static int needs_of(const machine *x, uint32_t id, uint32_t needs[MOST_NEEDS])
{
    const tri_action *a = action(x, id);
    uint32_t c = a->chunk, m = a->microbatch, last = x->schedule->num_chunks - 1;
    uint32_t rank = tri_schedule_home(x->schedule, c, m);
    bool sent = x->schedule->has_messages;
    int num = 0;
    switch (a->kind) {
    case TRI_ACTION_F:
        if (c > 0 && sent && tri_schedule_home(x->schedule, c - 1, m) != rank)
            needs[num++] = find(x, TRI_ACTION_RECV_F, c, m);
        else if (c > 0)
            needs[num++] = find(x, TRI_ACTION_F, c - 1, m);
        break;
    case TRI_ACTION_I:
    case TRI_ACTION_B:
        needs[num++] = find(x, TRI_ACTION_F, c, m);
        if (c < last && sent && tri_schedule_home(x->schedule, c + 1, m) != rank)
            needs[num++] = find(x, TRI_ACTION_RECV_B, c, m);
        else if (c < last)
            needs[num++] = find(x, TRI_ACTION_I, c + 1, m);
        break;
    case TRI_ACTION_W:
    case TRI_ACTION_SEND_B:
        needs[num++] = find(x, TRI_ACTION_I, c, m);
        break;
    case TRI_ACTION_SEND_F:
        needs[num++] = find(x, TRI_ACTION_F, c, m);
        break;
    default:
        break;
    }
    return num;
}

static uint32_t mate_of(const machine *x, uint32_t id)
{
    tri_action mate = tri_message_mate(action(x, id));
    return find(x, mate.kind, mate.chunk, mate.microbatch);
}

static void wake(machine *x, uint32_t id)
{
    if (x->lanes[id].queued)
        return;
    x->lanes[id].queued = true;
    x->stack[x->depth++] = id;
}

/* Whether what an action needs has ended, and when. */
static bool is_ready(const machine *x, uint32_t id, double *when)
{
    uint32_t needs[MOST_NEEDS];
    int num = needs_of(x, id, needs);
    uint32_t rank = x->lanes[x->lane_of[id]].rank;
    for (int i = 0; i < num; i++) {
        if (needs[i] == TRI_NO_ACTION || x->end[needs[i]] < 0)
            return false;
        double at = x->end[needs[i]];
        if (!x->schedule->has_messages && x->lanes[x->lane_of[needs[i]]].rank != rank)
            at += x->options->costs.message;
        *when = at > *when ? at : *when;
    }
    return true;
}

static void finish(machine *x, uint32_t id, double start, double end)
{
    lane *own = &x->lanes[x->lane_of[id]];
    x->start[id] = start;
    x->end[id] = end;
    own->free_at = end;
    own->head = x->next[id];
    x->num_done++;
    wake(x, x->lane_of[id]);
}

/* Those who may have waited for an action that computes. */
static void wake_readers(machine *x, uint32_t id)
{
    const tri_action *a = action(x, id);
    const tri_schedule *s = x->schedule;
    bool forward = a->kind == TRI_ACTION_F;
    bool end = forward ? a->chunk + 1 == s->num_chunks : a->chunk == 0;
    if (end || (!forward && a->kind != TRI_ACTION_I && a->kind != TRI_ACTION_B))
        return;
    uint32_t message =
        find(x, forward ? TRI_ACTION_SEND_F : TRI_ACTION_SEND_B, a->chunk, a->microbatch);
    if (message != TRI_NO_ACTION)
        wake(x, x->lane_of[message]);
    else
        wake(x, tri_schedule_home(s, forward ? a->chunk + 1 : a->chunk - 1, a->microbatch));
}

static double time_of(const machine *x, const tri_action *a)
{
    const tri_action_costs *costs = &x->options->costs;
    return costs->by_chunk ? costs->by_chunk[a->kind * x->schedule->num_chunks + a->chunk]
                           : costs->kind[a->kind];
}

static double time_of_pair(const machine *x, const uint32_t *ids, int num)
{
    const tri_action_costs *costs = &x->options->costs;
    const tri_action *f = action(x, ids[0]), *b = action(x, ids[1]);
    double pair = costs->by_pair ? costs->by_pair[f->chunk * x->schedule->num_chunks + b->chunk]
                                 : costs->overlap;
    double each = 0;
    for (int i = 0; i < num; i++)
        each += time_of(x, action(x, ids[i]));
    return pair > 0 ? pair : each;
}

static bool run_compute(machine *x, uint32_t id)
{
    lane *own = &x->lanes[x->lane_of[id]];
    double when = own->free_at;
    uint32_t ids[TRI_MOST_PAIRED] = {id};
    int num = 1;
    while (x->options->pairs && num < TRI_MOST_PAIRED && action(x, ids[num - 1])->overlap &&
           x->next[ids[num - 1]] != TRI_NO_ACTION) {
        ids[num] = x->next[ids[num - 1]];
        num++;
    }
    for (int i = 0; i < num && i < 2; i++) /* a W behind its I needs nothing else */
        if (!is_ready(x, ids[i], &when))
            return false;
    double end = when + (num > 1 ? time_of_pair(x, ids, num) : time_of(x, action(x, id)));
    for (int i = 0; i < num; i++)
        finish(x, ids[i], when, end);
    for (int i = num; i-- > 0;)
        wake_readers(x, ids[i]);
    return true;
}

static bool run_transfer(machine *x, uint32_t id)
{
    uint32_t mate = mate_of(x, id);
    if (mate == TRI_NO_ACTION)
        return false;
    lane *own = &x->lanes[x->lane_of[id]], *other = &x->lanes[x->lane_of[mate]];
    if (other->head != mate || own == other)
        return false;
    double when = own->free_at > other->free_at ? own->free_at : other->free_at;
    if (!is_ready(x, id, &when) || !is_ready(x, mate, &when))
        return false;
    double end = when + x->options->costs.message;
    finish(x, id, when, end);
    finish(x, mate, when, end);
    wake(x, own->rank);
    wake(x, other->rank);
    return true;
}

static void run(machine *x)
{
    for (uint32_t i = 0; i < x->num_lanes; i++)
        wake(x, i);
    while (x->depth > 0) {
        uint32_t id = x->stack[--x->depth];
        lane *own = &x->lanes[id];
        own->queued = false;
        while (own->head != TRI_NO_ACTION) {
            bool computes = tri_action_computes(action(x, own->head)->kind);
            if (!(computes ? run_compute(x, own->head) : run_transfer(x, own->head)))
                break;
        }
    }
}

/* Something that an action at the head of a lane waits for: an action that is not done, or
 * TRI_NO_ACTION for one that does not exist. */
static uint32_t blocker_of(const machine *x, uint32_t id)
{
    uint32_t needs[MOST_NEEDS];
    const tri_action *a = action(x, id);
    int num = needs_of(x, id, needs);
    for (int i = 0; i < num; i++)
        if (needs[i] == TRI_NO_ACTION || x->end[needs[i]] < 0)
            return needs[i];
    if (tri_action_computes(a->kind))
        return x->next[id]; /* a pair whose second half cannot start */
    return mate_of(x, id);
}

/* The first of a rank's lane that stands in the way of an action. */
static uint32_t in_front_of(const machine *x, uint32_t id)
{
    return x->lanes[x->lane_of[id]].head;
}

static tr_status explain(const machine *x, uint32_t a, tr_error *err)
{
    char text_a[96], text_b[96], text_c[96], text_d[96];
    const char *how = !x->schedule->has_messages ? ""
                      : x->options->merged       ? ", all messages of a rank in one lane"
                                                 : ", a lane for each neighbour";
    uint32_t b = blocker_of(x, a);
    tri_index_text(x->index, a, text_a);
    if (b == TRI_NO_ACTION)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the schedule stops%s: %s waits for something that no rank does", how,
                        text_a);
    uint32_t c = in_front_of(x, b);
    tri_index_text(x->index, b, text_b);
    if (c == a)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the schedule stops%s: %s waits for %s, which comes after it; swap them",
                        how, text_a, text_b);
    tri_index_text(x->index, c, text_c);
    uint32_t d = blocker_of(x, c);
    if (d == TRI_NO_ACTION)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "the schedule stops%s: %s waits for %s behind %s, which waits for something "
            "that no rank does",
            how, text_a, text_b, text_c);
    tri_index_text(x->index, d, text_d);
    if (b == c)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the schedule deadlocks%s: %s waits for %s, and that one for %s", how,
                        text_a, text_b, text_d);
    return tri_fail(err, TR_ERROR_INPUT,
                    "the schedule deadlocks%s: %s waits for %s, which stands behind %s; that one "
                    "waits for %s, and so on in a circle",
                    how, text_a, text_b, text_c, text_d);
}

/* Follows who waits for whom until an action comes up twice: that one is on the circle. */
static tr_status stuck(const machine *x, tr_error *err)
{
    uint32_t at = TRI_NO_ACTION;
    for (uint32_t i = 0; i < x->num_lanes && at == TRI_NO_ACTION; i++)
        at = x->lanes[i].head;
    for (uint32_t i = 0; i <= x->num_lanes; i++) {
        uint32_t blocker = blocker_of(x, at);
        if (blocker == TRI_NO_ACTION)
            break;
        at = in_front_of(x, blocker);
    }
    return explain(x, at, err);
}

static uint32_t lane_for(machine *x, uint32_t rank, const tri_action *a)
{
    if (tri_action_computes(a->kind))
        return rank;
    bool incoming = a->kind == TRI_ACTION_RECV_F || a->kind == TRI_ACTION_RECV_B;
    uint32_t peer = tri_message_peer(x->schedule, a);
    if (x->options->merged) {
        incoming = false;
        peer = rank;
    }
    uint32_t at = x->lanes[rank].next_of_rank;
    while (at != TRI_NO_ACTION && (x->lanes[at].peer != peer || x->lanes[at].incoming != incoming))
        at = x->lanes[at].next_of_rank;
    if (at != TRI_NO_ACTION)
        return at;
    if (x->num_lanes == x->capacity) {
        lane *grown = realloc(x->lanes, 2 * (size_t)x->capacity * sizeof *grown);
        if (!grown)
            return TRI_NO_ACTION;
        x->lanes = grown;
        x->capacity *= 2;
    }
    at = x->num_lanes++;
    x->lanes[at] = (lane){.rank = rank,
                          .peer = peer,
                          .incoming = incoming,
                          .head = TRI_NO_ACTION,
                          .last = TRI_NO_ACTION,
                          .next_of_rank = x->lanes[rank].next_of_rank};
    x->lanes[rank].next_of_rank = at;
    return at;
}

static bool fill_lanes(machine *x)
{
    for (uint32_t r = 0; r < x->schedule->num_ranks; r++)
        x->lanes[x->num_lanes++] = (lane){.rank = r,
                                          .peer = r,
                                          .head = TRI_NO_ACTION,
                                          .last = TRI_NO_ACTION,
                                          .next_of_rank = TRI_NO_ACTION};
    for (uint32_t r = 0; r < x->schedule->num_ranks; r++)
        for (size_t i = 0; i < x->schedule->ranks[r].count; i++) {
            uint32_t id = x->index->first[r] + (uint32_t)i;
            uint32_t at = lane_for(x, r, &x->schedule->ranks[r].actions[i]);
            if (at == TRI_NO_ACTION)
                return false;
            lane *own = &x->lanes[at];
            x->lane_of[id] = at;
            x->next[id] = TRI_NO_ACTION;
            x->end[id] = -1;
            if (own->last == TRI_NO_ACTION)
                own->head = id;
            else
                x->next[own->last] = id;
            own->last = id;
        }
    x->stack = malloc(x->num_lanes * sizeof *x->stack);
    return x->stack != NULL;
}

tr_status tri_machine_run(const tri_schedule_index *index, const tri_machine_options *options,
                          double *start, double *end, tr_error *err)
{
    size_t num = (size_t)index->num_actions + 1;
    machine x = {.index = index, .schedule = index->schedule, .options = options};
    x.capacity = 4 * x.schedule->num_ranks + 4;
    x.lanes = malloc(x.capacity * sizeof *x.lanes);
    x.lane_of = malloc(num * sizeof *x.lane_of);
    x.next = malloc(num * sizeof *x.next);
    x.start = start ? start : malloc(num * sizeof *x.start);
    x.end = end ? end : malloc(num * sizeof *x.end);
    tr_status status = TR_OK;
    if (!x.lanes || !x.lane_of || !x.next || !x.start || !x.end || !fill_lanes(&x))
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    if (status == TR_OK)
        run(&x);
    if (status == TR_OK && x.num_done < index->num_actions)
        status = stuck(&x, err);
    free(x.lanes);
    free(x.lane_of);
    free(x.next);
    free(x.stack);
    if (!start)
        free(x.start);
    if (!end)
        free(x.end);
    return status;
}
