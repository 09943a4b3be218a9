/* Lanes of messages: one begins when all its members have it at the head of theirs. */
#include <math.h>
#include <stdlib.h>

#include "program/messages.h"
#include "sim/timing_parts.h"

/* ---- groups ---- */

/* Adds the classes that have members in a group: of ranks that are multiples of the stride, others
 * do what those do. */
static void find_members(timing_run *run, timing_group *g)
{
    uint32_t stride = run->c->stride, place = 0, step = 1;
    const tri_rank_group *group = &g->group;
    g->first = (uint32_t)run->num_members;
    for (uint32_t l = 0; l < group->num_levels && group->level[l].stride < stride; l++)
        step *= group->level[l].size; /* within a class */
    for (; place < group->size; place += group->num_listed ? 1 : step) {
        uint32_t rank = (uint32_t)tri_rank_group_member(group, place);
        uint32_t *members =
            tri_array_grow(run->members, run->num_members, &run->members_capacity, sizeof *members);
        run->no_memory |= !members;
        if (!members)
            return;
        run->members = members;
        members[run->num_members++] = rank / stride;
        g->count++;
    }
}

static uint32_t group_number(timing_run *run, const tri_rank_group *group)
{
    for (size_t g = 0; g < run->num_groups; g++)
        if (tri_rank_group_equal(&run->groups[g].group, group))
            return (uint32_t)g;
    timing_group *groups =
        tri_array_grow(run->groups, run->num_groups, &run->groups_capacity, sizeof *groups);
    run->no_memory |= !groups;
    if (!groups)
        return 0;
    run->groups = groups;
    groups[run->num_groups] = (timing_group){.group = *group};
    find_members(run, &groups[run->num_groups]);
    return (uint32_t)run->num_groups++;
}

/* ---- lanes ---- */

/* Lanes that are no group's. */
enum { ALL_GROUPS = 0x7ffffff0, CARRIES };

static uint32_t peer_class(const timing_run *run, const timing_rank *rank, const tri_message *m)
{
    return (uint32_t)tri_rank_group_member(&rank->program->groups[m->group], m->peer) /
           run->c->stride;
}

/* Devices that send by themselves have a lane for all messages, or one for each group. Hosts have
 * one for each peer and direction, too. */
static timing_lane_key key_of(const timing_run *run, const timing_rank *rank, const tri_message *m)
{
    if (m->group == TRI_NONE)
        return (timing_lane_key){CARRIES + (uint32_t)tri_message_carry_lane(rank->program, m),
                                 TRI_NONE, false};
    if (run->c->one_lane)
        return (timing_lane_key){ALL_GROUPS, TRI_NONE, false};
    if (run->c->in_place || !tri_message_pairwise(m))
        return (timing_lane_key){rank->group[m->group], TRI_NONE, false};
    return (timing_lane_key){rank->group[m->group], peer_class(run, rank, m),
                             m->kind == TRI_MESSAGE_RECV};
}

static timing_lane *find_lane(const timing_rank *rank, timing_lane_key key)
{
    for (uint32_t l = 0; l < rank->num_lanes; l++)
        if (rank->lanes[l].key.group == key.group && rank->lanes[l].key.peer == key.peer &&
            rank->lanes[l].key.incoming == key.incoming)
            return &rank->lanes[l];
    return NULL;
}

static void make_lanes(timing_run *run, timing_rank *rank)
{
    size_t capacity = 0;
    for (size_t m = 0; m < rank->program->num_messages; m++) {
        timing_lane_key key = key_of(run, rank, &rank->program->messages[m]);
        timing_lane *lane = find_lane(rank, key);
        if (!lane) {
            timing_lane *lanes =
                tri_array_grow(rank->lanes, rank->num_lanes, &capacity, sizeof *lanes);
            run->no_memory |= !lanes;
            if (!lanes)
                return;
            rank->lanes = lanes;
            lane = &lanes[rank->num_lanes++];
            *lane = (timing_lane){.key = key};
        }
        rank->lane[m] = (uint32_t)(lane - rank->lanes);
    }
}

static void find_mates(const timing_run *run, uint32_t class)
{
    timing_rank *rank = &run->ranks[class];
    for (size_t m = 0; m < rank->program->num_messages; m++) {
        const tri_message *message = &rank->program->messages[m];
        if (!tri_message_pairwise(message))
            continue;
        uint32_t other = peer_class(run, rank, message);
        timing_lane_key key = key_of(run, rank, message);
        if (key.peer != TRI_NONE)
            key = (timing_lane_key){key.group, class, !key.incoming};
        timing_lane *lane = find_lane(&run->ranks[other], key);
        rank->mate[m].class = other;
        rank->mate[m].lane = lane ? (uint32_t)(lane - run->ranks[other].lanes) : 0;
    }
}

tr_status tri_timing_find_lanes(timing_run *run, tr_error *err)
{
    for (uint32_t k = 0; k < run->c->num_classes; k++) {
        timing_rank *rank = &run->ranks[k];
        for (size_t g = 0; g < rank->program->num_groups; g++)
            rank->group[g] = group_number(run, &rank->program->groups[g]);
        make_lanes(run, rank);
    }
    for (uint32_t k = 0; k < run->c->num_classes && !run->no_memory; k++)
        find_mates(run, k);
    return run->no_memory ? tri_fail(err, TR_ERROR_RUNTIME, "no memory to time the programs")
                          : TR_OK;
}

static timing_issued *head_of(const timing_lane *lane)
{
    return lane->head < lane->count ? &lane->issued[lane->head] : NULL;
}

/* Where another class has its half of the message, if that stands at the head of its lane. */
static timing_lane *meets(const timing_run *run, uint32_t class, uint32_t message, uint32_t other)
{
    const timing_rank *a = &run->ranks[class], *b = &run->ranks[other];
    const tri_message *m = &a->program->messages[message];
    bool pair = tri_message_pairwise(m);
    timing_lane *lane = pair ? &b->lanes[a->mate[message].lane] : find_lane(b, key_of(run, a, m));
    const timing_issued *head = lane ? head_of(lane) : NULL;
    const tri_message *its = head ? &b->program->messages[head->message] : NULL;
    if (!its || its->group == TRI_NONE || a->group[m->group] != b->group[its->group])
        return NULL;
    if (!pair)
        return its->kind == m->kind ? lane : NULL;
    bool halves = tri_message_pairwise(its) && its->kind != m->kind &&
                  m->peer == b->program->groups[its->group].own &&
                  its->peer == a->program->groups[m->group].own;
    return halves ? lane : NULL;
}

/* The message at the head of a lane has ended. */
static void end_at(timing_run *run, uint32_t class, timing_lane *lane, double start, double time)
{
    timing_rank *rank = &run->ranks[class];
    const timing_issued *issued = head_of(lane);
    const tri_timing_watch *watch = &run->c->watch;
    if (watch->event && time > start)
        watch->event(watch->context, &(tri_timing_event){.what = TRI_DOES_MESSAGE,
                                                         .class = class,
                                                         .start = start,
                                                         .end = time,
                                                         .message = issued->message,
                                                         .lane = (uint32_t)(lane - rank->lanes)});
    if (issued->flight != TRI_NONE)
        rank->flight_end[issued->flight] = time;
    else
        rank->run_end = time;
    lane->free_at = time;
    if (++lane->head == lane->count)
        lane->head = lane->count = 0;
    tri_timing_wake(run, class);
}

/* The classes of a message's ranks. */
static uint32_t members_of(const timing_run *run, uint32_t class, uint32_t message,
                           uint32_t pair[2], const uint32_t **members)
{
    const timing_rank *rank = &run->ranks[class];
    const tri_message *m = &rank->program->messages[message];
    *members = pair;
    pair[0] = class;
    if (m->group == TRI_NONE)
        return 1;
    if (tri_message_pairwise(m)) {
        pair[1] = rank->mate[message].class;
        return 2;
    }
    const timing_group *g = &run->groups[rank->group[m->group]];
    *members = run->members + g->first;
    return g->count;
}

/* Ends the message at the head of a lane, when all members have it there. */
static bool end_head(timing_run *run, uint32_t class, timing_lane *lane)
{
    const timing_issued *head = head_of(lane);
    if (!head)
        return false;
    const uint32_t *members, message = head->message;
    uint32_t pair[2];
    double start = 0, seconds = 0;
    uint32_t count = members_of(run, class, message, pair, &members);
    for (uint32_t i = 0; i < count; i++) {
        timing_lane *its = members[i] == class ? lane : meets(run, class, message, members[i]);
        if (!its)
            return false;
        start = fmax(start, fmax(its->free_at, head_of(its)->at));
        seconds = fmax(seconds, run->ranks[members[i]].message_seconds[head_of(its)->message]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (members[i] != class)
            end_at(run, members[i], meets(run, class, message, members[i]), start, start + seconds);
    end_at(run, class, lane, start, start + seconds);
    return true;
}

void tri_timing_settle(timing_run *run, uint32_t class)
{
    timing_rank *rank = &run->ranks[class];
    for (uint32_t l = 0; l < rank->num_lanes; l++)
        while (end_head(run, class, &rank->lanes[l])) {
        }
}

static bool push(timing_lane *l, timing_issued issued)
{
    if (l->head > 64 && 2 * l->head > l->count) {
        for (size_t i = l->head; i < l->count; i++)
            l->issued[i - l->head] = l->issued[i];
        l->count -= l->head;
        l->head = 0;
    }
    timing_issued *list = tri_array_grow(l->issued, l->count, &l->capacity, sizeof *list);
    if (!list)
        return false;
    l->issued = list;
    list[l->count++] = issued;
    return true;
}

void tri_timing_issue(timing_run *run, uint32_t class, uint32_t message, uint32_t flight)
{
    timing_rank *rank = &run->ranks[class];
    timing_lane *lane = &rank->lanes[rank->lane[message]];
    if (!push(lane, (timing_issued){message, flight, rank->now}))
        run->no_memory = true;
    else
        end_head(run, class, lane);
}
