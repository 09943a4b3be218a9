#include "program/extend/extend_parts.h"

#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

/* ---- what is alike ---- */

static bool same_space(const tri_space *a, const tri_space *b, size_t num_segments)
{
    if (a->kind != b->kind || a->where != b->where)
        return false;
    return a->kind != TRI_SPACE_FRAME ||
           (a->born == b->born && a->dies == b->dies &&
            memcmp(a->users, b->users, num_segments * sizeof *a->users) == 0);
}

/* Spaces in which nothing is reused grow by what a step adds. */
static bool spaces_grow(const tri_program *a, const tri_program *b)
{
    if (a->num_spaces != b->num_spaces || a->num_segments != b->num_segments)
        return false;
    for (size_t s = 0; s < a->num_spaces; s++) {
        const tri_space *x = &a->spaces[s], *y = &b->spaces[s];
        if (!same_space(x, y, a->num_segments) ||
            (y->bytes < x->bytes && x->kind != TRI_SPACE_WORK))
            return false;
    }
    return true;
}

static uint64_t growth(const extender *e, uint32_t space)
{
    return e->more->spaces[space].bytes - e->less->spaces[space].bytes;
}

/* Whether an address may move so far from one step to the next: in frames a layer lies behind the
 * other; states are in the order of their types. */
static bool moves_well(const extender *e, uint32_t space, uint64_t from, uint64_t to)
{
    uint64_t by = to > from ? to - from : from - to, most = growth(e, space);
    return e->more->spaces[space].kind == TRI_SPACE_FRAME ? by == 0 || by == most : by <= most;
}

static bool same_piece(const extender *e, const tri_program *pa, const tri_operand *a,
                       const tri_operand *b)
{
    const tri_program *pb = e->more;
    tri_id x = pa->piece_of[a->value], y = pb->piece_of[b->value];
    return x != TRI_NONE && y != TRI_NONE && pa->pieces[x].bytes == pb->pieces[y].bytes &&
           a->offset - pa->pieces[x].offset == b->offset - pb->pieces[y].offset;
}

static bool same_operand(const extender *e, const tri_program *pa, const tri_operand *a,
                         const tri_operand *b)
{
    if (a->value == TRI_NONE || b->value == TRI_NONE)
        return a->value == b->value;
    const tri_value *x = &pa->values[a->value], *y = &e->more->values[b->value];
    if (a->space != b->space || x->dtype != y->dtype || x->kind != y->kind ||
        x->where != y->where || (x->state == TRI_NONE) != (y->state == TRI_NONE) ||
        !tri_shape_equal(&x->shape, &y->shape))
        return false;
    return e->more->spaces[b->space].kind == TRI_SPACE_WORK
               ? same_piece(e, pa, a, b)
               : moves_well(e, b->space, a->offset, b->offset);
}

/* A shape's bytes without those that mean nothing: padding, and dims behind the last one. */
static void trim(tri_shape *shape)
{
    tri_shape plain;
    memset(&plain, 0, sizeof plain);
    plain.rank = shape->rank;
    for (int d = 0; d < shape->rank; d++) {
        plain.dim[d].name = shape->dim[d].name;
        plain.dim[d].size = shape->dim[d].size;
    }
    memcpy(shape, &plain, sizeof plain);
}

/* Attributes without what means nothing, and without the random numbers that each layer draws. */
static tri_attr plain_attr(tri_op op, const tri_attr *attr)
{
    tri_attr plain = *attr;
    switch (tri_op_get(op)->family) {
    case TRI_ATTR_DROPOUT:
        plain.dropout.stream = 0;
        break;
    case TRI_ATTR_ATTENTION:
        plain.attention.stream = 0;
        break;
    case TRI_ATTR_LOOKUP:
        trim(&plain.lookup.table);
        break;
    case TRI_ATTR_GROUPED:
        trim(&plain.grouped.table);
        break;
    case TRI_ATTR_MESSAGE:
        if (op == TRI_OP_UNSHARD || op == TRI_OP_BROADCAST || op == TRI_OP_RECV)
            trim(&plain.message.made.shape);
        break;
    default:
        break;
    }
    return plain;
}

static bool same_attr(tri_op op, const tri_attr *a, const tri_attr *b)
{
    tri_attr x = plain_attr(op, a), y = plain_attr(op, b);
    return memcmp(&x, &y, sizeof x) == 0;
}

/* Layers are counted from the first; -1 and num_layers are the model's ends. */
static int part_of(const tri_program *program, const tri_instr *instr)
{
    return instr->layer < 0 ? -1 : instr->layer >= program->num_layers;
}

/* Whether an instruction of a program does the same as one of the longer. */
static bool same_instr(const extender *e, const tri_program *pa, uint32_t i, uint32_t j)
{
    const tri_instr *a = &pa->instrs[i], *b = &e->more->instrs[j];
    if (a->op != b->op || a->num_in != b->num_in || a->num_out != b->num_out ||
        part_of(pa, a) != part_of(e->more, b) || a->redone != b->redone || a->border != b->border ||
        a->last_only != b->last_only || a->first_only != b->first_only || a->where != b->where ||
        a->scratch_bytes + b->scratch_bytes > 0 || a->cost.flops != b->cost.flops ||
        a->cost.bytes != b->cost.bytes || (a->message == TRI_NONE) != (b->message == TRI_NONE))
        return false;
    for (int k = 0; k < a->num_in; k++)
        if (!same_operand(e, pa, &a->in[k], &b->in[k]))
            return false;
    for (int k = 0; k < a->num_out; k++)
        if (!same_operand(e, pa, &a->out[k], &b->out[k]) ||
            tri_extend_makes(pa, i, &a->out[k]) != tri_extend_makes(e->more, j, &b->out[k]))
            return false;
    return same_attr(a->op, &a->attr, &b->attr);
}

/* ---- where the runs are ---- */

static bool add_run(extender *e, uint32_t first, uint32_t count)
{
    extend_run *runs = tri_array_grow(e->runs, e->num_runs, &e->capacity, sizeof *runs);
    e->no_memory |= !runs;
    if (!runs)
        return false;
    e->runs = runs;
    runs[e->num_runs++] = (extend_run){first, count};
    return true;
}

/* Whether the longer program has so many instructions from j on that repeat those before them, all
 * of which the shorter one has, and goes on as the shorter one does from i on. */
static bool repeats(const extender *e, const tri_segment *b, uint32_t j, uint32_t count, uint32_t i,
                    uint32_t left)
{
    uint32_t end = b->first + b->count;
    if (j - b->first < count || end - j < count)
        return false;
    if (left > 0 && (j + count == end || !same_instr(e, e->less, i, j + count)))
        return false;
    for (uint32_t k = 0; k < count; k++)
        if (e->match[j + k - count] == TRI_NONE || !same_instr(e, e->more, j + k - count, j + k))
            return false;
    return true;
}

static bool align_segment(extender *e, const tri_segment *a, const tri_segment *b)
{
    uint32_t i = a->first, end = a->first + a->count, j = b->first;
    if (a->action != b->action || a->chunk != b->chunk || b->count < a->count)
        return false;
    uint32_t spare = b->count - a->count;
    while (j < b->first + b->count) {
        if (i < end && same_instr(e, e->less, i, j)) {
            e->match[j++] = i++;
            continue;
        }
        uint32_t count = spare;
        while (count > 0 && !repeats(e, b, j, count, i, end - i))
            count--;
        if (count == 0 || !add_run(e, j, count))
            return false;
        spare -= count;
        j += count;
    }
    return i == end;
}

static bool align(extender *e)
{
    for (size_t m = 0; m < e->more->num_instrs; m++)
        e->match[m] = TRI_NONE;
    for (size_t s = 0; s < e->more->num_segments; s++)
        if (!align_segment(e, &e->less->segments[s], &e->more->segments[s]))
            return false;
    return true;
}

/* ---- instructions ---- */

/* An address moves with each time as it did from the instruction before to its repetition, and with
 * each step as from the shorter program. Modulo 2^64, since it may go down. */
static void move(const extender *e, const extend_copy *c, const tri_operand *like,
                 const tri_operand *less, tri_operand *operand)
{
    if (operand->value != TRI_NONE && e->more->spaces[operand->space].kind != TRI_SPACE_WORK)
        operand->offset +=
            (operand->offset - like->offset) * c->time + (like->offset - less->offset) * e->steps;
}

static void put(extender *e, const extend_copy *c, uint32_t segment)
{
    tri_program *to = e->to;
    uint32_t i = (uint32_t)to->num_instrs++;
    tri_instr *instr = &to->instrs[i];
    const tri_instr *like = &e->more->instrs[c->like], *less = &e->less->instrs[c->less];
    *instr = e->more->instrs[c->own];
    e->segment[i] = segment;
    for (int k = 0; k < instr->num_in; k++)
        move(e, c, &like->in[k], &less->in[k], &instr->in[k]);
    for (int k = 0; k < instr->num_out; k++)
        move(e, c, &like->out[k], &less->out[k], &instr->out[k]);
    tri_extend_put_pieces(e, c, i);
}

/* Where the instructions of the longer program will be. */
static void find_places(extender *e)
{
    uint32_t at = 0, next = 0;
    for (uint32_t j = 0; j < e->more->num_instrs; j++) {
        e->at[j] = at++;
        if (next < e->num_runs && j + 1 == e->runs[next].first + e->runs[next].count)
            at += e->runs[next++].count * e->steps;
    }
}

static void put_segment(extender *e, uint32_t s, size_t *next)
{
    const tri_segment *from = &e->more->segments[s];
    tri_segment *segment = &e->to->segments[s];
    *segment = *from;
    segment->first = (uint32_t)e->to->num_instrs;
    for (uint32_t j = from->first; j < from->first + from->count;) {
        const extend_run *r = *next < e->num_runs ? &e->runs[*next] : NULL;
        if (!r || r->first != j) {
            put(e, &(extend_copy){j, j, e->match[j], 0, NULL}, s);
            j++;
            continue;
        }
        for (uint32_t time = 0; time <= e->steps; time++)
            for (uint32_t k = 0; k < r->count; k++) {
                uint32_t like = j + k - r->count;
                put(e, &(extend_copy){j + k, like, e->match[like], time, r}, s);
            }
        j += r->count;
        ++*next;
    }
    segment->count = (uint32_t)e->to->num_instrs - segment->first;
}

/* ---- the extended program ---- */

static bool make_room(extender *e)
{
    const tri_program *more = e->more;
    tri_program *to = e->to;
    size_t num = more->num_instrs;
    for (size_t r = 0; r < e->num_runs; r++)
        num += (size_t)e->runs[r].count * e->steps;
    to->instrs = malloc((num + 1) * sizeof *to->instrs);
    to->segments = malloc((more->num_segments + 1) * sizeof *to->segments);
    to->spaces = malloc((more->num_spaces + 1) * sizeof *to->spaces);
    e->at = malloc((more->num_instrs + 1) * sizeof *e->at);
    if (!to->instrs || !to->segments || !to->spaces || !e->at || !tri_extend_pieces_init(e, num))
        return false;
    memcpy(to->spaces, more->spaces, more->num_spaces * sizeof *to->spaces);
    return true;
}

static tr_status make(extender *e, bool *fits, tr_error *err)
{
    tri_program *to = e->to;
    if (!make_room(e))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program of a stage");
    for (uint32_t s = 0; s < to->num_spaces; s++)
        to->spaces[s].bytes = to->spaces[s].kind == TRI_SPACE_WORK
                                  ? 0
                                  : to->spaces[s].bytes + growth(e, s) * e->steps;
    size_t next = 0;
    find_places(e);
    for (uint32_t s = 0; s < to->num_segments; s++)
        put_segment(e, s, &next);
    *fits = !e->unlike;
    if (e->no_memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the layers of a stage");
    if (!*fits)
        return TR_OK;
    TRI_TRY(tri_extend_place(e, err));
    return tri_make_messages(to, err);
}

static bool comparable(const tri_program *less, const tri_program *more)
{
    return less->pieces && more->pieces && less->once == more->once && more->num_pairs == 0 &&
           less->laid_grad_bytes + more->laid_grad_bytes == 0 && spaces_grow(less, more);
}

tr_status tri_program_extend(const tri_program *less, const tri_program *more, uint32_t steps,
                             tri_program *to, bool *fits, tr_error *err)
{
    extender e = {.less = less, .more = more, .steps = steps, .to = to};
    *to = *more;
    tri_arena_init(&to->arena);
    to->instrs = NULL;
    to->segments = NULL;
    to->spaces = NULL;
    to->messages = NULL;
    to->groups = NULL;
    to->num_instrs = to->num_messages = to->num_groups = 0;
    e.match = malloc((more->num_instrs + 1) * sizeof *e.match);
    tr_status status = e.match ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a stage");
    *fits = status == TR_OK && comparable(less, more) && align(&e);
    if (e.no_memory)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the layers of a stage");
    if (status == TR_OK && *fits)
        status = make(&e, fits, err);
    free(e.match);
    free(e.runs);
    free(e.at);
    tri_extend_pieces_fini(&e);
    if (status != TR_OK || !*fits)
        tri_program_extend_fini(to);
    return status;
}

void tri_program_extend_fini(tri_program *program)
{
    free(program->instrs);
    free(program->segments);
    free(program->spaces);
    free(program->messages);
    free(program->groups);
    *program = (tri_program){0};
}
