#include "program/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a rank is in its timeline. */
typedef struct cursor {
    size_t call;
    uint32_t instr; /* within the call's segment */
} cursor;

/* Elements of this rank's part of a bucket. */
static uint64_t own_slice(const tri_instr *instr)
{
    const tri_flat *flat = &instr->attr.flat;
    int64_t own = 0;
    if (!flat->whole)
        own = tri_flat_begin(flat, flat->part + 1) - tri_flat_begin(flat, flat->part);
    for (uint32_t i = 0; flat->whole && i < instr->span; i++)
        if (instr[i].attr.flat.owner == flat->part)
            own += tri_flat_padded(instr[i].attr.flat.count);
    return (uint64_t)own;
}

uint64_t tri_message_whole_bytes(const tri_program *program, const tri_instr *instr)
{
    const tri_instr *last = &instr[instr->span ? instr->span - 1 : 0];
    const tri_value *out = &program->values[tri_message_value(instr)];
    if (instr->op == TRI_OP_SEND || instr->op == TRI_OP_RECV || instr->op == TRI_OP_BROADCAST)
        return tri_value_bytes(out);
    if (instr->attr.flat.parts > 0 && instr->op == TRI_OP_ALL_REDUCE)
        return own_slice(instr) * tri_dtype_bytes(out->dtype);
    if (instr->attr.flat.parts > 0)
        return (uint64_t)instr->attr.flat.total * tri_dtype_bytes(out->dtype);
    uint64_t made = last->out[0].offset - instr->out[0].offset +
                    tri_value_bytes(&program->values[last->out[0].value]);
    uint64_t read = tri_value_bytes(&program->values[instr->in[0].value]);
    return made > read ? made : read;
}

/* The next message of a program from here on, or NULL at the end of the timeline. */
static const tri_instr *next_message(const tri_program *program, cursor *at)
{
    for (; at->call < program->num_calls; at->call++, at->instr = 0) {
        const tri_segment *segment = &program->segments[program->calls[at->call].segment];
        for (; at->instr < segment->count; at->instr++) {
            const tri_instr *instr = &program->instrs[segment->first + at->instr];
            if (tri_op_get(instr->op)->communicates && instr->span > 0 &&
                tri_call_runs(&program->calls[at->call], instr))
                return instr;
        }
    }
    return NULL;
}

static const char *describe(const tri_program *program, const tri_instr *instr, char *text,
                            size_t size)
{
    char bytes[16];
    if (!instr)
        snprintf(text, size, "has ended");
    else
        snprintf(text, size, "is at instruction %td, %s of %s over %s, %s", instr - program->instrs,
                 tri_op_get(instr->op)->name, program->values[tri_message_value(instr)].name,
                 tri_axis_name((tri_axis)instr->attr.axis),
                 tri_text_bytes((double)tri_message_whole_bytes(program, instr), bytes));
    return text;
}

static bool same_message(const tri_program *a, const tri_instr *x, const tri_program *b,
                         const tri_instr *y)
{
    const tri_value *made = &a->values[tri_message_value(x)];
    const tri_value *other = &b->values[tri_message_value(y)];
    bool halves = (x->op == TRI_OP_SEND && y->op == TRI_OP_RECV) ||
                  (x->op == TRI_OP_RECV && y->op == TRI_OP_SEND);
    bool pairwise = x->op == TRI_OP_SEND || x->op == TRI_OP_RECV;
    return (pairwise ? halves : x->op == y->op) && made->dtype == other->dtype &&
           strcmp(made->name, other->name) == 0 &&
           tri_message_whole_bytes(a, x) == tri_message_whole_bytes(b, y);
}

int tri_message_group(const tri_mesh *mesh, int rank, const tri_instr *instr, int *members)
{
    tri_axis axis = (tri_axis)instr->attr.axis;
    int stride = 1;
    if (axis != TRI_AXIS_HOME && instr->op != TRI_OP_SEND && instr->op != TRI_OP_RECV) {
        tri_mesh_group(mesh, rank, axis, members);
        return tri_mesh_size(mesh, axis);
    }
    for (int faster = 0; faster < TRI_AXIS_PP; faster++)
        stride *= tri_mesh_size(mesh, (tri_axis)faster);
    int first = rank - tri_mesh_coordinate(mesh, rank, TRI_AXIS_PP) * stride;
    if (axis == TRI_AXIS_HOME) {
        for (int i = 0; i < instr->attr.num_homes; i++)
            members[i] = first + instr->attr.homes[i] * stride;
        return instr->attr.num_homes;
    }
    int peer = first + instr->attr.peer * stride;
    members[0] = rank < peer ? rank : peer;
    members[1] = rank < peer ? peer : rank;
    return 2;
}

/* Whether two ranks are at messages between the same ranks. */
static bool same_group(const tri_mesh *mesh, int a, const tri_instr *x, int b, const tri_instr *y)
{
    int first[TRI_MAX_HOMES], second[TRI_MAX_HOMES];
    bool pairs = x->op == TRI_OP_SEND || x->op == TRI_OP_RECV;
    bool other = y->op == TRI_OP_SEND || y->op == TRI_OP_RECV;
    if (x->attr.axis != y->attr.axis || pairs != other)
        return false;
    if (x->attr.axis != TRI_AXIS_HOME && !pairs)
        return true;
    int num = tri_message_group(mesh, a, x, first);
    return num == tri_message_group(mesh, b, y, second) &&
           memcmp(first, second, (size_t)num * sizeof *first) == 0;
}

static tr_status disagree(const tri_program *const *programs, const tri_instr *const *next, int a,
                          int b, const char *what, tr_error *err)
{
    char first[256], second[256];
    return tri_fail(err, TR_ERROR_INTERNAL, "the programs of the ranks %s: rank %d %s, rank %d %s",
                    what, a, describe(programs[a], next[a], first, sizeof first), b,
                    describe(programs[b], next[b], second, sizeof second));
}

/* Tries to finish the message that a rank is at; *done when all of its group were there. */
static tr_status try_message(const tri_program *const *programs, const tri_mesh *mesh, int rank,
                             const tri_instr *const *next, int *members, bool *done, tr_error *err)
{
    int num = tri_message_group(mesh, rank, next[rank], members);
    *done = true;
    for (int i = 0; i < num; i++) {
        const tri_instr *other = next[members[i]];
        if (members[i] == rank)
            continue;
        if (!other || !same_group(mesh, rank, next[rank], members[i], other))
            *done = false;
        else if (!same_message(programs[rank], next[rank], programs[members[i]], other))
            return disagree(programs, next, rank, members[i], "disagree", err);
    }
    return TR_OK;
}

static tr_status run_all(const tri_program *const *programs, const tri_mesh *mesh, int num_ranks,
                         cursor *at, const tri_instr **next, int *members, tr_error *err)
{
    for (;;) {
        bool moved = false, waiting = false;
        int first = -1;
        for (int r = 0; r < num_ranks; r++) {
            next[r] = next_message(programs[r], &at[r]);
            waiting |= next[r] != NULL;
            first = next[r] && first < 0 ? r : first;
        }
        if (!waiting)
            return TR_OK;
        for (int r = 0; r < num_ranks; r++) {
            bool done = false;
            if (!next[r])
                continue;
            TRI_TRY(try_message(programs, mesh, r, next, members, &done, err));
            int num = tri_message_group(mesh, r, next[r], members);
            for (int i = 0; done && i < num; i++) {
                at[members[i]].instr++;
                if (members[i] != r)
                    next[members[i]] = NULL; /* looked up again in the next round */
            }
            if (done)
                next[r] = NULL;
            moved |= done;
        }
        if (!moved) {
            int other = first;
            int num = tri_message_group(mesh, first, next[first], members);
            for (int i = 0; i < num; i++)
                if (members[i] != first &&
                    (!next[members[i]] ||
                     !same_group(mesh, first, next[first], members[i], next[members[i]])))
                    other = members[i];
            return disagree(programs, next, first, other, "wait for each other", err);
        }
    }
}

tr_status tri_programs_match(const tri_program *const *programs, const tri_mesh *mesh,
                             tr_error *err)
{
    int num_ranks = tri_mesh_ranks(mesh);
    cursor *at = calloc((size_t)num_ranks, sizeof *at);
    const tri_instr **next = calloc((size_t)num_ranks, sizeof *next);
    int *members = calloc((size_t)num_ranks, sizeof *members);
    tr_status status = at && next && members
                           ? run_all(programs, mesh, num_ranks, at, next, members, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to match the programs");
    free(at);
    free(next);
    free(members);
    return status;
}
