#include "program/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

/* Messages of one rank that end one after the other: all of them, or those of one group. */
typedef struct line {
    int rank;
    uint32_t group;          /* of the rank's program, where each has a line */
    size_t call;             /* the first of a pair */
    uint32_t turn, instr;    /* of the call or pair; within that */
    const tri_message *next; /* that it is at; NULL: at none yet, or at the end */
} line;

/* The ranks' programs, run once with a lane for each group and once with messages one at a time. */
typedef struct match {
    const tri_program *const *programs;
    line *lines; /* those of a rank together, by number of the group */
    size_t num_lines;
    size_t *first; /* of each rank: its first line */
    bool by_group;
} match;

/* Goes to the next message of a line from here on, or to the end of the timeline. */
static void look_up(const match *m, line *at)
{
    const tri_program *program = m->programs[at->rank];
    at->next = NULL;
    while (at->call < program->num_calls) {
        tri_turn s;
        if (!tri_timeline_turn(program, at->call, at->turn, &s)) {
            at->call += tri_calls_at_once(program, at->call);
            at->turn = at->instr = 0;
            continue;
        }
        for (; s.first + at->instr < s.end; at->instr++) {
            uint32_t i = s.first + at->instr;
            const tri_instr *instr = &program->instrs[i];
            if (instr->message == TRI_NONE || !tri_instr_leads(program, i) ||
                !tri_call_runs(&program->calls[s.call], instr))
                continue;
            const tri_message *message = &program->messages[instr->message];
            if (message->group == TRI_NONE || (m->by_group && message->group != at->group))
                continue;
            at->next = message;
            return;
        }
        at->turn++;
        at->instr = 0;
    }
}

static const tri_rank_group *group_of(const tri_program *program, const tri_message *message)
{
    return &program->groups[message->group];
}

static const char *describe(const tri_program *program, const tri_message *m, char *text,
                            size_t size)
{
    char bytes[16];
    if (!m)
        snprintf(text, size, "has ended");
    else
        snprintf(text, size, "is at instruction %u, %s of %s over %s, %s", m->first,
                 tri_message_kind_name(m->kind), program->values[m->value].name,
                 group_of(program, m)->name, tri_text_bytes((double)tri_message_bytes(m), bytes));
    return text;
}

/* A message of one rank as the other members of its group see it. */
typedef struct seen {
    const tri_program *program;
    const tri_message *message;
    const tri_rank_group *group;
} seen;

static seen seen_at(const match *m, const line *at)
{
    const tri_program *program = m->programs[at->rank];
    return (seen){program, at->next, group_of(program, at->next)};
}

/* The line of a rank that has the messages of this group; NULL: it has no such group. */
static line *line_of(const match *m, int rank, const tri_rank_group *group)
{
    line *first = &m->lines[m->first[rank]];
    if (!m->by_group)
        return first;
    const tri_program *program = m->programs[rank];
    for (size_t g = 0; g < program->num_groups; g++)
        if (tri_rank_group_equal(&program->groups[g], group))
            return first + g;
    return NULL;
}

/* Whether what one of them sends to the other is what that expects of it. */
static bool same_exchange(const seen *from, const seen *to)
{
    return tri_message_part(from->program, from->message, &from->message->send_parts,
                            to->group->own) ==
           tri_message_part(to->program, to->message, &to->message->recv_parts, from->group->own);
}

/* What both say of the blocks of each other. */
static bool same_parts(const seen *a, const tri_division *x, const seen *b, const tri_division *y)
{
    uint32_t own[] = {a->group->own, b->group->own};
    for (int i = 0; i < 2; i++)
        if (tri_message_part(a->program, a->message, x, own[i]) !=
            tri_message_part(b->program, b->message, y, own[i]))
            return false;
    return true;
}

static bool same_message(const seen *a, const seen *b)
{
    const tri_message *x = a->message, *y = b->message;
    if (tri_message_pairwise(x) ? !tri_message_pairwise(y) || x->kind == y->kind
                                : x->kind != y->kind || x->peer != y->peer)
        return false;
    if (x->how != y->how || x->dtype != y->dtype || x->elements != y->elements ||
        strcmp(a->program->values[x->value].name, b->program->values[y->value].name) != 0)
        return false;
    if (tri_message_varies(x) != tri_message_varies(y))
        return false;
    if (x->kind == TRI_MESSAGE_ALL_TO_ALL || x->kind == TRI_MESSAGE_SHIFT)
        return true; /* by pairs, once all have come */
    return same_parts(a, &x->send_parts, b, &y->send_parts) &&
           same_parts(a, &x->recv_parts, b, &y->recv_parts);
}

/* The ranks that a message of this rank is between: all of its group, or the two. */
static uint32_t num_members(const seen *at)
{
    return tri_message_pairwise(at->message) ? 2 : at->group->size;
}

static int member_of(const seen *at, uint32_t i)
{
    uint32_t place = tri_message_pairwise(at->message) && i == 1 ? at->message->peer
                     : tri_message_pairwise(at->message)         ? at->group->own
                                                                 : i;
    return tri_rank_group_member(at->group, place);
}

/* Whether two ranks are at messages between the same ranks. */
static bool same_ranks(const seen *a, const seen *b)
{
    bool pairs = tri_message_pairwise(a->message);
    if (!tri_rank_group_equal(a->group, b->group) || pairs != tri_message_pairwise(b->message))
        return false;
    return !pairs || (a->message->peer == b->group->own && b->message->peer == a->group->own);
}

static tr_status disagree(const match *m, const line *a, int other, const line *b, const char *what,
                          tr_error *err)
{
    char first[256], second[256];
    return tri_fail(err, TR_ERROR_INTERNAL,
                    "the programs of the ranks %s, %s: rank %d %s, rank %d %s", what,
                    m->by_group ? "with a lane for each group" : "with messages one at a time",
                    a->rank, describe(m->programs[a->rank], a->next, first, sizeof first), other,
                    describe(m->programs[other], b ? b->next : NULL, second, sizeof second));
}

/* Tries to finish the message that a line is at; *done when all of its group were there. *missing
 * is a rank that was not. */
static tr_status try_message(const match *m, const line *at, bool *done, int *missing,
                             tr_error *err)
{
    seen own = seen_at(m, at);
    *done = true;
    for (uint32_t i = 0; i < num_members(&own); i++) {
        int member = member_of(&own, i);
        if (member == at->rank)
            continue;
        const line *its = line_of(m, member, own.group);
        seen other = its && its->next ? seen_at(m, its) : own;
        if (!its || !its->next || !same_ranks(&own, &other)) {
            *done = false;
            *missing = member;
        } else if (!same_message(&own, &other)) {
            return disagree(m, at, member, its, "disagree", err);
        }
    }
    return TR_OK;
}

static tr_status compare_pair(const match *m, const line *from, const line *to, tr_error *err)
{
    seen sends = seen_at(m, from), gets = seen_at(m, to);
    return same_exchange(&sends, &gets) ? TR_OK : disagree(m, from, to->rank, to, "disagree", err);
}

/* What each member has for each other one is its own affair: all pairs are looked at, once all have
 * come. Of a shift a member names two. */
static tr_status compare_exchange(const match *m, const seen *own, tr_error *err)
{
    const tri_rank_group *group = own->group;
    bool shifts = own->message->kind == TRI_MESSAGE_SHIFT;
    if (own->message->kind != TRI_MESSAGE_ALL_TO_ALL && !shifts)
        return TR_OK;
    for (uint32_t i = 0; i < group->size; i++) {
        const line *its = line_of(m, tri_rank_group_member(group, i), group);
        for (uint32_t k = 0; k < (shifts ? 1 : group->size); k++) {
            uint32_t to = shifts ? its->next->send_parts.place : k;
            uint32_t from = its->next->recv_parts.place;
            TRI_TRY(compare_pair(m, its, line_of(m, tri_rank_group_member(group, to), group), err));
            if (shifts)
                TRI_TRY(compare_pair(m, line_of(m, tri_rank_group_member(group, from), group), its,
                                     err));
        }
    }
    return TR_OK;
}

/* One round: every message whose members are all there ends. *moved: some did. */
static tr_status run_round(const match *m, bool *moved, tr_error *err)
{
    for (size_t l = 0; l < m->num_lines; l++) {
        const line *at = &m->lines[l];
        bool done = false;
        int missing;
        if (!at->next)
            continue;
        TRI_TRY(try_message(m, at, &done, &missing, err));
        if (!done)
            continue;
        seen own = seen_at(m, at);
        TRI_TRY(compare_exchange(m, &own, err));
        for (uint32_t i = 0; i < num_members(&own); i++) {
            line *its = line_of(m, member_of(&own, i), own.group);
            its->instr++;
            its->next = NULL; /* looked up again in the next round */
        }
        *moved = true;
    }
    return TR_OK;
}

static tr_status run_all(const match *m, tr_error *err)
{
    for (;;) {
        bool moved = false, done;
        const line *first = NULL;
        for (size_t l = m->num_lines; l-- > 0;) {
            look_up(m, &m->lines[l]);
            first = m->lines[l].next ? &m->lines[l] : first;
        }
        if (!first)
            return TR_OK;
        TRI_TRY(run_round(m, &moved, err));
        if (moved)
            continue;
        int other = first->rank;
        TRI_TRY(try_message(m, first, &done, &other, err));
        return disagree(m, first, other,
                        line_of(m, other, group_of(m->programs[first->rank], first->next)),
                        "wait for each other", err);
    }
}

/* A line for each rank, or for each of its groups. */
static tr_status run_lines(const tri_program *const *programs, int num_ranks, bool by_group,
                           tr_error *err)
{
    match m = {.programs = programs, .by_group = by_group};
    size_t most = 0;
    for (int r = 0; r < num_ranks; r++)
        most += by_group ? programs[r]->num_groups : 1;
    m.lines = calloc(most + 1, sizeof *m.lines);
    m.first = calloc(num_ranks > 0 ? (size_t)num_ranks : 1, sizeof *m.first);
    tr_status status = TR_OK;
    if (!m.lines || !m.first)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to match the programs");
    for (int r = 0; status == TR_OK && r < num_ranks; r++) {
        size_t count = by_group ? programs[r]->num_groups : 1;
        m.first[r] = m.num_lines;
        for (size_t g = 0; g < count; g++)
            m.lines[m.num_lines++] = (line){.rank = r, .group = (uint32_t)g};
    }
    if (status == TR_OK)
        status = run_all(&m, err);
    free(m.lines);
    free(m.first);
    return status;
}

/* Whatever a device waits for besides, it waits for messages that stand before, so that it is
 * between these two: what finishes one at a time finishes with some of the waits left out. */
tr_status tri_programs_match(const tri_program *const *programs, int num_ranks, tr_error *err)
{
    TRI_TRY(run_lines(programs, num_ranks, true, err));
    return run_lines(programs, num_ranks, false, err);
}
