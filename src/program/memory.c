/* The memory plan: every value gets an address from its lifetime, before anything is allocated.
 *
 * 1. A buffer is what shares one piece of memory: a value and those that take it over in place,
 *    where the operator table allows that and nobody reads the old value any more.
 * 2. A buffer whose first and last use lie in one segment goes to `work`, where pieces are placed
 *    largest first at the lowest address that is free during their lifetime. All segments share it.
 * 3. A buffer that lives across segments goes to the frame of (segment of its birth, segment of its
 *    last use); nothing is reused within a frame. A segment is of one chunk: what crosses to
 * another chunk of this rank is born in the one and dies in the other.
 * 4. States, inputs and outputs have spaces of their own and keep their address for the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

typedef struct buffer {
    uint64_t bytes, offset;
    uint32_t born, dies; /* positions in the order, inclusive */
    uint32_t space;
} buffer;

typedef struct planner {
    const tri_graph *graph;
    const tri_node_order *order;
    tri_program *program;
    bool *sent;            /* of each value: a message reads it, whenever that may go */
    uint32_t *last_use;    /* position of the last reader of each value, or of its maker */
    tri_id *buffer_of;     /* buffer of each temporary, or TRI_NONE */
    tri_id *bucket_buffer; /* buffer of each bucket of temporaries, or TRI_NONE */
    buffer *buffers;
    size_t num_buffers;
    tr_error *err;
} planner;

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
}

static uint32_t add_space(tri_program *program, tri_space_kind kind, const char *name,
                          uint32_t num_instances)
{
    tri_space *spaces = tri_array_grow(program->spaces, program->num_spaces,
                                       &program->spaces_capacity, sizeof *spaces);
    if (!spaces) {
        program->arena.failed = true;
        return 0;
    }
    program->spaces = spaces;
    tri_space *space = &spaces[program->num_spaces];
    *space = (tri_space){.kind = kind, .num_instances = num_instances};
    snprintf(space->name, sizeof space->name, "%s", name);
    return (uint32_t)program->num_spaces++;
}

/* The next free piece of a space in which nothing is reused. */
static tri_operand take(tri_program *program, uint32_t space, tri_id value)
{
    tri_operand home = {.value = value, .space = space, .offset = program->spaces[space].bytes};
    program->spaces[space].bytes += align_up(tri_value_bytes(&program->values[value]));
    return home;
}

/* The space of states of a kind is the one of the same place in this list. */
static const tri_space_kind space_of_state[TRI_NUM_STATE_KINDS] = {
    [TRI_STATE_PARAM] = TRI_SPACE_PARAM, [TRI_STATE_COPY] = TRI_SPACE_COPY,
    [TRI_STATE_GRAD] = TRI_SPACE_GRAD,   [TRI_STATE_OPTIM] = TRI_SPACE_OPTIM,
    [TRI_STATE_STAT] = TRI_SPACE_STAT,   [TRI_STATE_CACHE] = TRI_SPACE_CACHE,
};

/* What this rank has of a parameter or its copy. A program that has no use for it (evaluation in 16
 * bits needs no masters) still leaves the room that training takes. */
static int64_t own_count(const tri_graph *graph, uint32_t kind, size_t i)
{
    bool has_copy = tri_param_has_copy(&graph->params->items[i], graph->precision.compute);
    int64_t first;
    if (graph->elsewhere && graph->elsewhere[i])
        return 0;
    if (graph->flats && (graph->weights_divided || (kind == TRI_SPACE_PARAM && has_copy)))
        return tri_flat_slice(&graph->flats[i], graph->flats[i].part, &first);
    return tri_shape_count(&graph->local_shape[i]);
}

/* Parameters, their copies and, where tensors are divided flat, their gradients lie in the order of
 * their buckets: whether they have a copy or not within a layer, then as in their table; whatever
 * the graph's order, so that all programs of a run agree on their addresses. */
static void place_by_table(planner *p, uint32_t kind, const tri_id *state_of, size_t i,
                           tri_dtype dtype)
{
    tri_program *program = p->program;
    const tri_graph *graph = p->graph;
    tri_space *space = &program->spaces[kind];
    int64_t count = own_count(graph, kind, i);
    if (state_of[i] != TRI_NONE) {
        tri_id version = program->states[state_of[i]].latest;
        program->home[version] = (tri_operand){version, kind, space->bytes};
        count = tri_shape_count(&program->states[state_of[i]].shape);
    }
    if (graph->flats)
        space->bytes += (uint64_t)tri_flat_padded(count) * tri_dtype_bytes(dtype);
    else
        space->bytes += align_up((uint64_t)count * tri_dtype_bytes(dtype));
}

static void place_param(planner *p, size_t i)
{
    const tri_graph *graph = p->graph;
    tri_id grad = graph->grad_state[i];
    place_by_table(p, TRI_SPACE_PARAM, graph->param_state, i, TRI_F32);
    if (tri_param_has_copy(&graph->params->items[i], graph->precision.compute))
        place_by_table(p, TRI_SPACE_COPY, graph->copy_state, i, graph->precision.compute);
    if (graph->flats && grad != TRI_NONE)
        place_by_table(p, TRI_SPACE_GRAD, graph->grad_state, i, p->program->states[grad].dtype);
}

/* Whether a parameter lies in the bucket of another of its layer. */
static bool same_bucket(const tri_graph *graph, size_t a, size_t b)
{
    const tri_param *x = &graph->params->items[a], *y = &graph->params->items[b];
    return (!graph->home_set || graph->home_set[a] == graph->home_set[b]) &&
           tri_param_has_copy(x, graph->precision.compute) ==
               tri_param_has_copy(y, graph->precision.compute);
}

/* Those of a layer that have a copy, then the others; bucket by bucket. */
static tr_status place_params(planner *p)
{
    const tri_graph *graph = p->graph;
    size_t count = graph->params->count, first = 0;
    bool *done = calloc(count + 1, sizeof *done);
    if (!done)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    while (first < count) {
        size_t end = first;
        while (end < count && graph->params->items[end].layer == graph->params->items[first].layer)
            end++;
        for (int with_copy = 1; with_copy >= 0; with_copy--)
            for (size_t b = first; b < end; b++) {
                bool has = tri_param_has_copy(&graph->params->items[b], graph->precision.compute);
                for (size_t i = b; i < end && has == with_copy; i++)
                    if (!done[i] && same_bucket(graph, b, i)) {
                        done[i] = true;
                        place_param(p, i);
                    }
            }
        first = end;
    }
    free(done);
    return TR_OK;
}

static bool placed_by_table(const planner *p, const tri_state *state)
{
    return state->kind == TRI_STATE_PARAM || state->kind == TRI_STATE_COPY ||
           (state->kind == TRI_STATE_GRAD && p->graph->flats);
}

static tr_status place_states(planner *p)
{
    tri_program *program = p->program;
    TRI_TRY(place_params(p));
    /* Those of one type together, so that they can travel in one message. */
    for (tri_dtype dtype = 0; dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = 0; s < program->num_states; s++) {
            const tri_state *state = &program->states[s];
            if (state->dtype == dtype && !placed_by_table(p, state))
                program->home[state->latest] =
                    take(program, space_of_state[state->kind], state->latest);
        }
    for (size_t v = 0; v < program->num_values; v++) {
        tri_id state = program->values[v].state;
        if (state == TRI_NONE)
            continue;
        program->home[v] = program->home[program->states[state].latest];
        program->home[v].value = (tri_id)v;
    }
    return TR_OK;
}

static void place_inputs_and_outputs(planner *p)
{
    tri_program *program = p->program;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        if (value->kind == TRI_VALUE_INPUT)
            program->home[v] =
                take(program, value->per_microbatch ? TRI_SPACE_BATCH : TRI_SPACE_STEP, (tri_id)v);
        else if (value->output && value->kind == TRI_VALUE_TEMP)
            program->home[v] = take(program, TRI_SPACE_OUTPUT, (tri_id)v);
    }
}

static void find_last_uses(planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE) {
                p->last_use[node->in[j]] = (uint32_t)i;
                p->sent[node->in[j]] |= node->op == TRI_OP_SEND;
            }
        for (int k = 0; k < node->num_out; k++)
            if (p->last_use[node->out[k]] < i)
                p->last_use[node->out[k]] = (uint32_t)i;
    }
}

/* The buffer of an input that output k may take over here, or TRI_NONE. */
static tri_id buffer_to_take_over(const planner *p, const tri_node *node, int k, uint32_t position)
{
    uint16_t allowed = tri_op_get(node->op)->may_alias[k];
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

static void make_buffers(planner *p)
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
                                      : buffer_to_take_over(p, node, k, (uint32_t)i);
            if (id == TRI_NONE && value->bucket) {
                id = p->bucket_buffer[value->bucket] = (tri_id)p->num_buffers++;
                p->buffers[id] = (buffer){
                    .bytes = align_up((uint64_t)value->place.total * tri_dtype_bytes(value->dtype)),
                    .born = (uint32_t)i};
            }
            if (id == TRI_NONE) {
                id = (tri_id)p->num_buffers++;
                p->buffers[id] =
                    (buffer){.bytes = align_up(tri_value_bytes(value)), .born = (uint32_t)i};
            }
            p->buffer_of[out] = id;
            if (p->buffers[id].dies < p->last_use[out])
                p->buffers[id].dies = p->last_use[out];
        }
    }
}

static uint32_t frame_space(planner *p, uint32_t born, uint32_t dies)
{
    tri_program *program = p->program;
    for (uint32_t s = TRI_SPACE_FRAME; s < program->num_spaces; s++)
        if (program->spaces[s].born == born && program->spaces[s].dies == dies)
            return s;
    char name[64], from[24], to[24];
    snprintf(name, sizeof name, "frame %s>%s",
             tri_segment_text(program, &program->segments[born], from),
             tri_segment_text(program, &program->segments[dies], to));
    uint32_t s = add_space(program, TRI_SPACE_FRAME, name, 0);
    program->spaces[s].born = born;
    program->spaces[s].dies = dies;
    program->spaces[s].users =
        tri_arena_alloc(&program->arena, program->num_segments * sizeof(bool));
    return s;
}

static tr_status choose_spaces(planner *p)
{
    tri_program *program = p->program;
    for (size_t b = 0; b < p->num_buffers; b++) {
        buffer *piece = &p->buffers[b];
        uint32_t born = p->order->segment[piece->born], dies = p->order->segment[piece->dies];
        piece->space = born == dies ? TRI_SPACE_WORK : frame_space(p, born, dies);
        if (program->arena.failed)
            return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
        if (born != dies) {
            tri_space *frame = &program->spaces[piece->space];
            piece->offset = frame->bytes;
            frame->bytes += piece->bytes;
        }
    }
    return TR_OK;
}

static void note_user(planner *p, tri_id value, uint32_t segment)
{
    if (value == TRI_NONE || p->buffer_of[value] == TRI_NONE)
        return;
    tri_space *space = &p->program->spaces[p->buffers[p->buffer_of[value]].space];
    if (space->kind == TRI_SPACE_FRAME)
        space->users[segment] = true;
}

/* Which segments touch each frame: it is held until the last of them has run, in whatever order
 * the schedule calls them. */
static void note_users(planner *p)
{
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &p->graph->nodes[p->order->node[i]];
        for (int j = 0; j < node->num_in; j++)
            note_user(p, node->in[j], p->order->segment[i]);
        for (int k = 0; k < node->num_out; k++)
            note_user(p, node->out[k], p->order->segment[i]);
    }
}

static int larger_first(const void *a, const void *b)
{
    const buffer *x = *(buffer *const *)a, *y = *(buffer *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y; /* the order of making: results must not depend on qsort */
}

/* Lowest address at which the piece meets no placed piece of an overlapping lifetime. placed is
 * sorted by address. */
static size_t find_room(buffer *const *placed, size_t count, buffer *piece)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const buffer *other = placed[i];
        if (other->born > piece->dies || other->dies < piece->born)
            continue;
        if (other->offset >= at + piece->bytes)
            break;
        if (other->offset + other->bytes > at)
            at = other->offset + other->bytes;
    }
    piece->offset = at;
    size_t position = count;
    while (position > 0 && placed[position - 1]->offset > at)
        position--;
    return position;
}

static tr_status place_work(planner *p)
{
    buffer **queue = malloc((2 * p->num_buffers + 1) * sizeof(buffer *));
    if (!queue)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    buffer **placed = queue + p->num_buffers;
    tri_space *work = &p->program->spaces[TRI_SPACE_WORK];
    for (uint32_t segment = 0; segment < p->program->num_segments; segment++) {
        size_t waiting = 0, count = 0;
        for (size_t b = 0; b < p->num_buffers; b++)
            if (p->buffers[b].space == TRI_SPACE_WORK &&
                p->order->segment[p->buffers[b].born] == segment)
                queue[waiting++] = &p->buffers[b];
        qsort(queue, waiting, sizeof *queue, larger_first);
        for (size_t i = 0; i < waiting; i++) {
            size_t position = find_room(placed, count, queue[i]);
            memmove(placed + position + 1, placed + position, (count - position) * sizeof *placed);
            placed[position] = queue[i];
            count++;
            uint64_t end = queue[i]->offset + queue[i]->bytes;
            if (end > work->bytes)
                work->bytes = end;
        }
    }
    free(queue);
    return TR_OK;
}

static tr_status plan(planner *p)
{
    tri_program *program = p->program;
    static const char *const names[] = {"param", "copy",   "grad", "optim", "cache",
                                        "stat",  "output", "step", "batch", "work"};
    for (int kind = TRI_SPACE_PARAM; kind < TRI_SPACE_FRAME; kind++)
        add_space(program, (tri_space_kind)kind, names[kind],
                  kind == TRI_SPACE_BATCH ? program->num_microbatches : 1);
    if (program->arena.failed)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    for (size_t v = 0; v < program->num_values; v++)
        program->home[v] = (tri_operand){.value = TRI_NONE, .space = TRI_NONE};
    TRI_TRY(place_states(p));
    place_inputs_and_outputs(p);
    find_last_uses(p);
    make_buffers(p);
    TRI_TRY(choose_spaces(p));
    note_users(p);
    TRI_TRY(place_work(p));
    for (size_t v = 0; v < program->num_values; v++)
        if (p->buffer_of[v] != TRI_NONE) {
            const buffer *piece = &p->buffers[p->buffer_of[v]];
            const tri_value *value = &program->values[v];
            uint64_t within =
                value->bucket ? (uint64_t)value->place.offset * tri_dtype_bytes(value->dtype) : 0;
            program->home[v] = (tri_operand){(tri_id)v, piece->space, piece->offset + within};
        }
    return TR_OK;
}

tr_status tri_plan_memory(const tri_graph *graph, const tri_node_order *order, tri_program *program,
                          tr_error *err)
{
    planner p = {.graph = graph, .order = order, .program = program, .err = err};
    p.sent = calloc(graph->num_values + 1, sizeof *p.sent);
    p.last_use = calloc(graph->num_values + 1, sizeof *p.last_use);
    p.buffer_of = calloc(graph->num_values + 1, sizeof *p.buffer_of);
    p.buffers = calloc(graph->num_values + 1, sizeof *p.buffers);
    p.bucket_buffer = malloc((graph->num_buckets + 1) * sizeof *p.bucket_buffer);
    for (uint32_t b = 0; p.bucket_buffer && b <= graph->num_buckets; b++)
        p.bucket_buffer[b] = TRI_NONE;
    tr_status status = p.sent && p.last_use && p.buffer_of && p.buffers && p.bucket_buffer
                           ? plan(&p)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    free(p.sent);
    free(p.last_use);
    free(p.buffer_of);
    free(p.buffers);
    free(p.bucket_buffer);
    return status;
}
