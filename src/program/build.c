/* From graph to program: which node belongs to which segment, in which order, and the timeline. */
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

uint64_t tri_space_total(const tri_space *space)
{
    return space->bytes * space->num_instances;
}

uint64_t tri_value_bytes(const tri_value *value)
{
    return (uint64_t)tri_shape_count(&value->shape) * tri_dtype_bytes(value->dtype);
}

tri_id tri_program_find(const tri_program *program, const char *name)
{
    tri_id found = TRI_NONE;
    for (size_t v = 0; v < program->num_values; v++)
        if (strcmp(program->values[v].name, name) == 0)
            found = (tri_id)v;
    return found;
}

tri_cost tri_program_cost(const tri_program *program)
{
    tri_cost total = {0};
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            total.flops += program->instrs[segment->first + i].cost.flops;
            total.bytes += program->instrs[segment->first + i].cost.bytes;
        }
    }
    return total;
}

/* Marks the backward nodes that the gradients of activations depend on: those from which a node
 * that ends the chain can be reached. The rest only makes gradients of weights. */
static bool *mark_input_grad(const tri_graph *graph)
{
    bool *on_chain = calloc(graph->num_nodes + 1, sizeof *on_chain);
    bool *wanted = calloc(graph->num_values + 1, sizeof *wanted);
    for (size_t n = graph->num_nodes; on_chain && wanted && n-- > 0;) {
        const tri_node *node = &graph->nodes[n];
        if (node->phase != TRI_PHASE_BACKWARD)
            continue;
        for (int k = 0; k < node->num_out; k++)
            on_chain[n] |= wanted[node->out[k]];
        on_chain[n] |= node->op == TRI_OP_UNSHARD; /* a bucket travels together, wanted or not */
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE && (on_chain[n] || node->ends_chain))
                wanted[node->in[j]] = true;
    }
    if (!wanted) {
        free(on_chain);
        on_chain = NULL;
    }
    free(wanted);
    return on_chain;
}

static bool schedule_has(const tri_action *schedule, size_t count, tri_action_kind kind)
{
    for (size_t i = 0; i < count; i++)
        if (schedule[i].kind == kind)
            return true;
    return false;
}

static tri_action_kind action_of(const tri_node *node, bool split, bool on_chain)
{
    switch (node->phase) {
    case TRI_PHASE_FORWARD:
        return TRI_ACTION_F;
    case TRI_PHASE_BACKWARD:
        return !split ? TRI_ACTION_B : on_chain ? TRI_ACTION_I : TRI_ACTION_W;
    case TRI_PHASE_UPDATE:
        break;
    }
    return TRI_ACTION_U;
}

/* Fills order->node/action: segment after segment, each in the order of the graph. */
static size_t order_nodes(const tri_graph *graph, bool split, const bool *on_chain, tri_id *node,
                          tri_action_kind *action)
{
    static const tri_action_kind sequence[] = {TRI_ACTION_F, TRI_ACTION_I, TRI_ACTION_W,
                                               TRI_ACTION_B, TRI_ACTION_U};
    size_t count = 0;
    for (size_t s = 0; s < sizeof sequence / sizeof *sequence; s++)
        for (size_t n = 0; n < graph->num_nodes; n++)
            if (action_of(&graph->nodes[n], split, on_chain[n]) == sequence[s]) {
                node[count] = (tri_id)n;
                action[count++] = sequence[s];
            }
    return count;
}

static tr_status copy_tables(const tri_graph *graph, tri_program *program, tr_error *err)
{
    program->values = calloc(graph->num_values + 1, sizeof *program->values);
    program->home = calloc(graph->num_values + 1, sizeof *program->home);
    program->states = calloc(graph->num_states + 1, sizeof *program->states);
    program->instrs = calloc(graph->num_nodes + 1, sizeof *program->instrs);
    if (!program->values || !program->home || !program->states || !program->instrs)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program");
    for (size_t v = 0; v < graph->num_values; v++) {
        program->values[v] = graph->values[v];
        program->values[v].name = tri_arena_printf(&program->arena, "%s", graph->values[v].name);
    }
    for (size_t s = 0; s < graph->num_states; s++) {
        program->states[s] = graph->states[s];
        program->states[s].name = tri_arena_printf(&program->arena, "%s", graph->states[s].name);
    }
    program->num_values = graph->num_values;
    program->num_states = graph->num_states;
    if (program->arena.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's names");
    return TR_OK;
}

static void emit_instrs(const tri_graph *graph, const tri_node_order *order, tri_program *program)
{
    for (size_t i = 0; i < order->count; i++) {
        const tri_node *node = &graph->nodes[order->node[i]];
        tri_instr *instr = &program->instrs[i];
        *instr = (tri_instr){.op = node->op,
                             .attr = node->attr,
                             .num_in = node->num_in,
                             .num_out = node->num_out,
                             .layer = node->layer,
                             .cost = tri_node_cost(graph, node)};
        for (int j = 0; j < node->num_in; j++)
            instr->in[j] = node->in[j] == TRI_NONE ? (tri_operand){.value = TRI_NONE}
                                                   : program->home[node->in[j]];
        for (int k = 0; k < node->num_out; k++) {
            instr->out[k] = program->home[node->out[k]];
            instr->write[k] = node->write[k];
            instr->prev[k] = node->prev[k];
        }
        if (i == 0 || order->action[i] != order->action[i - 1])
            program->segments[program->num_segments++] =
                (tri_segment){.action = order->action[i], .first = (uint32_t)i};
        program->segments[program->num_segments - 1].count++;
    }
    program->num_instrs = order->count;
}

static uint64_t aligned_end(const tri_program *program, const tri_operand *operand)
{
    uint64_t end = operand->offset + tri_value_bytes(&program->values[operand->value]);
    return (end + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
}

/* Whether an instruction's message can be one with that of the instruction before it: the same
 * bucket of divided tensors, or states that are neighbours in memory. */
static bool rides_with(const tri_program *program, const tri_instr *instr, const tri_instr *last,
                       const tri_operand *before)
{
    const tri_flat *flat = &instr->attr.flat, *other = &last->attr.flat;
    if (instr->op != last->op || instr->attr.axis != last->attr.axis)
        return false;
    if (flat->parts > 0)
        return flat->offset > 0 && flat->offset == other->offset + tri_flat_padded(other->count);
    return instr->op == TRI_OP_ALL_REDUCE &&
           program->values[instr->out[0].value].state != TRI_NONE &&
           program->values[before->value].state != TRI_NONE &&
           instr->out[0].space == before->space &&
           program->values[instr->out[0].value].dtype == program->values[before->value].dtype &&
           instr->out[0].offset == aligned_end(program, before);
}

/* Joins communication of neighbours in memory into one message. */
static void join_messages(tri_program *program)
{
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        tri_instr *head = NULL;
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            tri_instr *instr = &program->instrs[i];
            const tri_operand *before = i > segment->first ? &instr[-1].out[0] : NULL;
            bool rides = head && before && rides_with(program, instr, &instr[-1], before);
            instr->span = rides ? 0 : 1;
            if (rides)
                head->span++;
            else
                head = tri_op_get(instr->op)->communicates ? instr : NULL;
        }
    }
}

static tr_status segment_of(const tri_program *program, tri_action_kind kind, uint32_t *segment,
                            tr_error *err)
{
    for (uint32_t s = 0; s < program->num_segments; s++)
        if (program->segments[s].action == kind) {
            *segment = s;
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INTERNAL, "the schedule asks for %s, which has no instructions",
                    tri_action_name(kind));
}

/* Instances of a frame space are taken at its first action and given back after its last. */
static tr_status assign_frames(tri_program *program, uint32_t space, tr_error *err)
{
    tri_space *frame = &program->spaces[space];
    uint32_t num = program->num_microbatches;
    uint32_t *held_by = malloc(num * sizeof *held_by);
    if (!held_by)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    memset(held_by, 0xff, num * sizeof *held_by);
    for (size_t c = 0; c < program->num_calls; c++) {
        tri_call *call = &program->calls[c];
        tri_action_kind kind = program->segments[call->segment].action;
        if (kind == TRI_ACTION_U)
            continue;
        uint32_t wanted = kind == frame->born ? TRI_NONE : call->microbatch, i = 0;
        while (i < num && held_by[i] != wanted)
            i++;
        if (i == num)
            continue; /* not in use at this action: before it is born or after it died */
        held_by[i] = kind == frame->dies ? TRI_NONE : call->microbatch;
        call->frame[space] = i;
        if (i + 1 > frame->num_instances)
            frame->num_instances = i + 1;
    }
    free(held_by);
    return TR_OK;
}

static tr_status lay_out_timeline(const tri_action *schedule, size_t num_actions,
                                  tri_program *program, tr_error *err)
{
    program->calls = calloc(num_actions + 1, sizeof *program->calls);
    if (!program->calls)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    bool seen[TRI_NUM_ACTIONS] = {false};
    for (size_t i = 0; i < num_actions; i++) {
        tri_call *call = &program->calls[i];
        TRI_TRY(segment_of(program, schedule[i].kind, &call->segment, err));
        call->microbatch = schedule[i].microbatch;
        call->first = !seen[schedule[i].kind];
        seen[schedule[i].kind] = true;
    }
    program->num_calls = num_actions;
    for (uint32_t s = 0; s < program->num_spaces; s++)
        if (program->spaces[s].kind == TRI_SPACE_FRAME)
            TRI_TRY(assign_frames(program, s, err));
    return TR_OK;
}

static tr_status build(const tri_graph *graph, const tri_action *schedule, size_t num_actions,
                       tri_id *node, tri_action_kind *action, const bool *on_chain,
                       tri_program *program, tr_error *err)
{
    bool split = schedule_has(schedule, num_actions, TRI_ACTION_I);
    TRI_TRY(copy_tables(graph, program, err));
    tri_node_order order = {.node = node, .action = action};
    order.count = order_nodes(graph, split, on_chain, node, action);
    TRI_TRY(tri_plan_memory(graph, &order, program, err));
    emit_instrs(graph, &order, program);
    join_messages(program);
    return lay_out_timeline(schedule, num_actions, program, err);
}

tr_status tri_program_build(const tri_graph *graph, const tri_action *schedule, size_t num_actions,
                            uint32_t num_microbatches, tri_program *program, tr_error *err)
{
    *program = (tri_program){.num_microbatches = num_microbatches, .num_layers = graph->num_layers};
    tri_arena_init(&program->arena);
    tri_id *node = calloc(graph->num_nodes + 1, sizeof *node);
    tri_action_kind *action = calloc(graph->num_nodes + 1, sizeof *action);
    bool *on_chain = mark_input_grad(graph);
    tr_status status =
        node && action && on_chain
            ? build(graph, schedule, num_actions, node, action, on_chain, program, err)
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory to build the program");
    free(node);
    free(action);
    free(on_chain);
    if (status != TR_OK)
        tri_program_fini(program);
    return status;
}

void tri_program_fini(tri_program *program)
{
    free(program->values);
    free(program->home);
    free(program->states);
    free(program->instrs);
    free(program->calls);
    tri_arena_fini(&program->arena);
    *program = (tri_program){0};
}
