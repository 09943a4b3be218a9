#include "program/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

/* Where a rank is in its timeline. */
typedef struct cursor {
    size_t call;
    uint32_t instr; /* within the call's segment */
} cursor;

/* The next message of a program from here on, or NULL at the end of the timeline. */
static const tri_message *next_message(const tri_program *program, cursor *at)
{
    for (; at->call < program->num_calls; at->call++, at->instr = 0) {
        const tri_segment *segment = &program->segments[program->calls[at->call].segment];
        for (; at->instr < segment->count; at->instr++) {
            uint32_t i = segment->first + at->instr;
            const tri_instr *instr = &program->instrs[i];
            if (instr->message != TRI_NONE && tri_instr_leads(program, i) &&
                program->messages[instr->message].group != TRI_NONE &&
                tri_call_runs(&program->calls[at->call], instr))
                return &program->messages[instr->message];
        }
    }
    return NULL;
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

static seen seen_at(const tri_program *const *programs, const tri_message *const *next, int rank)
{
    return (seen){programs[rank], next[rank], group_of(programs[rank], next[rank])};
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

static tr_status disagree(const tri_program *const *programs, const tri_message *const *next, int a,
                          int b, const char *what, tr_error *err)
{
    char first[256], second[256];
    return tri_fail(err, TR_ERROR_INTERNAL, "the programs of the ranks %s: rank %d %s, rank %d %s",
                    what, a, describe(programs[a], next[a], first, sizeof first), b,
                    describe(programs[b], next[b], second, sizeof second));
}

/* Tries to finish the message that a rank is at; *done when all of its group were there. *missing
 * is one that was not. */
static tr_status try_message(const tri_program *const *programs, const tri_message *const *next,
                             int rank, bool *done, int *missing, tr_error *err)
{
    seen own = seen_at(programs, next, rank);
    *done = true;
    for (uint32_t i = 0; i < num_members(&own); i++) {
        int member = member_of(&own, i);
        if (member == rank)
            continue;
        seen other = next[member] ? seen_at(programs, next, member) : own;
        if (!next[member] || !same_ranks(&own, &other)) {
            *done = false;
            *missing = member;
        } else if (!same_message(&own, &other)) {
            return disagree(programs, next, rank, member, "disagree", err);
        }
    }
    return TR_OK;
}

static tr_status compare_pair(const tri_program *const *programs, const tri_message *const *next,
                              int from, int to, tr_error *err)
{
    seen sends = seen_at(programs, next, from), gets = seen_at(programs, next, to);
    return same_exchange(&sends, &gets) ? TR_OK
                                        : disagree(programs, next, from, to, "disagree", err);
}

/* What each member has for each other one is its own affair: all pairs are looked at, once all have
 * come. Of a shift a member names two. */
static tr_status compare_exchange(const tri_program *const *programs,
                                  const tri_message *const *next, const seen *own, tr_error *err)
{
    const tri_rank_group *group = own->group;
    bool shifts = own->message->kind == TRI_MESSAGE_SHIFT;
    if (own->message->kind != TRI_MESSAGE_ALL_TO_ALL && !shifts)
        return TR_OK;
    for (uint32_t i = 0; i < group->size; i++) {
        int rank = tri_rank_group_member(group, i);
        const tri_message *m = next[rank];
        for (uint32_t k = 0; k < (shifts ? 1 : group->size); k++) {
            uint32_t to = shifts ? m->send_parts.place : k, from = m->recv_parts.place;
            TRI_TRY(compare_pair(programs, next, rank, tri_rank_group_member(group, to), err));
            if (shifts)
                TRI_TRY(
                    compare_pair(programs, next, tri_rank_group_member(group, from), rank, err));
        }
    }
    return TR_OK;
}

/* One round: every message whose members are all there ends. *moved: some did. */
static tr_status run_round(const tri_program *const *programs, int num_ranks, cursor *at,
                           const tri_message **next, bool *moved, tr_error *err)
{
    for (int r = 0; r < num_ranks; r++) {
        bool done = false;
        int missing;
        if (!next[r])
            continue;
        TRI_TRY(try_message(programs, next, r, &done, &missing, err));
        if (!done)
            continue;
        seen own = seen_at(programs, next, r);
        TRI_TRY(compare_exchange(programs, next, &own, err));
        for (uint32_t i = 0; i < num_members(&own); i++) {
            at[member_of(&own, i)].instr++;
            next[member_of(&own, i)] = NULL; /* looked up again in the next round */
        }
        *moved = true;
    }
    return TR_OK;
}

static tr_status run_all(const tri_program *const *programs, int num_ranks, cursor *at,
                         const tri_message **next, tr_error *err)
{
    for (;;) {
        bool moved = false, done;
        int first = -1;
        for (int r = num_ranks - 1; r >= 0; r--) {
            next[r] = next_message(programs[r], &at[r]);
            first = next[r] ? r : first;
        }
        if (first < 0)
            return TR_OK;
        TRI_TRY(run_round(programs, num_ranks, at, next, &moved, err));
        if (moved)
            continue;
        int other = first;
        TRI_TRY(try_message(programs, next, first, &done, &other, err));
        return disagree(programs, next, first, other, "wait for each other", err);
    }
}

tr_status tri_programs_match(const tri_program *const *programs, int num_ranks, tr_error *err)
{
    cursor *at = calloc((size_t)num_ranks, sizeof *at);
    const tri_message **next = calloc((size_t)num_ranks, sizeof *next);
    tr_status status = at && next
                           ? run_all(programs, num_ranks, at, next, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to match the programs");
    free(at);
    free(next);
    return status;
}
