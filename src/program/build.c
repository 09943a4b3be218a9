/* From graph to program: which node belongs to which segment, in which order, and the timeline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

/* Marks the backward nodes that the gradients of activations depend on: those from which a node
 * that ends the chain can be reached. The rest only makes gradients of weights. */
bool *tri_program_on_chain(const tri_graph *graph)
{
    bool *on_chain = calloc(graph->num_nodes + 1, sizeof *on_chain);
    bool *wanted = calloc(graph->num_values + 1, sizeof *wanted);
    for (size_t n = graph->num_nodes; on_chain && wanted && n-- > 0;) {
        const tri_node *node = &graph->nodes[n];
        if (node->phase != TRI_PHASE_BACKWARD || node->redo == TRI_REDO_LATER)
            continue;
        for (int k = 0; k < node->num_out; k++)
            on_chain[n] |= wanted[node->out[k]];
        on_chain[n] |= node->with_chain;
        on_chain[n] |= node->op == TRI_OP_UNSHARD; /* a bucket travels together, wanted or not */
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE && (on_chain[n] || node->ends_chain))
                wanted[node->in[j]] = true;
        for (int k = 0; k < node->num_out && on_chain[n]; k++)
            if (node->write[k] == TRI_WRITE_ADD &&
                graph->values[node->out[k]].kind == TRI_VALUE_TEMP)
                wanted[node->prev[k]] = true; /* the terms of a sum go with it */
    }
    if (!wanted) {
        free(on_chain);
        on_chain = NULL;
    }
    free(wanted);
    return on_chain;
}

/* What the parts of the build share. */
typedef struct builder {
    const tri_graph *graph;
    const tri_placed_params *placed;
    const tri_action *schedule;
    size_t num_actions;
    bool delayed; /* see tri_assign_versions */
    const tri_memory_needs *needs;
    tri_program *program;
    bool *on_chain;    /* of each node: the gradients of activations depend on it */
    bool *split;       /* of each chunk: its backward is I and W */
    tri_id *node;      /* nodes in the order of segments */
    uint32_t *segment; /* of each of them */
    uint32_t *instr;   /* and its instruction */
    uint32_t *of_node; /* segment of each node */
    bool *called;      /* of each segment: the schedule has it */
    uint32_t *at;      /* [chunk][action]: its segment, or TRI_NONE */
    size_t count;      /* of nodes that belong to a segment */
} builder;

static tri_action_kind action_of(const builder *b, size_t n)
{
    const tri_node *node = &b->graph->nodes[n];
    bool forward = node->phase == TRI_PHASE_FORWARD;
    if (node->phase == TRI_PHASE_UPDATE)
        return TRI_ACTION_U;
    if (node->border && node->num_in > 0)
        return forward ? TRI_ACTION_SEND_F : TRI_ACTION_SEND_B;
    if (node->border)
        return forward ? TRI_ACTION_RECV_F : TRI_ACTION_RECV_B;
    if (forward)
        return TRI_ACTION_F;
    if (!b->split[tri_node_chunk(b->graph, node)])
        return TRI_ACTION_B;
    return b->on_chain[n] ? TRI_ACTION_I : TRI_ACTION_W;
}

/* Statistics of a step are summed up at its end, however often the parameters are updated. */
static bool sums_up(const tri_graph *graph, const tri_node *node)
{
    for (int k = 0; k < node->num_out; k++) {
        tri_id state = graph->values[node->out[k]].state;
        if (state != TRI_NONE && graph->states[state].kind == TRI_STATE_STAT)
            return true;
    }
    return node->op == TRI_OP_FINISH;
}

static uint32_t chunk_of(const builder *b, size_t n)
{
    const tri_node *node = &b->graph->nodes[n];
    if (node->phase != TRI_PHASE_UPDATE)
        return (uint32_t)tri_node_chunk(b->graph, node);
    return b->graph->asynchronous && sums_up(b->graph, node) ? TRI_UPDATE_END : TRI_UPDATE_ALL;
}

static uint32_t *slot(const builder *b, tri_action_kind kind, uint32_t chunk)
{
    return &b->at[chunk * TRI_NUM_ALL_ACTIONS + kind];
}

/* Segments stand in an order in which one micro-batch could run through them all: forwards from
 * the first chunk to the last, then backwards to the first. Lifetimes are measured along it. */
static void number_segments(builder *b)
{
    static const tri_action_kind forward[] = {TRI_ACTION_RECV_F, TRI_ACTION_F, TRI_ACTION_SEND_F};
    static const tri_action_kind backward[] = {TRI_ACTION_RECV_B, TRI_ACTION_I, TRI_ACTION_B,
                                               TRI_ACTION_SEND_B, TRI_ACTION_W};
    tri_program *program = b->program;
    uint32_t chunks = (uint32_t)program->num_chunks;
    for (uint32_t i = 0; i < 2 * chunks + 2; i++) {
        uint32_t chunk = i < chunks ? i : i < 2 * chunks ? 2 * chunks - 1 - i : i - 2 * chunks;
        const tri_action_kind update = TRI_ACTION_U;
        const tri_action_kind *kinds = i < chunks ? forward : i < 2 * chunks ? backward : &update;
        size_t num = i < chunks ? 3 : i < 2 * chunks ? 5 : 1;
        for (size_t k = 0; k < num; k++) {
            uint32_t *at = chunk < chunks ? slot(b, kinds[k], chunk) : NULL;
            if (!at || *at == TRI_NONE)
                continue;
            *at = (uint32_t)program->num_segments;
            program->segments[program->num_segments++] =
                (tri_segment){.action = kinds[k], .chunk = (int)chunk};
        }
    }
}

/* Which segments there are: those that have nodes, and those that the schedule calls. */
static tr_status make_segments(builder *b, tr_error *err)
{
    tri_program *program = b->program;
    size_t num = 0, slots = (size_t)program->num_chunks * TRI_NUM_ALL_ACTIONS;
    for (size_t i = 0; i < slots; i++)
        b->at[i] = TRI_NONE;
    for (size_t i = 0; i < b->num_actions; i++) {
        if (b->schedule[i].chunk >= (uint32_t)program->num_chunks)
            return tri_fail(err, TR_ERROR_INTERNAL, "the schedule names chunk %u of %d",
                            b->schedule[i].chunk, program->num_chunks);
        *slot(b, b->schedule[i].kind, b->schedule[i].chunk) = 0;
        b->split[b->schedule[i].chunk] |= b->schedule[i].kind == TRI_ACTION_I;
    }
    for (size_t n = 0; n < b->graph->num_nodes; n++) {
        *slot(b, action_of(b, n), chunk_of(b, n)) = 0;
    }
    for (size_t i = 0; i < slots; i++)
        num += b->at[i] != TRI_NONE;
    program->segments = calloc(num + 1, sizeof *program->segments);
    if (!program->segments)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program");
    number_segments(b);
    return TR_OK;
}

/* Segment after segment, each in the order of the graph. */
static tr_status order_nodes(builder *b, tr_error *err)
{
    tri_program *program = b->program;
    for (size_t n = 0; n < b->graph->num_nodes; n++) {
        b->of_node[n] = *slot(b, action_of(b, n), chunk_of(b, n));
        program->segments[b->of_node[n]].count++;
    }
    uint32_t next = 0;
    for (size_t s = 0; s < program->num_segments; s++) {
        tri_segment *segment = &program->segments[s];
        if (segment->count == 0 && program->num_chunks == 1)
            return tri_fail(err, TR_ERROR_INTERNAL,
                            "the schedule asks for %s, which has no instructions",
                            tri_action_name(segment->action));
        segment->first = next;
        next += segment->count;
        segment->count = 0;
    }
    for (size_t n = 0; n < b->graph->num_nodes; n++) {
        tri_segment *segment = &program->segments[b->of_node[n]];
        uint32_t at = segment->first + segment->count++;
        b->node[at] = (tri_id)n;
        b->segment[at] = b->of_node[n];
        b->instr[at] = at;
    }
    b->count = next;
    return TR_OK;
}

static tr_status copy_tables(const tri_graph *graph, const tri_homes *homes, tri_program *program,
                             tr_error *err)
{
    program->values = calloc(graph->num_values + 1, sizeof *program->values);
    program->home = calloc(graph->num_values + 1, sizeof *program->home);
    program->states = calloc(graph->num_states + 1, sizeof *program->states);
    program->instrs = calloc(graph->num_nodes + 1, sizeof *program->instrs);
    if (!program->values || !program->home || !program->states || !program->instrs)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program");
    for (size_t v = 0; v < graph->num_values; v++) {
        program->values[v] = graph->values[v];
        program->values[v].name = tri_arena_text(&program->arena, graph->values[v].name);
    }
    for (size_t s = 0; s < graph->num_states; s++) {
        program->states[s] = graph->states[s];
        program->states[s].name = tri_arena_text(&program->arena, graph->states[s].name);
    }
    program->num_values = graph->num_values;
    program->num_states = graph->num_states;
    program->step_rows = graph->step_rows;
    memcpy(program->stats, graph->stats, sizeof program->stats);
    program->num_stats = graph->num_stats;
    memcpy(program->losses, graph->losses, sizeof program->losses);
    program->num_losses = graph->num_losses;
    memcpy(program->shown, graph->shown, sizeof program->shown);
    program->num_shown = graph->num_shown;
    if (homes->first) {
        size_t bytes = graph->params->count * sizeof *homes->first;
        program->first_home = tri_arena_alloc(&program->arena, bytes);
        program->last_home = tri_arena_alloc(&program->arena, bytes);
        if (program->first_home && program->last_home) {
            memcpy(program->first_home, homes->first, bytes);
            memcpy(program->last_home, homes->last, bytes);
        }
    }
    if (program->arena.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program's names");
    return TR_OK;
}

/* All but addresses. */
static void emit_instrs(const builder *b)
{
    const tri_graph *graph = b->graph;
    tri_program *program = b->program;
    for (size_t i = 0; i < b->count; i++) {
        const tri_node *node = &graph->nodes[b->node[i]];
        tri_instr *instr = &program->instrs[i];
        *instr = (tri_instr){.op = node->op,
                             .attr = node->attr,
                             .num_in = node->num_in,
                             .num_out = node->num_out,
                             .layer = node->layer,
                             .border = node->border,
                             .last_only = node->last_only,
                             .first_only = node->first_only,
                             .where = node->where,
                             .redone = node->redo != TRI_REDO_NO,
                             .cost = tri_node_cost(graph, node)};
        for (int j = 0; j < node->num_in; j++)
            instr->in[j].value = node->in[j];
        for (int k = node->num_out; k < TRI_MAX_OUT; k++)
            instr->out[k].value = TRI_NONE;
        for (int k = 0; k < node->num_out; k++) {
            instr->out[k].value = node->out[k];
            instr->write[k] = node->write[k];
            instr->prev[k] = node->prev[k];
        }
    }
    program->num_instrs = b->count;
    for (size_t i = 0; i < b->count && b->needs->scratch; i++)
        if (!tri_op_get(program->instrs[i].op)->communicates)
            program->instrs[i].scratch_bytes =
                b->needs->scratch(b->needs->context, program, &program->instrs[i]);
}

static void address_instrs(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        for (int j = 0; j < instr->num_in; j++)
            if (instr->in[j].value != TRI_NONE)
                instr->in[j] = program->home[instr->in[j].value];
        for (int k = 0; k < instr->num_out; k++)
            instr->out[k] = program->home[instr->out[k].value];
    }
}

/* Where every segment runs once, the order of nodes becomes that of the timeline. */
static bool follow_timeline(builder *b)
{
    const tri_program *program = b->program;
    size_t at = 0;
    if (program->num_microbatches > 1 || b->graph->asynchronous ||
        b->num_actions != program->num_segments)
        return false;
    memset(b->called, 0, program->num_segments * sizeof *b->called);
    for (size_t i = 0; i < b->num_actions; i++)
        b->called[*slot(b, b->schedule[i].kind, b->schedule[i].chunk)] = !b->schedule[i].overlap;
    for (size_t s = 0; s < program->num_segments; s++)
        if (!b->called[s])
            return false;
    memcpy(b->of_node, b->node, b->count * sizeof *b->node); /* no longer needed */
    for (size_t i = 0; i < b->num_actions; i++) {
        uint32_t s = *slot(b, b->schedule[i].kind, b->schedule[i].chunk);
        const tri_segment *segment = &program->segments[s];
        for (uint32_t k = segment->first; k < segment->first + segment->count; k++, at++) {
            b->node[at] = b->of_node[k];
            b->segment[at] = s;
            b->instr[at] = k;
        }
    }
    return true;
}

static tr_status plan_memory(const builder *b, bool once, tr_error *err)
{
    tri_half *half = calloc(b->program->num_segments + 1, sizeof *half);
    if (!half)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    tri_pair_halves(b->program, half);
    tri_node_order order = {b->node, b->segment, b->instr, b->count, once, half};
    tr_status status = tri_plan_memory(b->graph, b->placed, &order, b->needs, b->program, err);
    free(half);
    return status;
}

static tr_status build(builder *b, tr_error *err)
{
    TRI_TRY(make_segments(b, err));
    TRI_TRY(copy_tables(b->graph, &b->placed->homes, b->program, err));
    TRI_TRY(order_nodes(b, err));
    emit_instrs(b);
    bool once = follow_timeline(b);
    TRI_TRY(tri_lay_calls(b->program, b->schedule, b->num_actions, b->graph->asynchronous, err));
    TRI_TRY(plan_memory(b, once, err));
    address_instrs(b->program);
    TRI_TRY(tri_make_messages(b->program, err));
    TRI_TRY(tri_pair_calls(b->program, err));
    TRI_TRY(tri_settle_calls(b->program, err));
    return b->graph->asynchronous ? tri_assign_versions(b->program, b->delayed, err) : TR_OK;
}

tr_status tri_program_build(const tri_graph *graph, const tri_placed_params *placed,
                            const tri_build_config *config, tri_program *program, tr_error *err)
{
    const tri_memory_needs none = {0};
    *program = (tri_program){.grid = graph->grid,
                             .num_microbatches = config->num_microbatches,
                             .num_layers = graph->num_layers,
                             .num_chunks =
                                 graph->chunk_of ? graph->chunk_of[graph->num_layers + 1] + 1 : 1};
    tri_arena_init(&program->arena);
    size_t nodes = graph->num_nodes + 1, chunks = (size_t)program->num_chunks;
    builder b = {.graph = graph,
                 .placed = placed,
                 .schedule = config->schedule,
                 .num_actions = config->num_actions,
                 .delayed = config->delayed,
                 .needs = config->needs ? config->needs : &none,
                 .program = program};
    b.on_chain = tri_program_on_chain(graph);
    b.split = calloc(chunks, sizeof *b.split);
    b.node = calloc(nodes, sizeof *b.node);
    b.segment = calloc(nodes, sizeof *b.segment);
    b.instr = calloc(nodes, sizeof *b.instr);
    b.of_node = calloc(nodes, sizeof *b.of_node);
    b.called = calloc(chunks * TRI_NUM_ALL_ACTIONS, sizeof *b.called);
    b.at = calloc(chunks * TRI_NUM_ALL_ACTIONS, sizeof *b.at);
    tr_status status =
        b.on_chain && b.split && b.node && b.segment && b.instr && b.of_node && b.called && b.at
            ? build(&b, err)
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory to build the program");
    free(b.on_chain);
    free(b.split);
    free(b.node);
    free(b.segment);
    free(b.instr);
    free(b.of_node);
    free(b.called);
    free(b.at);
    if (status != TR_OK)
        tri_program_fini(program);
    return status;
}
