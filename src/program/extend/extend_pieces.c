/* Pieces of memory of an extended program: see extend.h. */
#include <stdlib.h>

#include "program/extend/extend_parts.h"

/* Of a piece, until positions are known. */
enum { AT_ITS_MAKING = UINT32_MAX - 1, AT_THE_END = UINT32_MAX - 2 };

bool tri_extend_makes(const tri_program *program, uint32_t i, const tri_operand *out)
{
    tri_id piece = program->piece_of[out->value];
    return piece != TRI_NONE && program->spaces[out->space].kind == TRI_SPACE_WORK &&
           program->pieces[piece].made == i;
}

/* When each instruction runs: they stand in that order, but where every segment runs once. The
 * caller frees it. */
static uint32_t *find_positions(const tri_program *program)
{
    uint32_t *position = malloc((program->num_instrs + 1) * sizeof *position), next = 0;
    for (uint32_t i = 0; position && i < program->num_instrs; i++)
        position[i] = i;
    for (size_t c = 0; position && program->once && c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            position[i] = next++;
    }
    return position;
}

static void note_use(const extender *e, const tri_operand *operand, uint32_t position)
{
    tri_id piece = operand->value == TRI_NONE ? TRI_NONE : e->more->piece_of[operand->value];
    if (piece != TRI_NONE && e->last_use[piece] < position)
        e->last_use[piece] = position;
}

static bool find_uses(extender *e)
{
    const tri_program *more = e->more;
    e->position = find_positions(more);
    e->last_use = calloc(more->num_pieces + 1, sizeof *e->last_use);
    for (size_t i = 0; e->position && e->last_use && i < more->num_instrs; i++) {
        const tri_instr *instr = &more->instrs[i];
        for (int k = 0; k < instr->num_in; k++)
            note_use(e, &instr->in[k], e->position[i]);
        for (int k = 0; k < instr->num_out; k++)
            note_use(e, &instr->out[k], e->position[i]);
    }
    return e->position && e->last_use;
}

bool tri_extend_pieces_init(extender *e, size_t num_instrs)
{
    size_t num_operands = (num_instrs + 1) * (TRI_MAX_IN + TRI_MAX_OUT);
    e->segment = malloc((num_instrs + 1) * sizeof *e->segment);
    e->first_piece = malloc((num_instrs + 1) * sizeof *e->first_piece);
    e->first_operand = calloc(num_instrs + 2, sizeof *e->first_operand);
    e->piece_of = malloc(num_operands * sizeof *e->piece_of);
    return e->segment && e->first_piece && e->first_operand && e->piece_of && find_uses(e);
}

void tri_extend_pieces_fini(extender *e)
{
    free(e->position);
    free(e->last_use);
    free(e->pieces);
    free(e->first_piece);
    free(e->piece_of);
    free(e->first_operand);
    free(e->segment);
}

/* ---- which pieces ---- */

/* Until when a piece is alive: so many positions behind its last use, or to the end. */
static uint32_t lasts(const extender *e, tri_id piece)
{
    uint32_t dies = e->more->pieces[piece].dies, more = dies - e->last_use[piece];
    return more > 0 && dies + 1 == e->more->num_instrs ? AT_THE_END : more;
}

/* It is alive from there, or from the beginning; any other lifetime cannot be told, nor one that is
 * not that of the layer before. */
static void make_piece(extender *e, const extend_copy *c, int k, uint32_t i)
{
    tri_id own = e->more->piece_of[e->more->instrs[c->own].out[k].value];
    tri_id like = e->more->piece_of[e->more->instrs[c->like].out[k].value];
    const tri_buffer *x = &e->more->pieces[own], *y = &e->more->pieces[like];
    bool at_once = x->born == e->position[c->own];
    e->unlike |= at_once != (y->born == e->position[c->like]) || (!at_once && x->born > 0) ||
                 lasts(e, own) != lasts(e, like);
    tri_buffer *pieces =
        tri_array_grow(e->pieces, e->num_pieces, &e->pieces_capacity, sizeof *pieces);
    e->no_memory |= !pieces;
    if (!pieces)
        return;
    e->pieces = pieces;
    pieces[e->num_pieces] = *x;
    pieces[e->num_pieces].made = i;
    pieces[e->num_pieces].born = at_once ? AT_ITS_MAKING : 0;
    pieces[e->num_pieces++].dies = lasts(e, own);
}

/* The run that an instruction of the longer program is in, or NULL. */
static const extend_run *run_at(const extender *e, uint32_t j)
{
    for (size_t r = 0; r < e->num_runs; r++)
        if (j >= e->runs[r].first && j < e->runs[r].first + e->runs[r].count)
            return &e->runs[r];
    return NULL;
}

/* Which instruction of the extended program makes what one that is put in once uses: the same as in
 * the longer one, and of those that are put in many times the last. */
static uint32_t maker_for_one(const extender *e, uint32_t made, uint32_t less_made)
{
    const extend_run *r = run_at(e, made);
    if (e->match[r ? made - r->count : made] != less_made)
        return TRI_NONE;
    return r ? e->at[made] + r->count * e->steps : e->at[made];
}

/* And one of many: that of the same time, or of so many times before; or what all of them use. */
static uint32_t maker_for_many(const extender *e, const extend_copy *c, uint32_t made,
                               uint32_t like_made)
{
    const extend_run *r = c->run;
    if (like_made == made)
        return run_at(e, made) ? TRI_NONE : e->at[made];
    if (made - like_made != r->count || made >= r->first + r->count)
        return TRI_NONE;
    uint32_t back = 0;
    while (made + back * r->count < r->first)
        back++;
    return c->time < back ? e->at[made + c->time * r->count]
                          : e->at[made + back * r->count] + (c->time - back) * r->count;
}

/* How many pieces an instruction makes before this one. */
static uint32_t place_among(const tri_program *program, tri_id piece)
{
    uint32_t place = 0, made = program->pieces[piece].made;
    const tri_instr *instr = &program->instrs[made];
    for (int k = 0; k < instr->num_out && program->piece_of[instr->out[k].value] != piece; k++)
        place += tri_extend_makes(program, made, &instr->out[k]);
    return place;
}

static tri_id find_piece(extender *e, const extend_copy *c, const tri_operand *own,
                         const tri_operand *like, const tri_operand *less)
{
    tri_id piece = e->more->piece_of[own->value];
    uint32_t made = e->more->pieces[piece].made;
    uint32_t like_made = e->more->pieces[e->more->piece_of[like->value]].made;
    uint32_t less_made = e->less->pieces[e->less->piece_of[less->value]].made;
    uint32_t maker = maker_for_one(e, like_made, less_made);
    if (c->run && maker != TRI_NONE)
        maker = maker_for_many(e, c, made, like_made);
    tri_id found =
        maker < e->to->num_instrs ? e->first_piece[maker] + place_among(e->more, piece) : TRI_NONE;
    bool right = found < e->num_pieces && e->pieces[found].made == maker &&
                 e->pieces[found].bytes == e->more->pieces[piece].bytes;
    e->unlike |= !right;
    return right ? found : TRI_NONE;
}

static void use_piece(extender *e, const extend_copy *c, size_t number, const tri_operand *own,
                      const tri_operand *like, const tri_operand *less, tri_operand *operand)
{
    e->piece_of[number] = TRI_NONE;
    if (own->value == TRI_NONE || e->more->spaces[own->space].kind != TRI_SPACE_WORK)
        return;
    e->piece_of[number] = find_piece(e, c, own, like, less);
    operand->offset -= e->more->pieces[e->more->piece_of[own->value]].offset;
}

void tri_extend_put_pieces(extender *e, const extend_copy *c, uint32_t i)
{
    const tri_instr *own = &e->more->instrs[c->own], *like = &e->more->instrs[c->like];
    const tri_instr *less = &e->less->instrs[c->less];
    tri_instr *instr = &e->to->instrs[i];
    size_t number = e->first_operand[i];
    e->first_operand[i + 1] = number + instr->num_in + instr->num_out;
    e->first_piece[i] = (uint32_t)e->num_pieces;
    for (int k = 0; k < own->num_out && !e->unlike && !e->no_memory; k++)
        if (tri_extend_makes(e->more, c->own, &own->out[k]))
            make_piece(e, c, k, i);
    for (int k = 0; k < own->num_in && !e->unlike; k++)
        use_piece(e, c, number++, &own->in[k], &like->in[k], &less->in[k], &instr->in[k]);
    for (int k = 0; k < own->num_out && !e->unlike; k++)
        use_piece(e, c, number++, &own->out[k], &like->out[k], &less->out[k], &instr->out[k]);
}

/* ---- where they lie ---- */

/* Lifetimes; false without memory. */
static bool date_pieces(extender *e)
{
    const tri_program *to = e->to;
    uint32_t *position = find_positions(to), *last = calloc(e->num_pieces + 1, sizeof *last);
    for (size_t i = 0; position && last && i < to->num_instrs; i++)
        for (size_t n = e->first_operand[i]; n < e->first_operand[i + 1]; n++) {
            tri_id piece = e->piece_of[n];
            if (piece != TRI_NONE && last[piece] < position[i])
                last[piece] = position[i];
        }
    for (size_t p = 0; position && last && p < e->num_pieces; p++) {
        tri_buffer *piece = &e->pieces[p];
        piece->born = piece->born == AT_ITS_MAKING ? position[piece->made] : piece->born;
        piece->dies =
            piece->dies == AT_THE_END ? (uint32_t)to->num_instrs - 1 : last[p] + piece->dies;
    }
    bool done = position && last;
    free(position);
    free(last);
    return done;
}

static void address(extender *e)
{
    tri_program *to = e->to;
    for (size_t i = 0; i < to->num_instrs; i++) {
        size_t number = e->first_operand[i];
        tri_instr *instr = &to->instrs[i];
        for (int k = 0; k < instr->num_in + instr->num_out; k++, number++) {
            tri_operand *operand =
                k < instr->num_in ? &instr->in[k] : &instr->out[k - instr->num_in];
            if (e->piece_of[number] != TRI_NONE)
                operand->offset += e->pieces[e->piece_of[number]].offset;
        }
    }
}

/* Where every piece lies, and with it what the operands are. */
tr_status tri_extend_place(extender *e, tr_error *err)
{
    tri_program *to = e->to;
    tri_half *half = calloc(to->num_segments + 1, sizeof *half);
    if (!half || !date_pieces(e)) {
        free(half);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the layers of a stage");
    }
    const tri_work_order order = {.program = to,
                                  .buffers = e->pieces,
                                  .num_buffers = e->num_pieces,
                                  .once = to->once,
                                  .segment = e->segment,
                                  .half = half};
    tr_status status = tri_place_work(&order, err);
    free(half);
    if (status == TR_OK)
        address(e);
    return status;
}
