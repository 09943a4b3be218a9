/* A proof of the checker: the records of messages say what their instructions do.
 *
 * Transports, overlap and simulation read the records alone, so these must name the group that the
 * instructions name, cover all of their operands, and divide the whole as they do. */
#include <inttypes.h>

#include "program/messages.h"

typedef struct record_check {
    const tri_program *program;
    const tri_message *message;
    tr_error *err;
} record_check;

static tr_status complain(const record_check *c, const char *what)
{
    const tri_message *m = c->message;
    return tri_fail(c->err, TR_ERROR_INPUT, "message %td (%s of %s, instruction %u): %s",
                    m - c->program->messages, tri_message_kind_name(m->kind),
                    m->value < c->program->num_values ? c->program->values[m->value].name : "?",
                    m->first, what);
}

static tr_status check_instrs(const record_check *c)
{
    const tri_program *program = c->program;
    const tri_message *m = c->message;
    uint32_t number = (uint32_t)(m - program->messages);
    if (m->count == 0 || m->first + (uint64_t)m->count > program->num_instrs)
        return complain(c, "it names instructions that do not exist");
    for (uint32_t k = 0; k < m->count; k++) {
        const tri_instr *instr = &program->instrs[m->first + k];
        if (instr->message != number || !tri_op_get(instr->op)->communicates)
            return complain(c, "it names an instruction that does not travel in it");
        if (tri_message_kind_of(instr->op) != m->kind || instr->attr.message.how != m->how)
            return complain(c, "it does something else than its instructions");
        if (instr->last_only != m->last_only || instr->first_only != m->first_only ||
            instr->border != m->border)
            return complain(c, "it runs at another time than its instructions");
    }
    return TR_OK;
}

/* Fetch goes one step nearer to the device, stash one step farther from it. */
static tr_status check_way(const record_check *c)
{
    const tri_program *program = c->program;
    const tri_message *m = c->message;
    if (m->group != TRI_NONE)
        return complain(c, "it names a group, though nobody else takes part");
    if (m->reads.space >= program->num_spaces || m->writes.space >= program->num_spaces)
        return complain(c, "it lacks an end");
    int from = (int)program->spaces[m->reads.space].where;
    int to = (int)program->spaces[m->writes.space].where;
    if (to != (m->kind == TRI_MESSAGE_FETCH ? from - 1 : from + 1))
        return tri_fail(c->err, TR_ERROR_INPUT,
                        "message %td (%s of %s, instruction %u) goes from the %s to the %s, which "
                        "is not its way",
                        m - program->messages, tri_message_kind_name(m->kind),
                        program->values[m->value].name, m->first, tri_where_name((tri_where)from),
                        tri_where_name((tri_where)to));
    return TR_OK;
}

static tr_status check_group(const record_check *c)
{
    const tri_program *program = c->program;
    const tri_message *m = c->message;
    if (tri_message_carries(m))
        return check_way(c);
    const tri_instr *instr = &program->instrs[m->first];
    if (m->group >= program->num_groups)
        return complain(c, "it names a group that does not exist");
    const tri_rank_group *group = &program->groups[m->group];
    tri_rank_group wanted = tri_message_group_of(program, &instr->attr);
    bool same = tri_rank_group_equal(group, &wanted);
    for (uint32_t k = 1; k < m->count; k++)
        same &= tri_same_ranks(&instr[k].attr, &instr->attr);
    if (!same)
        return complain(c, "its group has other members than its instructions name");
    if (group->own >= group->size ||
        tri_rank_group_member(group, group->own) != tri_grid_rank(&program->grid))
        return complain(c, "this rank has another place in its group");
    bool names_peer = tri_message_pairwise(m) || m->kind == TRI_MESSAGE_BROADCAST;
    if (m->peer != instr->attr.message.peer || (names_peer && m->peer >= group->size) ||
        (tri_message_pairwise(m) && m->peer == group->own))
        return complain(c, "it has another peer than its instructions name");
    return TR_OK;
}

/* Whether bytes lie within others; nothing lies in anything. */
static bool within(const tri_extent *inner, const tri_extent *outer)
{
    return inner->space == TRI_NONE || inner->bytes == 0 ||
           (inner->space == outer->space && inner->offset >= outer->offset &&
            inner->offset + inner->bytes <= outer->offset + outer->bytes);
}

static tr_status check_bytes(const record_check *c)
{
    const tri_program *program = c->program;
    const tri_message *m = c->message;
    const tri_extent *ends[] = {&m->reads, &m->writes};
    tri_extent first[2] = {{.space = TRI_NONE}, {.space = TRI_NONE}};
    for (uint32_t k = 0; k < m->count; k++) {
        const tri_instr *instr = &program->instrs[m->first + k];
        for (int end = 0; end < 2; end++) {
            if ((end ? instr->num_out : instr->num_in) == 0)
                continue;
            tri_extent own = tri_operand_extent(program, end ? &instr->out[0] : &instr->in[0]);
            if (!within(&own, ends[end]))
                return complain(c, end ? "it writes other bytes than its instructions"
                                       : "it reads other bytes than its instructions");
            if (first[end].space == TRI_NONE)
                first[end] = own;
        }
    }
    for (int end = 0; end < 2; end++)
        if (ends[end]->space != first[end].space ||
            (first[end].space != TRI_NONE && ends[end]->offset != first[end].offset))
            return complain(c, end ? "it writes other bytes than its instructions"
                                   : "it reads other bytes than its instructions");
    if (!within(&m->send, &m->reads) || !within(&m->recv, &m->writes))
        return complain(c, "it moves bytes that it does not name as read or written");
    for (int end = 0; end < 2; end++)
        if (ends[end]->space != TRI_NONE &&
            (ends[end]->space >= program->num_spaces ||
             ends[end]->offset + ends[end]->bytes > program->spaces[ends[end]->space].bytes))
            return complain(c, "it lies outside its space");
    return TR_OK;
}

/* Whether an end is divided as the first instruction says: its bucket, or this cut of a dim. */
static bool divides(const record_check *c, const tri_division *parts, const tri_cut *cut,
                    const tri_extent *whole)
{
    const tri_message *m = c->message;
    const tri_flat *flat = &c->program->instrs[m->first].attr.flat;
    const tri_rank_group *group = &c->program->groups[m->group];
    uint64_t sum = 0;
    const uint32_t looked_at[] = {0, group->own, group->size - 1};
    switch (parts->kind) {
    case TRI_DIVISION_NONE:
    case TRI_DIVISION_ONE:
        return false;
    case TRI_DIVISION_EVEN:
    case TRI_DIVISION_ROOM:
        sum = parts->scale * group->size;
        break;
    case TRI_DIVISION_CUT:
        sum = parts->scale * (uint64_t)cut->size;
        if (cut->parts != (int)group->size || cut->part != (int)group->own)
            return false;
        for (int i = 0; i < 3; i++)
            if (tri_message_part(c->program, m, parts, looked_at[i]) !=
                parts->scale * (uint64_t)tri_cut_size(cut, (int)looked_at[i]))
                return false;
        break;
    case TRI_DIVISION_FLAT:
    case TRI_DIVISION_OWNED:
        sum = (uint64_t)flat->total;
        if (flat->parts != (int)group->size || flat->part != (int)group->own ||
            parts->flat.parts != flat->parts || parts->flat.total != flat->total ||
            (parts->kind == TRI_DIVISION_OWNED) != flat->whole)
            return false;
    }
    return sum * tri_dtype_bytes(m->dtype) == whole->bytes;
}

/* Whether this rank's block has as many bytes as the division of the whole says. */
static bool has_own_block(const record_check *c, const tri_division *parts, const tri_extent *block)
{
    const tri_message *m = c->message;
    uint32_t own = c->program->groups[m->group].own;
    return block->space == TRI_NONE ||
           block->bytes == tri_message_part(c->program, m, parts, own) * tri_dtype_bytes(m->dtype);
}

/* Whether all of an end of a shift is one member's; check_ring says which. */
static bool is_one_block(const record_check *c, const tri_division *parts, const tri_extent *end)
{
    return parts->kind == TRI_DIVISION_ONE &&
           parts->scale * tri_dtype_bytes(c->message->dtype) == end->bytes;
}

/* A shift goes to the member, and comes from the one, that its distance names. */
static tr_status check_ring(const record_check *c)
{
    const tri_message *m = c->message;
    const tri_cut *cut = &c->program->instrs[m->first].attr.message.cut;
    if (m->kind != TRI_MESSAGE_SHIFT)
        return TR_OK;
    if (cut->dim != TRI_NO_DIM && cut->parts != (int)c->program->groups[m->group].size)
        return complain(c, "its pieces are not those of the ranks of its group");
    if (m->send_parts.place != tri_shift_place(c->program, m, true) ||
        m->recv_parts.place != tri_shift_place(c->program, m, false))
        return complain(c, "it goes to, or comes from, another rank than its distance says");
    return TR_OK;
}

static tr_status check_counts(const record_check *c)
{
    const tri_message *m = c->message;
    const tri_attr *attr = &c->program->instrs[m->first].attr;
    uint64_t all = tri_message_bytes(m);
    bool right;
    switch (m->kind) {
    case TRI_MESSAGE_ALL_GATHER:
        right = divides(c, &m->recv_parts, &attr->message.cut, &m->recv) && m->recv.bytes == all &&
                has_own_block(c, &m->recv_parts, &m->send);
        break;
    case TRI_MESSAGE_REDUCE_SCATTER:
        right = divides(c, &m->send_parts, &attr->message.cut, &m->send) && m->send.bytes == all &&
                has_own_block(c, &m->send_parts, &m->recv);
        break;
    case TRI_MESSAGE_ALL_TO_ALL:
        right = divides(c, &m->send_parts, &attr->message.scatter, &m->send) &&
                divides(c, &m->recv_parts, &attr->message.cut, &m->recv) &&
                m->elements == tri_message_whole(c->program, m);
        break;
    case TRI_MESSAGE_SHIFT:
        right = is_one_block(c, &m->send_parts, &m->send) &&
                is_one_block(c, &m->recv_parts, &m->recv) &&
                m->elements == tri_message_whole(c->program, m);
        break;
    case TRI_MESSAGE_FETCH:
    case TRI_MESSAGE_STASH:
        all = tri_carry_bytes(c->program, m);
        right = m->send.bytes == all && m->recv.bytes == all;
        break;
    default:
        right = (m->send.space == TRI_NONE || m->send.bytes == all) &&
                (m->recv.space == TRI_NONE || m->recv.bytes == all);
    }
    if (right)
        return TR_OK;
    return complain(c, tri_message_varies(m) ? "its rooms are not those of its buffers"
                                             : "its counts are not those of its instructions");
}

tr_status tri_check_messages(const tri_program *program, tr_error *err)
{
    record_check c = {.program = program, .err = err};
    for (size_t i = 0; i < program->num_messages; i++) {
        c.message = &program->messages[i];
        TRI_TRY(check_instrs(&c));
        TRI_TRY(check_group(&c));
        TRI_TRY(check_bytes(&c));
        TRI_TRY(check_counts(&c));
        TRI_TRY(check_ring(&c));
    }
    for (uint32_t i = 0; i < program->num_instrs; i++) {
        uint32_t message = program->instrs[i].message;
        bool communicates = tri_op_get(program->instrs[i].op)->communicates;
        if (communicates != (message < program->num_messages))
            return tri_fail(err, TR_ERROR_INPUT,
                            communicates ? "instruction %u communicates, but has no message"
                                         : "instruction %u computes, but is in a message",
                            i);
    }
    return TR_OK;
}
