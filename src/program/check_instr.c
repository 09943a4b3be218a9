/* One instruction on names instead of numbers: does it find what it wants to read, and may it write
 * where it writes? */
#include <inttypes.h>
#include <string.h>

#include "program/check_parts.h"

static const char *name_of(const tri_checker *c, tri_id value)
{
    if (value == TRI_NONE) /* check_scratch */
        return "the scratch of a kernel";
    return value < c->program->num_values ? c->program->values[value].name : "?";
}

static uint64_t bytes_of(const tri_checker *c, const tri_operand *operand)
{
    return c->bytes[operand->value];
}

static tr_status locate(const tri_checker *c, const tri_operand *operand, const char *verb,
                        tri_check_region **r)
{
    const tri_program *program = c->program;
    if (operand->value >= program->num_values)
        return tri_checker_complain(c, "%s an operand that is missing", verb);
    if (operand->space >= program->num_spaces)
        return tri_checker_complain(c, "%s %s in a space that does not exist", verb,
                                    name_of(c, operand->value));
    const tri_space *space = &program->spaces[operand->space];
    uint64_t bytes = bytes_of(c, operand);
    uint64_t align = tri_where_align(space->where);
    if (operand->offset % align != 0)
        return tri_checker_complain(
            c, "%s %s at %s+%" PRIu64 ", which is not a multiple of %" PRIu64, verb,
            name_of(c, operand->value), space->name, operand->offset, align);
    if (space->where != c->instr->where && !tri_op_get(c->instr->op)->communicates)
        return tri_checker_complain(c, "computes on the %s, but %s %s at %s+%" PRIu64,
                                    tri_where_name(c->instr->where), verb,
                                    name_of(c, operand->value), space->name, operand->offset);
    if (operand->offset > space->bytes || bytes > space->bytes - operand->offset)
        return tri_checker_complain(
            c, "%s %s at %s+%" PRIu64 ", %" PRIu64 " bytes, past the end of %" PRIu64, verb,
            name_of(c, operand->value), space->name, operand->offset, bytes, space->bytes);
    bool versions = space->kind == TRI_SPACE_PARAM || space->kind == TRI_SPACE_COPY;
    uint32_t instance = space->kind == TRI_SPACE_FRAME || versions ? c->call->frame[operand->space]
                        : space->kind == TRI_SPACE_BATCH           ? c->call->microbatch
                                                                   : 0;
    if (instance >= space->num_instances)
        return tri_checker_complain(c, "%s %s in %s number %u, but there are %u", verb,
                                    name_of(c, operand->value), space->name, instance,
                                    space->num_instances);
    *r = &c->regions[operand->space][instance];
    if (space->kind == TRI_SPACE_FRAME && (*r)->holder != c->call->microbatch)
        return tri_checker_complain(c, "%s %s in %s number %u, which is not this micro-batch's",
                                    verb, name_of(c, operand->value), space->name, instance);
    return TR_OK;
}

/* Finds the piece that lies exactly on the operand, or says what is there instead. */
static tr_status look(const tri_checker *c, const tri_operand *operand, const char *verb,
                      tri_check_piece **found)
{
    tri_check_region *r;
    TRI_TRY(locate(c, operand, verb, &r));
    const tri_value *value = &c->program->values[operand->value];
    const char *space = c->program->spaces[operand->space].name;
    uint64_t end = operand->offset + bytes_of(c, operand);
    size_t i = tri_checker_find(r, operand->offset);
    *found = i < r->count ? &r->pieces[i] : NULL;
    if (!*found || (*found)->begin >= end)
        return tri_checker_complain(c, "%s %s at %s+%" PRIu64 ", where nothing has been written",
                                    verb, value->name, space, operand->offset);
    if ((*found)->begin != operand->offset || (*found)->end != end)
        return tri_checker_complain(c, "%s %s at %s+%" PRIu64 ", where %s lies in part", verb,
                                    value->name, space, operand->offset,
                                    name_of(c, (*found)->value));
    return TR_OK;
}

/* Contributions of different chunks may come in any order: the sum is whole when all are there,
 * whichever came last. */
static bool same_sum(const tri_checker *c, tri_id a, tri_id b)
{
    const tri_program *program = c->program;
    return a < program->num_values && c->sums[a] && c->sums[b] &&
           program->values[a].state == program->values[b].state;
}

static tr_status check_read(const tri_checker *c, const tri_operand *operand)
{
    tri_check_region *region;
    tri_check_piece *found;
    TRI_TRY(locate(c, operand, "reads", &region));
    const tri_value *value = &c->program->values[operand->value];
    if (bytes_of(c, operand) == 0) /* an empty piece is nowhere */
        return TR_OK;
    TRI_TRY(look(c, operand, "reads", &found));
    if (found->value != operand->value && !same_sum(c, found->value, operand->value)) {
        if (value->state != TRI_NONE && found->value != TRI_NONE &&
            c->program->values[found->value].state == value->state)
            return tri_checker_complain(
                c, "reads %s in a version that has been replaced (or not made yet)", value->name);
        return tri_checker_complain(c, "reads %s, but %s has been written over it", value->name,
                                    name_of(c, found->value));
    }
    if (value->state != TRI_NONE) {
        uint32_t expected = c->contributions[value->state];
        if (expected && found->contributions != expected)
            return tri_checker_complain(c, "reads %s with %u of %u contributions added",
                                        value->name, found->contributions, expected);
    } else if (value->kind == TRI_VALUE_TEMP && found->microbatch != c->call->microbatch &&
               found->microbatch != TRI_NONE) {
        return tri_checker_complain(c, "reads %s of micro-batch %u", value->name,
                                    found->microbatch);
    }
    bool of_one =
        value->kind == TRI_VALUE_TEMP ? found->microbatch != TRI_NONE : value->per_microbatch;
    if (c->instr->first_only && of_one)
        return tri_checker_complain(
            c, "runs once for all micro-batches, but reads %s, which is of one", value->name);
    return TR_OK;
}

/* A sum in a temporary: what was added before, of this micro-batch, lies where it goes on. */
static tr_status check_goes_on(const tri_checker *c, int k)
{
    const tri_operand *out = &c->instr->out[k];
    tri_check_piece *found;
    if (bytes_of(c, out) == 0)
        return TR_OK;
    TRI_TRY(look(c, out, "adds to", &found));
    if (found->value != c->instr->prev[k] || found->microbatch != c->call->microbatch)
        return tri_checker_complain(c, "adds to %s, but its place holds %s", name_of(c, out->value),
                                    name_of(c, found->value));
    return TR_OK;
}

/* What the output's place must hold before the write. */
static tr_status check_before_write(const tri_checker *c, int k, uint32_t *contributions)
{
    const tri_instr *instr = c->instr;
    const tri_operand *out = &instr->out[k];
    const char *name = name_of(c, out->value);
    tri_check_piece *found = NULL;
    *contributions = 0;
    bool had = false;
    if (instr->write[k] == TRI_WRITE_START || instr->write[k] == TRI_WRITE_ADD) {
        tri_checker quiet = *c; /* finding nothing is no error here */
        quiet.err = NULL;
        if (c->program->values[out->value].kind == TRI_VALUE_TEMP)
            return check_goes_on(c, k);
        bool first = instr->write[k] == TRI_WRITE_START && c->call->first;
        had =
            look(&quiet, out, "adds to", &found) == TR_OK && same_sum(c, found->value, out->value);
        if (first && had && found->contributions && !c->updated)
            return tri_checker_complain(c, "overwrites %s, which holds %u contributions already",
                                        name, found->contributions);
        if (!first && !had)
            return tri_checker_complain(c, "adds to %s, which nothing has started", name);
        *contributions = first ? 1 : found->contributions + 1;
        return TR_OK;
    }
    TRI_TRY(look(c, out, "updates", &found));
    if (found->value != instr->prev[k] && !same_sum(c, found->value, instr->prev[k]))
        return tri_checker_complain(c, "updates %s, but its place holds %s in another version",
                                    name, name_of(c, found->value));
    *contributions = found->contributions;
    return TR_OK;
}

static bool same_place(const tri_operand *a, const tri_operand *b)
{
    return a->space == b->space && a->offset == b->offset;
}

static bool overlap(const tri_checker *c, const tri_operand *a, const tri_operand *b)
{
    return a->space == b->space && a->offset < b->offset + bytes_of(c, b) &&
           b->offset < a->offset + bytes_of(c, a);
}

static tr_status check_overlaps(const tri_checker *c, int k)
{
    const tri_instr *instr = c->instr;
    const tri_op_def *def = tri_op_get(instr->op);
    const tri_operand *out = &instr->out[k];
    for (int j = 0; j < instr->num_in; j++) {
        const tri_operand *in = &instr->in[j];
        if (in->value == TRI_NONE || !overlap(c, out, in))
            continue;
        bool allowed = (def->may_alias[k] >> j & 1) || def->updates[k] == j + 1;
        if (!allowed || !same_place(out, in))
            return tri_checker_complain(
                c, "writes %s over its own input %s, which it cannot do in place",
                name_of(c, out->value), name_of(c, in->value));
    }
    for (int other = 0; other < k; other++)
        if (overlap(c, out, &instr->out[other]))
            return tri_checker_complain(c, "writes %s and %s to the same place",
                                        name_of(c, out->value),
                                        name_of(c, instr->out[other].value));
    return TR_OK;
}

static tr_status check_output(const tri_checker *c, int k)
{
    const tri_instr *instr = c->instr;
    const tri_operand *out = &instr->out[k];
    tri_check_region *r;
    TRI_TRY(locate(c, out, "writes", &r));
    tri_space_kind kind = c->program->spaces[out->space].kind;
    if (kind == TRI_SPACE_STEP || kind == TRI_SPACE_BATCH)
        return tri_checker_complain(c, "writes %s into the step's inputs", name_of(c, out->value));
    TRI_TRY(check_overlaps(c, k));
    uint8_t updates = tri_op_get(instr->op)->updates[k];
    if (instr->write[k] == TRI_WRITE_UPDATE && updates && !same_place(out, &instr->in[updates - 1]))
        return tri_checker_complain(c, "updates %s in another place than it reads it from",
                                    name_of(c, out->value));
    uint32_t contributions = 0;
    if (instr->write[k] != TRI_WRITE_NEW)
        TRI_TRY(check_before_write(c, k, &contributions));
    uint64_t bytes = bytes_of(c, out);
    return tri_checker_put(
        c, r,
        (tri_check_piece){.begin = out->offset,
                          .end = out->offset + bytes,
                          .value = out->value,
                          .microbatch = c->instr->first_only ? TRI_NONE : c->call->microbatch,
                          .contributions = contributions});
}

/* Optional inputs may be absent; the squares of nothing are right only where there are no others.
 */
static bool may_lack(const tri_checker *c, const tri_op_def *def, int input)
{
    size_t num_squares = 0;
    for (size_t i = 0; c->instr->op == TRI_OP_SUM_SQUARES && i < c->program->num_instrs; i++)
        num_squares += c->program->instrs[i].op == TRI_OP_SUM_SQUARES &&
                       same_place(&c->program->instrs[i].out[0], &c->instr->out[0]);
    return (def->optional >> input & 1) && num_squares <= 1;
}

/* Scratch lies on nothing that the instruction reads or writes, and what it lies on is lost. */
static tr_status check_scratch(const tri_checker *c)
{
    const tri_instr *instr = c->instr;
    uint64_t begin = instr->scratch_offset, end = begin + instr->scratch_bytes;
    const tri_space *work = &c->program->spaces[TRI_SPACE_WORK];
    if (instr->scratch_bytes == 0)
        return TR_OK;
    if (end < begin || end > work->bytes || begin % TRI_PROGRAM_ALIGN != 0)
        return tri_checker_complain(c,
                                    "has its scratch at work+%" PRIu64 ", %" PRIu64
                                    " bytes, which is not in the %" PRIu64 " there",
                                    begin, instr->scratch_bytes, work->bytes);
    for (int o = 0; o < instr->num_in + instr->num_out; o++) {
        const tri_operand *operand =
            o < instr->num_in ? &instr->in[o] : &instr->out[o - instr->num_in];
        if (operand->value == TRI_NONE || operand->space != TRI_SPACE_WORK)
            continue;
        uint64_t bytes = bytes_of(c, operand);
        if (operand->offset < end && begin < operand->offset + bytes)
            return tri_checker_complain(c, "has its scratch on its own operand %s",
                                        name_of(c, operand->value));
    }
    return tri_checker_put(c, &c->regions[TRI_SPACE_WORK][0],
                           (tri_check_piece){.begin = begin, .end = end, .value = TRI_NONE});
}

static tr_status check_shapes(const tri_checker *c)
{
    const tri_instr *instr = c->instr;
    const tri_op_def *def = tri_op_get(instr->op);
    tri_node node = {
        .op = instr->op, .attr = instr->attr, .num_in = instr->num_in, .num_out = instr->num_out};
    tri_shape in[TRI_MAX_IN], out[TRI_MAX_OUT];
    const tri_value *values[TRI_MAX_IN] = {NULL};
    tri_dtype dtype[TRI_MAX_OUT];
    for (int j = 0; j < instr->num_in; j++) {
        in[j] = (tri_shape){.rank = -1};
        if (instr->in[j].value < c->program->num_values)
            values[j] = &c->program->values[instr->in[j].value];
        else if (!may_lack(c, def, j))
            return tri_checker_complain(c, "lacks its input number %d", j);
        if (values[j])
            in[j] = values[j]->shape;
    }
    if (instr->num_in < def->min_in || instr->num_out < def->min_out)
        return tri_checker_complain(c, "has too few operands");
    tri_infer_dtypes(instr->op, &instr->attr, values, instr->num_in, dtype, instr->num_out);
    tr_error why;
    if (def->infer(&node, in, out, dtype, &why) != TR_OK)
        return tri_checker_complain(c, "does not fit its operands: %s", why.message);
    for (int k = 0; k < instr->num_out; k++) {
        const tri_value *value = &c->program->values[instr->out[k].value];
        if (value->state != TRI_NONE)
            dtype[k] = c->program->states[value->state].dtype;
        if (!tri_shape_equal(&out[k], &value->shape) || dtype[k] != value->dtype)
            return tri_checker_complain(c, "gives %s another shape or type than the program notes",
                                        value->name);
    }
    return TR_OK;
}

tr_status tri_checker_instr(tri_checker *c)
{
    bool *fits = &c->fits[c->instr - c->program->instrs];
    if (!*fits)
        TRI_TRY(check_shapes(c));
    *fits = true;
    for (int j = 0; j < c->instr->num_in; j++)
        if (c->instr->in[j].value != TRI_NONE)
            TRI_TRY(check_read(c, &c->instr->in[j]));
    TRI_TRY(check_scratch(c));
    for (int k = 0; k < c->instr->num_out; k++)
        TRI_TRY(check_output(c, k));
    return TR_OK;
}
