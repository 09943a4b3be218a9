#include "program/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a rank is in its timeline. */
typedef struct cursor {
    size_t call;
    uint32_t instr; /* within the call's segment */
} cursor;

uint64_t tri_message_whole_bytes(const tri_program *program, const tri_instr *instr)
{
    const tri_instr *last = &instr[instr->span ? instr->span - 1 : 0];
    const tri_value *out = &program->values[instr->out[0].value];
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
            if (tri_op_get(instr->op)->communicates && instr->span > 0)
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
                 tri_op_get(instr->op)->name, program->values[instr->out[0].value].name,
                 tri_axis_name((tri_axis)instr->attr.axis),
                 tri_text_bytes((double)tri_message_whole_bytes(program, instr), bytes));
    return text;
}

static bool same_message(const tri_program *a, const tri_instr *x, const tri_program *b,
                         const tri_instr *y)
{
    const tri_value *made = &a->values[x->out[0].value], *other = &b->values[y->out[0].value];
    return x->op == y->op && made->dtype == other->dtype && strcmp(made->name, other->name) == 0 &&
           tri_message_whole_bytes(a, x) == tri_message_whole_bytes(b, y);
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
    tri_axis axis = (tri_axis)next[rank]->attr.axis;
    int num = tri_mesh_size(mesh, axis);
    tri_mesh_group(mesh, rank, axis, members);
    *done = true;
    for (int i = 0; i < num; i++) {
        const tri_instr *other = next[members[i]];
        if (!other || (tri_axis)other->attr.axis != axis)
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
            for (int i = 0; done && i < tri_mesh_size(mesh, (tri_axis)next[r]->attr.axis); i++) {
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
            tri_mesh_group(mesh, first, (tri_axis)next[first]->attr.axis, members);
            for (int i = 0; i < tri_mesh_size(mesh, (tri_axis)next[first]->attr.axis); i++)
                if (!next[members[i]] || next[members[i]]->attr.axis != next[first]->attr.axis)
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
