/* The memory plan: every value gets an address from its lifetime, before anything is allocated.
 *
 * 1. A buffer is what shares one piece of memory: a value and those that take it over in place,
 *    where the operator table allows that and nobody reads the old value any more.
 * 2. Buffers that go to `work` are placed there largest first, at the lowest address that is free
 *    during their lifetime.
 * 3. Where every segment runs once, their order is the order of the step, and all buffers go to
 *    `work`: what dies in the backward makes room for what is born later in it, gradients among
 *    that (memory_grads.c).
 * 4. Otherwise a buffer whose first and last use lie in one segment goes to `work`, which all
 *    segments share. One that lives across segments goes to the frame of (segment of its birth,
 *    segment of its last use); nothing is reused within a frame. A segment is of one chunk: what
 *    crosses to another chunk of this rank is born in the one and dies in the other. What the first
 *    micro-batch makes for all of them goes to `gathered`, which is nobody else's for the step.
 *    Where segments are interleaved halves of a pair (pairs.c), the backward's part of `work`
 * begins behind the forward's.
 * 5. What a kernel asks for as scratch is a buffer of one instruction.
 * 6. What lies on the host has a `work` of its own there, placed likewise. What a message reads
 *    there or stashes stays a little longer, so that it need not be waited for at once; so does
 *    what a shift or an exchange between experts sends.
 * 7. States, inputs and outputs have spaces of their own and keep their address for the run
 *    (memory_states.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/memory_parts.h"

static uint32_t add_space(tri_program *program, tri_space_kind kind, tri_where where,
                          const char *name, uint32_t num_instances)
{
    tri_space *spaces = tri_array_grow(program->spaces, program->num_spaces,
                                       &program->spaces_capacity, sizeof *spaces);
    if (!spaces) {
        program->arena.failed = true;
        return 0;
    }
    program->spaces = spaces;
    tri_space *space = &spaces[program->num_spaces];
    *space = (tri_space){.kind = kind, .where = where, .num_instances = num_instances};
    snprintf(space->name, sizeof space->name, "%s", name);
    return (uint32_t)program->num_spaces++;
}

uint32_t tri_planner_space(tri_planner *p, tri_space_kind kind, tri_where where)
{
    const tri_program *program = p->program;
    if (where == TRI_WHERE_DEVICE)
        return kind;
    for (uint32_t s = TRI_SPACE_FRAME; s < program->num_spaces; s++)
        if (program->spaces[s].kind == kind && program->spaces[s].where == where)
            return s;
    char name[40];
    snprintf(name, sizeof name, "%s:%s", tri_where_name(where), program->spaces[kind].name);
    return add_space(p->program, kind, where, name, 1);
}

static void find_last_uses(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE) {
                p->last_use[node->in[j]] = (uint32_t)i;
                p->sent[node->in[j]] |= node->border;
            }
        for (int k = 0; k < node->num_out; k++) {
            if (p->last_use[node->out[k]] < i)
                p->last_use[node->out[k]] = (uint32_t)i;
            if (p->graph->values[node->out[k]].kind == TRI_VALUE_TEMP &&
                node->write[k] == TRI_WRITE_ADD)
                p->last_use[node->prev[k]] = (uint32_t)i;
        }
    }
}

/* The buffer of an input that output k may take over here, or TRI_NONE. */
static tri_id buffer_to_take_over(const tri_planner *p, const tri_node *node, int k,
                                  uint32_t position)
{
    uint16_t allowed = tri_op_get(node->op)->may_alias[k];
    if (node->write[k] == TRI_WRITE_UPDATE) /* a copy of a state: it changes where it lies */
        return p->buffer_of[node->prev[k]];
    for (int j = 0; j < node->num_in; j++) {
        tri_id in = node->in[j];
        if (!(allowed >> j & 1) || in == TRI_NONE || p->buffer_of[in] == TRI_NONE)
            continue;
        bool dead = p->last_use[in] == position && !p->sent[in];
        for (int other = 0; other < node->num_in; other++)
            dead &= other == j || node->in[other] != in; /* read twice: keep it simple */
        bool taken = false;
        for (int earlier = 0; earlier < k; earlier++)
            taken |= p->buffer_of[node->out[earlier]] == p->buffer_of[in];
        bool fits = tri_value_bytes(&p->graph->values[in]) ==
                        tri_value_bytes(&p->graph->values[node->out[k]]) &&
                    p->graph->values[in].bucket == 0;
        if (dead && !taken && fits)
            return p->buffer_of[in];
    }
    return TRI_NONE;
}

static void make_buffers(tri_planner *p)
{
    for (size_t v = 0; v < p->graph->num_values; v++)
        p->buffer_of[v] = TRI_NONE;
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        for (int k = 0; k < node->num_out; k++) {
            tri_id out = node->out[k];
            const tri_value *value = &p->graph->values[out];
            if (value->kind != TRI_VALUE_TEMP || value->output)
                continue;
            tri_id id = value->bucket ? p->bucket_buffer[value->bucket]
                        : node->write[k] == TRI_WRITE_ADD
                            ? p->buffer_of[node->prev[k]]
                            : buffer_to_take_over(p, node, k, (uint32_t)i);
            if (id == TRI_NONE && value->bucket) {
                id = p->bucket_buffer[value->bucket] = (tri_id)p->num_buffers++;
                p->buffers[id] =
                    (tri_buffer){.bytes = tri_planner_align((uint64_t)value->place.total *
                                                            tri_dtype_bytes(value->dtype)),
                                 .made = (uint32_t)i,
                                 .born = (uint32_t)i};
            }
            if (id == TRI_NONE) {
                id = (tri_id)p->num_buffers++;
                p->buffers[id] = (tri_buffer){
                    .bytes = tri_planner_align_at(tri_value_bytes(value), value->where),
                    .where = value->where,
                    .made = (uint32_t)i,
                    .born = (uint32_t)i};
            }
            p->buffer_of[out] = id;
            p->buffers[id].stays |= node->first_only;
            if (p->buffers[id].dies < p->last_use[out])
                p->buffers[id].dies = p->last_use[out];
        }
    }
}

/* Messages between stages may be under way far from where they stand: a send until its receiver
 * comes, a receive as early as its memory is free. So that they can, nothing else lies there after
 * the one, or before the other. */
static void lengthen_crossings(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        if (!node->border)
            continue;
        bool sends = node->num_in > 0;
        tri_id value = sends ? node->in[0] : node->out[0];
        if (p->buffer_of[value] == TRI_NONE)
            continue;
        tri_buffer *buffer = &p->buffers[p->buffer_of[value]];
        if (sends)
            buffer->dies = (uint32_t)p->order->count - 1;
        else
            buffer->born = 0;
    }
}

/* What fetch and stash read stays until the next of its kind behind some computation, since it may
 * be under way until then. */
static void lengthen_carries(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        bool carries = node->op == TRI_OP_FETCH || node->op == TRI_OP_STASH, computed = false;
        if (!carries || p->buffer_of[node->in[0]] == TRI_NONE)
            continue;
        tri_buffer *buffer = &p->buffers[p->buffer_of[node->in[0]]];
        size_t last = i;
        for (size_t n = i + 1; n < p->order->count && p->order->segment[n] == p->order->segment[i];
             n++) {
            const tri_node *later = &p->graph->nodes[p->order->node[n]];
            if (later->op == node->op && computed)
                break;
            computed |= !tri_op_get(later->op)->communicates;
            last = n;
        }
        buffer->dies = buffer->dies < last ? (uint32_t)last : buffer->dies;
    }
}

static bool reads(const tri_node *node, tri_id value)
{
    for (int j = 0; j < node->num_in; j++)
        if (node->in[j] == value)
            return true;
    return false;
}

/* Whether something is computed between a message and who reads it. */
static bool hides_behind_work(const tri_node *node)
{
    bool rows = node->op == TRI_OP_ALL_TO_ALL_ROWS && node->attr.message.axis == TRI_AXIS_EP;
    return node->op == TRI_OP_SHIFT || rows;
}

/* What a shift sends, or an exchange between experts, stays until what has come is read: so it is
 * under way for as long as the step of its ring computes, or as place_exchanges.c has put work
 * beside it. */
static void lengthen_sent(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        if (!hides_behind_work(node) || p->buffer_of[node->in[0]] == TRI_NONE)
            continue;
        tri_buffer *buffer = &p->buffers[p->buffer_of[node->in[0]]];
        size_t last = i;
        while (last + 1 < p->order->count && p->order->segment[last + 1] == p->order->segment[i] &&
               !reads(&p->graph->nodes[p->order->node[last + 1]], node->out[0]))
            last++;
        buffer->dies = buffer->dies < last ? (uint32_t)last : buffer->dies;
    }
}

static void make_scratch(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        uint64_t bytes = p->program->instrs[p->order->instr[i]].scratch_bytes;
        p->scratch_of[i] = bytes ? (tri_id)p->num_buffers : TRI_NONE;
        if (bytes)
            p->buffers[p->num_buffers++] = (tri_buffer){
                .bytes = tri_planner_align(bytes), .born = (uint32_t)i, .dies = (uint32_t)i};
    }
}

static uint32_t frame_space(tri_planner *p, uint32_t born, uint32_t dies, tri_where where)
{
    tri_program *program = p->program;
    for (uint32_t s = TRI_SPACE_FRAME; s < program->num_spaces; s++)
        if (program->spaces[s].kind == TRI_SPACE_FRAME && program->spaces[s].where == where &&
            program->spaces[s].born == born && program->spaces[s].dies == dies)
            return s;
    char name[64], from[24], to[24];
    snprintf(name, sizeof name, "frame %s%s%s>%s",
             where == TRI_WHERE_DEVICE ? "" : tri_where_name(where),
             where == TRI_WHERE_DEVICE ? "" : ":",
             tri_segment_text(program, &program->segments[born], from),
             tri_segment_text(program, &program->segments[dies], to));
    uint32_t s = add_space(program, TRI_SPACE_FRAME, where, name, 0);
    program->spaces[s].born = born;
    program->spaces[s].dies = dies;
    program->spaces[s].users =
        tri_arena_alloc(&program->arena, program->num_segments * sizeof(bool));
    return s;
}

static tr_status choose_spaces(tri_planner *p)
{
    tri_program *program = p->program;
    for (size_t b = 0; b < p->num_buffers; b++) {
        tri_buffer *piece = &p->buffers[b];
        uint32_t born = p->order->segment[piece->born], dies = p->order->segment[piece->dies];
        bool work = p->order->once || (born == dies && !piece->stays);
        piece->space = work           ? tri_planner_space(p, TRI_SPACE_WORK, piece->where)
                       : piece->stays ? TRI_SPACE_GATHERED
                                      : frame_space(p, born, dies, piece->where);
        if (program->arena.failed)
            return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
        if (!work) {
            tri_space *space = &program->spaces[piece->space];
            piece->offset = space->bytes;
            space->bytes += piece->bytes;
        }
    }
    return TR_OK;
}

static void note_user(tri_planner *p, tri_id value, uint32_t segment)
{
    if (value == TRI_NONE || p->buffer_of[value] == TRI_NONE)
        return;
    tri_space *space = &p->program->spaces[p->buffers[p->buffer_of[value]].space];
    if (space->kind == TRI_SPACE_FRAME)
        space->users[segment] = true;
}

/* Which segments touch each frame: it is held until the last of them has run, in whatever order
 * the schedule calls them. */
static void note_users(tri_planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        for (int j = 0; j < node->num_in; j++)
            note_user(p, node->in[j], p->order->segment[i]);
        for (int k = 0; k < node->num_out; k++)
            note_user(p, node->out[k], p->order->segment[i]);
    }
}

/* Every buffer has its address: so have the values. */
static void settle(tri_planner *p)
{
    tri_program *program = p->program;
    for (size_t v = 0; v < program->num_values; v++)
        if (p->buffer_of[v] != TRI_NONE) {
            const tri_buffer *piece = &p->buffers[p->buffer_of[v]];
            const tri_value *value = &program->values[v];
            uint64_t within =
                value->bucket ? (uint64_t)value->place.offset * tri_dtype_bytes(value->dtype) : 0;
            program->home[v] = (tri_operand){(tri_id)v, piece->space, piece->offset + within};
        }
    for (size_t i = 0; i < p->order->count; i++)
        if (p->scratch_of[i] != TRI_NONE)
            program->instrs[p->order->instr[i]].scratch_offset =
                p->buffers[p->scratch_of[i]].offset;
    if (p->lays_grads)
        tri_planner_settle_grads(p);
}

static tr_status plan(tri_planner *p)
{
    tri_program *program = p->program;
    static const char *const names[] = {"param",  "copy", "grad",  "optim",    "cache", "stat",
                                        "output", "step", "batch", "gathered", "work"};
    for (int kind = TRI_SPACE_PARAM; kind < TRI_SPACE_FRAME; kind++)
        add_space(program, (tri_space_kind)kind, TRI_WHERE_DEVICE, names[kind],
                  kind == TRI_SPACE_BATCH ? program->num_microbatches : 1);
    if (program->arena.failed)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    for (size_t v = 0; v < program->num_values; v++)
        program->home[v] = (tri_operand){.value = TRI_NONE, .space = TRI_NONE};
    if (p->lays_grads)
        tri_planner_group_grads(p);
    TRI_TRY(tri_planner_place_states(p));
    tri_planner_place_inputs_and_outputs(p);
    find_last_uses(p);
    make_buffers(p);
    if (p->order->once)
        lengthen_crossings(p);
    lengthen_carries(p);
    lengthen_sent(p);
    make_scratch(p);
    if (p->lays_grads)
        tri_planner_date_grads(p);
    TRI_TRY(choose_spaces(p));
    note_users(p);
    const tri_work_order order = {.program = program,
                                  .buffers = p->buffers,
                                  .num_buffers = p->num_buffers,
                                  .once = p->order->once,
                                  .segment = p->order->segment,
                                  .half = p->order->half};
    TRI_TRY(tri_place_work(&order, p->err));
    settle(p);
    return TR_OK;
}

/* For those who extend the program: made by an instruction, and alive between positions. */
static void keep_pieces(tri_planner *p)
{
    tri_program *program = p->program;
    for (size_t b = 0; b < p->num_buffers; b++)
        p->buffers[b].made = p->order->instr[p->buffers[b].made];
    program->pieces = p->buffers;
    program->num_pieces = p->num_buffers;
    program->piece_of = p->buffer_of;
    p->buffers = NULL;
    p->buffer_of = NULL;
}

/* All arrays of a plan; false when there is no memory for one. */
static bool make_room(tri_planner *p)
{
    const tri_graph *graph = p->graph;
    size_t values = graph->num_values + 1, states = graph->num_states + 1;
    size_t positions = p->order->count + 1;
    uint32_t buckets = tri_graph_num_buckets(graph) + 1;
    p->sent = calloc(values, sizeof *p->sent);
    p->last_use = calloc(values, sizeof *p->last_use);
    p->buffer_of = calloc(values, sizeof *p->buffer_of);
    p->scratch_of = calloc(positions, sizeof *p->scratch_of);
    p->grad_group = calloc(states, sizeof *p->grad_group);
    p->group_bytes = calloc(states, sizeof *p->group_bytes);
    p->grad_buffer = calloc(states, sizeof *p->grad_buffer);
    p->grad_offset = calloc(states, sizeof *p->grad_offset);
    p->buffers = calloc(values + states + positions, sizeof *p->buffers);
    p->bucket_buffer = malloc(buckets * sizeof *p->bucket_buffer);
    for (uint32_t b = 0; p->bucket_buffer && b < buckets; b++)
        p->bucket_buffer[b] = TRI_NONE;
    return p->sent && p->last_use && p->buffer_of && p->scratch_of && p->grad_group &&
           p->group_bytes && p->grad_buffer && p->grad_offset && p->buffers && p->bucket_buffer;
}

tr_status tri_plan_memory(const tri_graph *graph, const tri_placed_params *placed,
                          const tri_node_order *order, const tri_memory_needs *needs,
                          tri_program *program, tr_error *err)
{
    tri_planner p = {
        .graph = graph, .placed = placed, .order = order, .program = program, .err = err};
    p.lays_grads = order->once && !needs->grads_apart;
    program->once = order->once;
    tr_status status =
        make_room(&p) ? plan(&p) : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    if (status == TR_OK && needs->keep_pieces)
        keep_pieces(&p);
    free(p.sent);
    free(p.last_use);
    free(p.buffer_of);
    free(p.scratch_of);
    free(p.grad_group);
    free(p.group_bytes);
    free(p.grad_buffer);
    free(p.grad_offset);
    free(p.buffers);
    free(p.bucket_buffer);
    return status;
}
