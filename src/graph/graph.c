#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"

tr_status tri_graph_init(tri_graph *graph, const tri_param_table *params, tr_error *err)
{
    *graph = (tri_graph){.params = params, .scope = ""};
    graph->scaler = graph->sched = TRI_NONE;
    graph->loss_seed = 1;
    tri_arena_init(&graph->arena);
    size_t bytes = (params->count + 1) * sizeof *graph->param_state;
    graph->param_state = tri_arena_alloc(&graph->arena, bytes);
    graph->copy_state = tri_arena_alloc(&graph->arena, bytes);
    graph->grad_state = tri_arena_alloc(&graph->arena, bytes);
    if (!graph->param_state || !graph->copy_state || !graph->grad_state)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a graph of %zu parameters",
                        params->count);
    memset(graph->param_state, 0xff, bytes);
    memset(graph->copy_state, 0xff, bytes);
    memset(graph->grad_state, 0xff, bytes);
    return TR_OK;
}

void tri_graph_fini(tri_graph *graph)
{
    free(graph->values);
    free(graph->nodes);
    free(graph->states);
    free(graph->steered);
    tri_arena_fini(&graph->arena);
    *graph = (tri_graph){0};
}

uint32_t tri_graph_num_buckets(const tri_graph *graph)
{
    uint32_t num = 0;
    for (size_t v = 0; v < graph->num_values; v++)
        num = graph->values[v].bucket > num ? graph->values[v].bucket : num;
    return num;
}

tr_status tri_graph_status(const tri_graph *graph, tr_error *err)
{
    if (graph->arena.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory left while building the graph");
    if (graph->status != TR_OK && err)
        *err = graph->error;
    return graph->status;
}

void tri_graph_fail(tri_graph *graph, const char *format, ...)
{
    if (graph->status != TR_OK)
        return; /* the first failure is the one to report */
    char message[sizeof graph->error.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    graph->status = tri_fail(&graph->error, TR_ERROR_INPUT, "%s", message);
}

void tri_graph_enter(tri_graph *graph, int layer, const char *scope_format, ...)
{
    va_list args;
    va_start(args, scope_format);
    graph->scope = tri_arena_vprintf(&graph->arena, scope_format, args);
    va_end(args);
    graph->layer = layer;
}

const char *tri_graph_name(tri_graph *graph, const char *name)
{
    if (!graph->scope[0])
        return tri_arena_text(&graph->arena, name);
    return tri_arena_dotted(&graph->arena, graph->scope, name);
}

tri_id tri_graph_add_value(tri_graph *graph, tri_value value)
{
    tri_value *values =
        tri_array_grow(graph->values, graph->num_values, &graph->values_capacity, sizeof *values);
    if (!values) {
        graph->arena.failed = true;
        return TRI_NONE;
    }
    graph->values = values;
    values[graph->num_values] = value;
    return (tri_id)graph->num_values++;
}

tri_id tri_graph_input(tri_graph *graph, const char *name, tri_dtype dtype, tri_shape shape,
                       bool per_microbatch)
{
    return tri_graph_add_value(graph, (tri_value){.name = tri_arena_text(&graph->arena, name),
                                                  .shape = shape,
                                                  .dtype = dtype,
                                                  .kind = TRI_VALUE_INPUT,
                                                  .producer = TRI_NONE,
                                                  .state = TRI_NONE,
                                                  .per_microbatch = per_microbatch});
}

static bool same_rows(const tri_step_row *a, const tri_step_row *b, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (strcmp(a[i].name, b[i].name) != 0 || a[i].constant != b[i].constant)
            return false;
    return true;
}

uint8_t tri_graph_step_rows(tri_graph *graph, const tri_step_row *rows, size_t num)
{
    tri_step_rows *table = &graph->step_rows;
    for (size_t first = 0; first + num <= table->num; first++)
        if (same_rows(&table->row[first], rows, num))
            return (uint8_t)first;
    size_t first = table->num;
    if (first + num > TRI_MAX_STEP_ROWS) {
        tri_graph_fail(graph, "the rules of this model read more than %d numbers of a step",
                       TRI_MAX_STEP_ROWS);
        return 0;
    }
    memcpy(&table->row[first], rows, num * sizeof *rows);
    table->num += num;
    tri_shape shape = tri_shape_scalar((int64_t)table->num);
    if (graph->sched == TRI_NONE)
        graph->sched = tri_graph_input(graph, "sched", TRI_F32, shape, graph->asynchronous);
    else
        graph->values[graph->sched].shape = shape;
    return (uint8_t)first;
}

tri_id tri_graph_state(tri_graph *graph, tri_state_kind kind, const char *name, tri_dtype dtype,
                       tri_shape shape, tri_id param)
{
    tri_state *states =
        tri_array_grow(graph->states, graph->num_states, &graph->states_capacity, sizeof *states);
    if (!states) {
        graph->arena.failed = true;
        return TRI_NONE;
    }
    graph->states = states;
    tri_id id = (tri_id)graph->num_states++;
    const char *copy = tri_arena_text(&graph->arena, name);
    tri_id first = tri_graph_add_value(graph, (tri_value){.name = copy,
                                                          .shape = shape,
                                                          .dtype = dtype,
                                                          .kind = TRI_VALUE_STATE,
                                                          .producer = TRI_NONE,
                                                          .state = id});
    states[id] = (tri_state){.name = copy,
                             .kind = kind,
                             .shape = shape,
                             .dtype = dtype,
                             .param = param,
                             .latest = first};
    return id;
}

void tri_graph_steer(tri_graph *graph, tri_id param, tri_id load, float rate)
{
    tri_steered *steered = tri_array_grow(graph->steered, graph->num_steered,
                                          &graph->steered_capacity, sizeof *steered);
    if (!steered) {
        graph->arena.failed = true;
        return;
    }
    graph->steered = steered;
    steered[graph->num_steered++] = (tri_steered){param, load, rate};
}

tri_id tri_graph_param(tri_graph *graph, tri_id param)
{
    if (graph->arena.failed || graph->status != TR_OK)
        return TRI_NONE;
    if (graph->param_state[param] == TRI_NONE) {
        const tri_param *p = &graph->params->items[param];
        graph->param_state[param] =
            tri_graph_state(graph, TRI_STATE_PARAM, p->name, TRI_F32, p->shape, param);
        if (graph->arena.failed)
            return TRI_NONE;
    }
    return graph->states[graph->param_state[param]].latest;
}

tri_id tri_graph_weight(tri_graph *graph, tri_id param)
{
    if (graph->arena.failed || graph->status != TR_OK)
        return TRI_NONE;
    const tri_param *p = &graph->params->items[param];
    if (!tri_param_has_copy(p, graph->precision.compute))
        return tri_graph_param(graph, param);
    if (graph->copy_state[param] == TRI_NONE) {
        tri_dtype dtype = graph->precision.compute;
        const char *name = tri_arena_dotted(&graph->arena, p->name, tri_dtype_name(dtype));
        graph->copy_state[param] =
            tri_graph_state(graph, TRI_STATE_COPY, name, dtype, p->shape, param);
        if (graph->arena.failed)
            return TRI_NONE;
    }
    return graph->states[graph->copy_state[param]].latest;
}

/* Fills the shapes of a node's outputs; false after a failure. */
static bool infer_outputs(tri_graph *graph, const tri_node *node, const char *name,
                          tri_shape *shapes, tri_dtype *dtypes)
{
    const tri_op_def *def = tri_op_get(node->op);
    tri_shape in[TRI_MAX_IN];
    const tri_value *values[TRI_MAX_IN];
    for (int j = 0; j < node->num_in; j++) {
        values[j] = node->in[j] == TRI_NONE ? NULL : &graph->values[node->in[j]];
        in[j] = values[j] ? values[j]->shape : (tri_shape){.rank = -1};
    }
    tri_infer_dtypes(node->op, &node->attr, values, node->num_in, dtypes, node->num_out);
    tr_error err;
    if (def->infer(node, in, shapes, dtypes, &err) == TR_OK)
        return true;
    tri_graph_fail(graph, "%s (%s): %s", name, def->name, err.message);
    return false;
}

tri_id tri_graph_emit(tri_graph *graph, tri_op op, const char *name, const tri_attr *attr,
                      const tri_id *in, int num_in, int num_out)
{
    if (graph->status != TR_OK || graph->arena.failed)
        return TRI_NONE;
    static const tri_attr none;
    if (attr && !TRI_ATTR_SHARED && !tri_attr_fits(op, attr)) {
        tri_graph_fail(graph, "%s (%s) has attributes of another operator", name,
                       tri_op_get(op)->name);
        return TRI_NONE;
    }
    tri_node node = {.op = op,
                     .attr = tri_attr_of(op, attr ? attr : &none),
                     .num_in = (uint8_t)num_in,
                     .num_out = (uint8_t)num_out,
                     .phase = graph->phase,
                     .layer = graph->layer,
                     .ends_chain = graph->ends_chain};
    if (num_in > 0) /* fill reads nothing: its list may be NULL */
        memcpy(node.in, in, (size_t)num_in * sizeof *in);
    tri_shape shapes[TRI_MAX_OUT];
    tri_dtype dtypes[TRI_MAX_OUT];
    if (!infer_outputs(graph, &node, name, shapes, dtypes))
        return TRI_NONE;
    tri_id id = (tri_id)graph->num_nodes;
    const tri_op_def *def = tri_op_get(op);
    for (int k = 0; k < num_out; k++) {
        const char *full = def->suffix[k] ? tri_arena_dotted(&graph->arena, name, def->suffix[k])
                                          : tri_arena_text(&graph->arena, name);
        node.out[k] = tri_graph_add_value(graph, (tri_value){.name = full,
                                                             .shape = shapes[k],
                                                             .dtype = dtypes[k],
                                                             .kind = TRI_VALUE_TEMP,
                                                             .producer = id,
                                                             .state = TRI_NONE});
        node.prev[k] = TRI_NONE;
    }
    tri_node *nodes =
        tri_array_grow(graph->nodes, graph->num_nodes, &graph->nodes_capacity, sizeof *nodes);
    if (nodes)
        graph->nodes = nodes;
    if (!nodes || graph->arena.failed) {
        graph->arena.failed = true;
        return TRI_NONE;
    }
    nodes[graph->num_nodes++] = node;
    for (int k = 0; k < num_out; k++)
        if (def->updates[k] && node.in[def->updates[k] - 1] != TRI_NONE &&
            !(def->communicates && graph->values[node.in[def->updates[k] - 1]].state == TRI_NONE))
            tri_graph_write_state(graph, id, k, graph->values[node.in[def->updates[k] - 1]].state,
                                  TRI_WRITE_UPDATE);
    return id;
}

void tri_graph_write_state(tri_graph *graph, tri_id node, int k, tri_id state, tri_write write)
{
    if (graph->status != TR_OK || graph->arena.failed)
        return;
    if (state == TRI_NONE) {
        tri_graph_fail(graph, "%s updates in place something that is not a state",
                       tri_op_get(graph->nodes[node].op)->name);
        return;
    }
    tri_node *n = &graph->nodes[node];
    tri_state *s = &graph->states[state];
    tri_value *value = &graph->values[n->out[k]];
    value->kind = TRI_VALUE_STATE;
    value->state = state;
    value->dtype = s->dtype;
    value->name = s->name;
    n->write[k] = write;
    n->prev[k] = s->latest;
    s->latest = n->out[k];
}
