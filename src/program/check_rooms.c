/* A proof of the checker: messages whose counts are data stay within their rooms, and no update
 * runs on rows that found no room.
 *
 * Of each such message: both lists of counts are made of one that fit_rooms has cut down to the
 * very room of the message, one of them by an all_to_all over the same ranks. What was cut off is
 * summed over all ranks of the run, finish reads the sum, and every instruction that updates a
 * parameter or a moment reads what finish says. Or both are inputs, a plan of the host's that
 * promises no count above the room: then nothing is ever cut off. That rooms lie within their
 * buffers is proven with the records (check_messages.c). */
#include "program/messages.h"

typedef struct room_check {
    const tri_program *program;
    const tri_message *message;
    tr_error *err;
} room_check;

static tr_status complain(const room_check *c, const char *what)
{
    const tri_message *m = c->message;
    return tri_fail(c->err, TR_ERROR_INPUT, "message %td (%s of %s, instruction %u): %s",
                    m - c->program->messages, tri_message_kind_name(m->kind),
                    c->program->values[m->value].name, m->first, what);
}

/* The instruction that makes a value, or NULL. */
static const tri_instr *maker_of(const tri_program *program, tri_id value)
{
    for (size_t i = 0; i < program->num_instrs && value != TRI_NONE; i++)
        for (int k = 0; k < program->instrs[i].num_out; k++)
            if (program->instrs[i].out[k].value == value)
                return &program->instrs[i];
    return NULL;
}

/* ---- the counts ---- */

static const tri_instr *fitted_by(const room_check *c, tri_id value)
{
    const tri_instr *maker = maker_of(c->program, value);
    bool fits = maker && maker->op == TRI_OP_FIT_ROOMS && maker->out[0].value == value;
    return fits ? maker : NULL;
}

/* Whether `got` is what the others make of their lists where this rank makes `sent`. */
static bool exchanged(const room_check *c, tri_id sent, tri_id got)
{
    const tri_instr *maker = maker_of(c->program, got);
    return maker && maker->op == TRI_OP_ALL_TO_ALL && maker->in[0].value == sent &&
           maker->message < c->program->num_messages &&
           c->program->messages[maker->message].group == c->message->group;
}

/* Counts that come with the batch, none above the room. */
static bool is_planned(const room_check *c, tri_id counts)
{
    const tri_value *value = &c->program->values[counts];
    const tri_message *m = c->message;
    return value->kind == TRI_VALUE_INPUT && value->most > 0 &&
           (uint64_t)value->most * m->send_parts.row <= m->send_parts.scale;
}

/* *fit: the instruction that says what fits; NULL: the host does. */
static tr_status check_counts(const room_check *c, const tri_instr **fit)
{
    const tri_message *m = c->message;
    const tri_instr *instr = &c->program->instrs[m->first];
    tri_id sent = instr->in[1].value, got = instr->in[2].value;
    *fit = exchanged(c, sent, got)   ? fitted_by(c, sent)
           : exchanged(c, got, sent) ? fitted_by(c, got)
                                     : NULL;
    bool planned = is_planned(c, sent) && is_planned(c, got) && sent != got;
    if (!*fit && !planned)
        return complain(c, "its counts are neither planned by the host for its room, nor a fitted "
                           "list and what an all_to_all of the same ranks makes of it");
    for (int k = 0; k < 2; k++) {
        tri_extent own = tri_operand_extent(c->program, &instr->in[1 + k]);
        if (m->counts[k].space != own.space || m->counts[k].offset != own.offset ||
            m->counts[k].bytes != own.bytes ||
            own.bytes != c->program->groups[m->group].size * sizeof(int32_t))
            return complain(c, "it reads its counts elsewhere than its instruction");
    }
    if (m->send_parts.row == 0 || m->recv_parts.row != m->send_parts.row)
        return complain(c, "its counts are of rows of another size than it has");
    if (*fit && (uint64_t)(*fit)->attr.message.room.rows * m->send_parts.row != m->send_parts.scale)
        return complain(c, "its counts are fitted to another room than it has");
    return TR_OK;
}

/* ---- the flag ---- */

/* Ranks that have joined a version of a statistic, as far as all_reduces lead back to this one. */
static uint64_t joined(const tri_program *program, tri_id from, tri_id version)
{
    uint64_t ranks = 1;
    while (version != from) {
        const tri_instr *maker = maker_of(program, version);
        if (!maker || maker->op != TRI_OP_ALL_REDUCE || maker->message >= program->num_messages)
            return 0;
        ranks *= program->groups[program->messages[maker->message].group].size;
        version = maker->in[0].value;
    }
    return ranks;
}

static uint64_t num_ranks(const tri_grid *grid)
{
    uint64_t ranks = 1;
    for (int f = 0; f < grid->num_factors; f++)
        ranks *= (uint64_t)grid->factor[f].size;
    return ranks;
}

/* The last version of the flag that contributions make: the one that is joined. */
static tri_id last_sum(const tri_program *program, tri_id flag)
{
    tri_id state = program->values[flag].state, last = flag;
    for (size_t i = 0; i < program->num_instrs; i++)
        for (int k = 0; k < program->instrs[i].num_out; k++) {
            const tri_instr *instr = &program->instrs[i];
            bool sums = instr->write[k] == TRI_WRITE_START || instr->write[k] == TRI_WRITE_ADD;
            if (sums && program->values[instr->out[k].value].state == state)
                last = instr->out[k].value;
        }
    return last;
}

/* The finish that reads the flag, joined over all ranks; or NULL. */
static const tri_instr *reader_of(const tri_program *program, tri_id flag)
{
    tri_id sum = last_sum(program, flag);
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        for (int j = 4; instr->op == TRI_OP_FINISH && j < instr->num_in; j++)
            if (instr->attr.finish.stops >> (j - 4) & 1 &&
                joined(program, sum, instr->in[j].value) == num_ranks(&program->grid))
                return instr;
    }
    return NULL;
}

static bool carries(const tri_instr *instr)
{
    return instr && (instr->op == TRI_OP_FETCH || instr->op == TRI_OP_STASH);
}

/* What a value is a copy of, at whatever place; itself, when it is none. */
static tri_id carried_from(const tri_program *program, tri_id value)
{
    const tri_instr *maker = maker_of(program, value);
    for (; carries(maker); maker = maker_of(program, value))
        value = maker->in[0].value;
    return value;
}

/* The instruction that computes what this one makes the next version of what training is about: it
 * itself, or, of one that carries it to where it rests, who made it. NULL: it makes none. */
static const tri_instr *updater_of(const tri_program *program, const tri_instr *instr)
{
    for (int k = 0; k < instr->num_out; k++) {
        tri_id state = program->values[instr->out[k].value].state;
        if (instr->write[k] != TRI_WRITE_UPDATE || state == TRI_NONE ||
            instr->op == TRI_OP_FINISH ||
            (program->states[state].kind != TRI_STATE_PARAM &&
             program->states[state].kind != TRI_STATE_OPTIM))
            continue;
        if (carries(instr)) {
            const tri_instr *maker = maker_of(program, carried_from(program, instr->in[0].value));
            return maker ? maker : instr;
        }
        if (!tri_op_get(instr->op)->communicates)
            return instr;
    }
    return NULL;
}

static bool reads_result(const tri_program *program, const tri_instr *instr, tri_id result)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value == result)
            return true;
    for (int j = 0; j < instr->num_in; j++) {
        tri_id value = instr->in[j].value;
        if (value != TRI_NONE && program->values[value].kind == TRI_VALUE_TEMP &&
            carried_from(program, value) == result)
            return true;
    }
    return false;
}

static tr_status check_flag(const room_check *c, const tri_instr *fit)
{
    const tri_program *program = c->program;
    tri_id flag = fit->out[1].value;
    if (program->values[flag].state == TRI_NONE)
        return complain(c, "what finds no room is counted in no statistic");
    const tri_instr *finish = reader_of(program, flag);
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *updater = updater_of(program, &program->instrs[i]);
        if (updater && !(finish && reads_result(program, updater, finish->out[0].value)))
            return complain(c, finish ? "an update does not read whether all rows found room"
                                      : "no finish reads whether all rows of all ranks found room");
    }
    return TR_OK;
}

tr_status tri_check_rooms(const tri_program *program, tr_error *err)
{
    room_check c = {.program = program, .err = err};
    for (size_t i = 0; i < program->num_messages; i++) {
        const tri_instr *fit;
        c.message = &program->messages[i];
        if (program->instrs[c.message->first].op != TRI_OP_ALL_TO_ALL_ROWS)
            continue;
        TRI_TRY(check_counts(&c, &fit));
        if (fit)
            TRI_TRY(check_flag(&c, fit));
    }
    return TR_OK;
}
