/* The messages of a program: which instructions travel together, who takes part, which bytes move.
 *
 * All of it is worked out here, once, when values have their addresses; program/message.h has the
 * records. An instruction that communicates is one tensor: those of a bucket, and states that are
 * neighbours in memory, travel in one message. */
#include "program/messages.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/code.h"

_Static_assert((int)TRI_GROUP_MAX_LISTED >= (int)TRI_MAX_HOMES, "a group lists all homes");

const char *tri_message_kind_name(tri_message_kind kind)
{
    static const char *const names[TRI_NUM_MESSAGE_KINDS] = {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift",
        "broadcast",  "send",       "recv",           "fetch",      "stash"};
    return names[kind];
}

tri_message_kind tri_message_kind_of(tri_op op)
{
    switch (op) {
    case TRI_OP_ALL_GATHER:
    case TRI_OP_SHARD_GATHER:
    case TRI_OP_UNSHARD:
        return TRI_MESSAGE_ALL_GATHER;
    case TRI_OP_REDUCE_SCATTER:
    case TRI_OP_SHARD_SUM:
        return TRI_MESSAGE_REDUCE_SCATTER;
    case TRI_OP_ALL_TO_ALL:
    case TRI_OP_ALL_TO_ALL_ROWS:
        return TRI_MESSAGE_ALL_TO_ALL;
    case TRI_OP_SHIFT:
        return TRI_MESSAGE_SHIFT;
    case TRI_OP_BROADCAST:
        return TRI_MESSAGE_BROADCAST;
    case TRI_OP_SEND:
        return TRI_MESSAGE_SEND;
    case TRI_OP_RECV:
        return TRI_MESSAGE_RECV;
    case TRI_OP_FETCH:
        return TRI_MESSAGE_FETCH;
    case TRI_OP_STASH:
        return TRI_MESSAGE_STASH;
    default:
        return TRI_MESSAGE_ALL_REDUCE;
    }
}

/* ---- who ---- */

tri_rank_group tri_message_group_of(const tri_program *program, const tri_attr *attr)
{
    if (attr->message.axis == TRI_AXIS_HOME)
        return tri_grid_homes(&program->grid, attr->message.homes.place, attr->message.homes.num);
    return tri_grid_group(&program->grid, attr->message.axis);
}

bool tri_same_ranks(const tri_attr *a, const tri_attr *b)
{
    const tri_message_attr *x = &a->message, *y = &b->message;
    if (x->axis != y->axis || x->axis != TRI_AXIS_HOME)
        return x->axis == y->axis;
    bool same = x->homes.num == y->homes.num;
    for (uint32_t i = 0; same && i < x->homes.num; i++)
        same = x->homes.place[i] == y->homes.place[i];
    return same;
}

bool tri_may_travel_together(const tri_node *a, const tri_node *b)
{
    return a->op == b->op && a->attr.message.axis == b->attr.message.axis &&
           a->attr.message.how == b->attr.message.how;
}

/* ---- how much each has ---- */

uint64_t tri_message_part(const tri_program *program, const tri_message *message,
                          const tri_division *parts, uint32_t member)
{
    uint64_t elements = 0;
    int part = (int)member;
    switch (parts->kind) {
    case TRI_DIVISION_NONE:
        return message->elements;
    case TRI_DIVISION_EVEN:
    case TRI_DIVISION_ROOM:
        return parts->scale;
    case TRI_DIVISION_ONE:
        return member == parts->place ? parts->scale : 0;
    case TRI_DIVISION_CUT:
        return parts->scale * (uint64_t)tri_cut_size(&parts->cut, part);
    case TRI_DIVISION_FLAT:
        return (uint64_t)(tri_flat_begin(&parts->flat, part + 1) -
                          tri_flat_begin(&parts->flat, part));
    case TRI_DIVISION_OWNED:
        for (uint32_t k = 0; k < message->count; k++) {
            const tri_flat *flat = &program->instrs[message->first + k].attr.flat;
            elements += flat->owner == part ? (uint64_t)tri_flat_padded(flat, flat->count) : 0;
        }
        break;
    }
    return elements;
}

void tri_message_counts(const tri_program *program, const tri_message *message,
                        const tri_division *parts, uint64_t *counts)
{
    uint32_t size = program->groups[message->group].size;
    bool owned = parts->kind == TRI_DIVISION_OWNED;
    for (uint32_t member = 0; member < size; member++)
        counts[member] = owned ? 0 : tri_message_part(program, message, parts, member);
    for (uint32_t k = 0; owned && k < message->count; k++) {
        const tri_flat *flat = &program->instrs[message->first + k].attr.flat;
        counts[flat->owner] += (uint64_t)tri_flat_padded(flat, flat->count);
    }
}

/* Elements of the bucket before this rank's. */
static uint64_t before_own(const tri_program *program, const tri_message *message)
{
    const tri_instr *head = &program->instrs[message->first];
    const tri_flat *own = &head->attr.flat;
    uint64_t before = 0;
    if (!own->whole)
        return (uint64_t)tri_flat_begin(own, own->part);
    for (uint32_t k = 0; k < message->count; k++) {
        const tri_flat *flat = &head[k].attr.flat;
        before += flat->owner < own->part ? (uint64_t)tri_flat_padded(flat, flat->count) : 0;
    }
    return before;
}

/* ---- where ---- */

static void widen(tri_extent *hull, tri_extent more)
{
    if (more.space == TRI_NONE)
        return;
    if (hull->space == TRI_NONE)
        *hull = more;
    uint64_t end = hull->offset + hull->bytes, other = more.offset + more.bytes;
    hull->offset = more.offset < hull->offset ? more.offset : hull->offset;
    hull->bytes = (other > end ? other : end) - hull->offset;
}

tri_extent tri_operand_extent(const tri_program *program, const tri_operand *operand)
{
    if (operand->value == TRI_NONE)
        return (tri_extent){.space = TRI_NONE};
    return (tri_extent){operand->space, operand->offset,
                        tri_value_bytes(&program->values[operand->value])};
}

/* Around all that the tensors of a message are read from, or written to. */
static tri_extent hull_of(const tri_program *program, const tri_message *message, bool written)
{
    tri_extent hull = {.space = TRI_NONE};
    for (uint32_t k = 0; k < message->count; k++) {
        const tri_instr *instr = &program->instrs[message->first + k];
        if (written ? instr->num_out > 0 : instr->num_in > 0)
            widen(&hull, tri_operand_extent(program, written ? &instr->out[0] : &instr->in[0]));
    }
    return hull;
}

static tri_extent piece_of(tri_extent whole, uint64_t skip, uint64_t bytes)
{
    if (whole.space == TRI_NONE)
        return whole;
    return (tri_extent){whole.space, whole.offset + skip, bytes};
}

/* A bucket of divided tensors: this rank's part lies within the whole, or apart (unshard). */
static void describe_bucket(const tri_program *program, tri_message *m)
{
    const tri_instr *head = &program->instrs[m->first];
    const tri_flat *flat = &head->attr.flat;
    uint64_t element = tri_dtype_bytes(m->dtype);
    tri_division parts = {.kind = flat->whole ? TRI_DIVISION_OWNED : TRI_DIVISION_FLAT,
                          .flat = *flat};
    uint64_t own = tri_message_part(program, m, &parts, (uint32_t)flat->part) * element;
    uint64_t before = before_own(program, m) * element, whole = (uint64_t)flat->total * element;
    m->elements = (uint64_t)flat->total;
    switch (m->kind) {
    case TRI_MESSAGE_ALL_REDUCE: /* of this rank's slice, over its copies */
        m->elements = own / element;
        m->send = piece_of(m->reads, before, own);
        m->recv = piece_of(m->writes, before, own);
        break;
    case TRI_MESSAGE_REDUCE_SCATTER:
        m->send = piece_of(m->reads, 0, whole);
        m->recv = piece_of(m->writes, before, own);
        m->send_parts = parts;
        break;
    default:
        m->send = piece_of(m->reads, head->op == TRI_OP_UNSHARD ? 0 : before, own);
        m->recv = piece_of(m->writes, 0, whole);
        m->recv_parts = parts;
    }
}

/* So many elements, divided as a dim is cut, of which there may be nothing; a cut of no dim makes
 * equal blocks. */
static tri_division divide(const tri_cut *cut, uint64_t elements)
{
    return (tri_division){.kind = cut->dim == TRI_NO_DIM ? TRI_DIVISION_EVEN : TRI_DIVISION_CUT,
                          .scale = cut->size > 0 ? elements / (uint64_t)cut->size : 0,
                          .cut = *cut};
}

/* Elements of what all ranks together have, of which this one's has the shape. */
uint64_t tri_message_whole(const tri_program *program, const tri_message *m)
{
    const tri_message_attr *attr = &program->instrs[m->first].attr.message;
    if (m->send_parts.kind == TRI_DIVISION_ROOM)
        return program->groups[m->group].size * m->send.bytes / tri_dtype_bytes(m->dtype);
    const tri_shape *shape = &program->values[m->value].shape;
    bool exchanges = m->kind == TRI_MESSAGE_ALL_TO_ALL;
    uint64_t elements =
        attr->cut.dim == TRI_NO_DIM ? program->groups[m->group].size : (uint64_t)attr->cut.size;
    bool scatters = exchanges && attr->scatter.dim != TRI_NO_DIM;
    elements *= scatters ? (uint64_t)attr->scatter.size : 1;
    for (int d = 0; d < shape->rank; d++)
        if (d != attr->cut.dim && !(scatters && d == attr->scatter.dim))
            elements *= (uint64_t)shape->dim[d].size;
    return elements;
}

uint32_t tri_shift_place(const tri_program *program, const tri_message *m, bool sends)
{
    const tri_rank_group *group = &program->groups[m->group];
    uint32_t on = m->peer % group->size;
    return (group->own + (sends ? on : group->size - on)) % group->size;
}

/* Rooms, one behind the other, and the counts that say what of them is used. */
static void describe_rooms(const tri_program *program, tri_message *m)
{
    const tri_instr *head = &program->instrs[m->first];
    const tri_shape *shape = &program->values[m->value].shape;
    uint64_t room = (uint64_t)(tri_shape_count(shape) / shape->dim[0].size);
    m->send_parts = (tri_division){
        .kind = TRI_DIVISION_ROOM, .scale = room, .row = room / (uint64_t)shape->dim[1].size};
    m->recv_parts = m->send_parts;
    for (int k = 0; k < 2; k++)
        m->counts[k] = tri_operand_extent(program, &head->in[1 + k]);
    m->elements = tri_message_whole(program, m);
}

/* A value as it is, or cut along a dim. */
static void describe_value(const tri_program *program, tri_message *m)
{
    const tri_attr *attr = &program->instrs[m->first].attr;
    uint64_t element = tri_dtype_bytes(m->dtype);
    m->elements = tri_message_moved(m) / element;
    switch (m->kind) {
    case TRI_MESSAGE_ALL_GATHER:
        m->recv_parts = divide(&attr->message.cut, m->elements);
        break;
    case TRI_MESSAGE_REDUCE_SCATTER:
        m->send_parts = divide(&attr->message.cut, m->elements);
        break;
    case TRI_MESSAGE_ALL_TO_ALL:
        if (program->instrs[m->first].op == TRI_OP_ALL_TO_ALL_ROWS) {
            describe_rooms(program, m);
            break;
        }
        m->send_parts = divide(&attr->message.scatter, m->send.bytes / element);
        m->recv_parts = divide(&attr->message.cut, m->recv.bytes / element);
        m->elements = tri_message_whole(program, m);
        break;
    case TRI_MESSAGE_SHIFT:
        m->send_parts = (tri_division){.kind = TRI_DIVISION_ONE,
                                       .scale = m->send.bytes / element,
                                       .place = tri_shift_place(program, m, true)};
        m->recv_parts = (tri_division){.kind = TRI_DIVISION_ONE,
                                       .scale = m->recv.bytes / element,
                                       .place = tri_shift_place(program, m, false)};
        m->elements = tri_message_whole(program, m);
        break;
    default:
        break;
    }
}

uint64_t tri_carry_bytes(const tri_program *program, const tri_message *m)
{
    uint64_t bytes = tri_message_bytes(m), block = TRI_BLOCK_BYTES;
    bool file = program->spaces[m->reads.space].where == TRI_WHERE_FILE ||
                program->spaces[m->writes.space].where == TRI_WHERE_FILE;
    return file ? (bytes + block - 1) / block * block : bytes;
}

/* A value as it is; files have whole blocks of it. */
static void describe_carry(const tri_program *program, tri_message *m)
{
    m->elements = m->send.bytes / tri_dtype_bytes(m->dtype);
    m->send.bytes = m->recv.bytes = tri_carry_bytes(program, m);
}

static void describe(const tri_program *program, tri_message *m)
{
    const tri_instr *head = &program->instrs[m->first];
    m->value = tri_instr_value(head);
    tri_dtype dtype = program->values[m->value].dtype;
    m->dtype = tri_dtype_code(dtype) ? TRI_U8 : dtype; /* blocks of a code travel as they are */
    m->peer = head->attr.message.peer;
    m->how = head->attr.message.how;
    m->border = head->border;
    m->counts[0] = m->counts[1] = (tri_extent){.space = TRI_NONE};
    m->last_only = head->last_only;
    m->first_only = head->first_only;
    m->send = m->reads = hull_of(program, m, false);
    m->recv = m->writes = hull_of(program, m, true);
    if (tri_message_carries(m))
        describe_carry(program, m);
    else if (head->attr.flat.parts > 0)
        describe_bucket(program, m);
    else
        describe_value(program, m);
    widen(&m->reads, m->send); /* with the padding */
    widen(&m->writes, m->recv);
}

/* ---- which ---- */

typedef struct collector {
    tri_program *program;
    size_t capacity; /* of groups */
    uint32_t *axis;  /* of each group */
    size_t axis_capacity;
    const tri_attr *last; /* that a group was found for, and its number */
    uint32_t last_group;
} collector;

/* The number of the group that an instruction names. */
static tr_status find_group(collector *c, const tri_attr *attr, uint32_t *number, tr_error *err)
{
    tri_program *program = c->program;
    *number = c->last_group;
    if (c->last && tri_same_ranks(c->last, attr))
        return TR_OK;
    tri_rank_group group = tri_message_group_of(program, attr);
    for (*number = 0; *number < program->num_groups; ++*number)
        if (tri_rank_group_equal(&program->groups[*number], &group))
            return TR_OK;
    tri_rank_group *groups =
        tri_array_grow(program->groups, program->num_groups, &c->capacity, sizeof *groups);
    if (groups)
        program->groups = groups;
    uint32_t *axis = tri_array_grow(c->axis, program->num_groups, &c->axis_capacity, sizeof *axis);
    if (axis)
        c->axis = axis;
    if (!groups || !axis)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    axis[program->num_groups] = attr->message.axis;
    groups[program->num_groups++] = group;
    return TR_OK;
}

static uint64_t aligned_end(const tri_program *program, const tri_operand *operand)
{
    uint64_t end = operand->offset + tri_value_bytes(&program->values[operand->value]);
    return (end + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
}

/* Whether an instruction's tensor can travel with that of the instruction before it, over the same
 * group: the same bucket of divided tensors, or states that are neighbours in memory. */
static bool rides_with(const tri_program *program, const tri_instr *instr, const tri_instr *last)
{
    const tri_flat *flat = &instr->attr.flat, *other = &last->attr.flat;
    if (instr->op != last->op || instr->attr.message.how != last->attr.message.how ||
        instr->last_only != last->last_only || instr->first_only != last->first_only)
        return false;
    if (flat->parts > 0)
        return flat->offset > 0 &&
               flat->offset == other->offset + tri_flat_padded(other, other->count);
    if (tri_message_kind_of(instr->op) != TRI_MESSAGE_ALL_REDUCE)
        return false;
    const tri_operand *out = &instr->out[0], *before = &last->out[0];
    const tri_value *value = &program->values[out->value];
    const tri_value *neighbour = &program->values[before->value];
    return value->state != TRI_NONE && neighbour->state != TRI_NONE &&
           out->space == before->space && value->dtype == neighbour->dtype &&
           out->offset == aligned_end(program, before);
}

static tr_status collect_segment(collector *c, const tri_segment *segment, tr_error *err)
{
    tri_program *program = c->program;
    tri_message *open = NULL; /* that the instruction before belongs to */
    for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
        tri_instr *instr = &program->instrs[i];
        uint32_t group;
        if (!tri_op_get(instr->op)->communicates) {
            open = NULL;
            continue;
        }
        if (instr->op == TRI_OP_FETCH || instr->op == TRI_OP_STASH) {
            group = TRI_NONE;
        } else {
            TRI_TRY(find_group(c, &instr->attr, &group, err));
            c->last = &instr->attr;
            c->last_group = group;
        }
        if (!open || open->group != group || !rides_with(program, instr, instr - 1)) {
            open = &program->messages[program->num_messages++];
            *open =
                (tri_message){.kind = tri_message_kind_of(instr->op), .group = group, .first = i};
        }
        open->count++;
        instr->message = (uint32_t)(open - program->messages);
    }
    return TR_OK;
}

tri_carry_lane tri_message_carry_lane(const tri_program *program, const tri_message *m)
{
    if (program->spaces[m->reads.space].where == TRI_WHERE_FILE ||
        program->spaces[m->writes.space].where == TRI_WHERE_FILE)
        return TRI_CARRY_FILE;
    return m->kind == TRI_MESSAGE_FETCH ? TRI_CARRY_IN : TRI_CARRY_OUT;
}

/* A lane for each name of a group, in the order of axes; behind them those of fetch and stash. */
static uint32_t lane_of(const collector *c, uint32_t group)
{
    uint32_t lane = 0;
    if (group == TRI_NONE) {
        for (uint32_t g = 0; g < c->program->num_groups; g++)
            lane = lane_of(c, g) + 1 > lane ? lane_of(c, g) + 1 : lane;
        return lane;
    }
    for (uint32_t g = 0; g < c->program->num_groups; g++) {
        bool first = c->axis[g] < c->axis[group];
        for (uint32_t before = 0; before < g; before++)
            first &= c->axis[before] != c->axis[g];
        lane += first;
    }
    return lane;
}

static tr_status collect(collector *c, tr_error *err)
{
    tri_program *program = c->program;
    size_t num = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        program->instrs[i].message = TRI_NONE;
        num += tri_op_get(program->instrs[i].op)->communicates;
    }
    if (num == 0)
        return TR_OK;
    program->messages = calloc(num, sizeof *program->messages);
    if (!program->messages)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    for (size_t s = 0; s < program->num_segments; s++)
        TRI_TRY(collect_segment(c, &program->segments[s], err));
    tri_message *all = realloc(program->messages, program->num_messages * sizeof *all);
    program->messages = all ? all : program->messages; /* no more room than they need */
    for (size_t m = 0; m < program->num_messages; m++) {
        tri_message *message = &program->messages[m];
        message->lane = lane_of(c, message->group);
        describe(program, message);
        if (tri_message_carries(message))
            message->lane += tri_message_carry_lane(program, message);
    }
    return TR_OK;
}

tr_status tri_make_messages(tri_program *program, tr_error *err)
{
    collector c = {.program = program};
    tr_status status = collect(&c, err);
    free(c.axis);
    return status;
}

/* ---- for readers ---- */

void tri_message_lane_text(const tri_program *program, const tri_message *message, char *out,
                           size_t size)
{
    static const char *const names[TRI_NUM_CARRY_LANES] = {"in", "out", "file"};
    if (tri_message_carries(message))
        snprintf(out, size, "lane %s", names[tri_message_carry_lane(program, message)]);
    else
        snprintf(out, size, "over %s", program->groups[message->group].name);
}

bool tri_message_behind(const tri_message *a, const tri_message *b)
{
    if (tri_message_carries(a) || tri_message_carries(b))
        return a->lane == b->lane;
    return a->group == b->group && !tri_message_pairwise(a) && !tri_message_pairwise(b);
}
