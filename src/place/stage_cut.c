/* From the placed graph of the whole model to the share of one rank of a pipeline.
 *
 * A value that is made in one chunk and read in a later one (a gradient: in an earlier one) crosses
 * every border between the two. Where the neighbour is another rank, it is sent at the end of its
 * maker's chunk and received at the beginning of the reader's; where it is this rank too, it is
 * copied, so that every value is read within one chunk only. Invariants of what is left:
 *   1. every temporary is read by nodes of one chunk (and by the send at its end);
 *   2. a state is here if a node that is kept uses it, or if its parameter lives here;
 *   3. statistics are terms of a sum over the pipeline: a rank that computes none begins with zero.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"
#include "graph/passes.h"
#include "mesh/mesh.h"
#include "place/stages.h"

/* A value as one of this rank's chunks has it: received, or copied from another. */
typedef struct entry {
    int chunk;
    tri_id value, local;
} entry;

typedef struct cutter {
    tri_graph *graph;
    const tri_stages *stages;
    const tri_homes *homes;
    bool all_routes;
    tri_node *old;
    size_t num_old;
    tri_id *now;     /* of each version of a state: the one to read instead */
    tri_id *local;   /* of each value: the one that the chunk at hand reads */
    int *first_read; /* smallest and largest chunk that reads each value in F, I or W */
    int *last_read;
    bool *backward;    /* of each value: it was made in the backward */
    int *made_in;      /* chunk, or -1 for states and inputs */
    size_t num_values; /* of the whole graph */
    entry *entries;
    size_t num_entries, entries_capacity;
} cutter;

static int home_of(const cutter *c, int route, int chunk)
{
    return (int)c->stages->home[route * c->stages->num_chunks + chunk];
}

/* The route on which this rank has a chunk, or -1. */
static int route_of(const cutter *c, int chunk)
{
    int routes = c->all_routes ? c->stages->num_routes : 1;
    for (int route = 0; route < routes; route++)
        if (home_of(c, route, chunk) == c->stages->rank)
            return route;
    return -1;
}

static void note_reads(cutter *c)
{
    tri_graph *graph = c->graph;
    for (size_t v = 0; v < c->num_values; v++) {
        c->first_read[v] = c->stages->num_chunks;
        c->last_read[v] = -1;
        c->made_in[v] = -1;
        c->now[v] = c->local[v] = (tri_id)v;
    }
    for (size_t n = 0; n < c->num_old; n++) {
        const tri_node *node = &c->old[n];
        int chunk = tri_node_chunk(graph, node);
        for (int k = 0; k < node->num_out && node->phase != TRI_PHASE_UPDATE; k++) {
            if (graph->values[node->out[k]].kind != TRI_VALUE_TEMP)
                continue;
            c->made_in[node->out[k]] = chunk;
            c->backward[node->out[k]] = node->phase == TRI_PHASE_BACKWARD;
        }
        for (int j = 0; j < node->num_in && node->phase != TRI_PHASE_UPDATE; j++) {
            if (node->in[j] == TRI_NONE)
                continue;
            int *first = &c->first_read[node->in[j]], *last = &c->last_read[node->in[j]];
            *first = chunk < *first ? chunk : *first;
            *last = chunk > *last ? chunk : *last;
        }
    }
}

static tr_status enter(cutter *c, int chunk, tri_id value, tri_id local, tr_error *err)
{
    entry *entries =
        tri_array_grow(c->entries, c->num_entries, &c->entries_capacity, sizeof *entries);
    if (!entries)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to cut the graph");
    c->entries = entries;
    entries[c->num_entries++] = (entry){chunk, value, local};
    return TR_OK;
}

/* From here on, values are those that a chunk has. */
static void look_from(cutter *c, int chunk)
{
    for (size_t v = 0; v < c->num_values; v++)
        c->local[v] = (tri_id)v;
    for (size_t i = 0; i < c->num_entries; i++)
        if (c->entries[i].chunk == chunk)
            c->local[c->entries[i].value] = c->entries[i].local;
}

/* The value to read: of a temporary this chunk's, of a state the newest version that is here. */
static tri_id resolve(const cutter *c, tri_id value)
{
    tri_id local = c->local[value];
    return local < c->num_values ? c->now[local] : local;
}

/* Whether a value crosses the border behind a chunk, forwards or backwards. */
static bool crosses(const cutter *c, size_t v, int border, bool backward)
{
    if (c->made_in[v] < 0 || c->backward[v] != backward)
        return false;
    return backward ? c->made_in[v] > border && c->first_read[v] <= border
                    : c->made_in[v] <= border && c->last_read[v] > border;
}

/* A new value like another, by an operator of one input or none. */
static tr_status emit_like(cutter *c, tri_op op, tri_attr attr, tri_id like, tri_id in, int num_in,
                           tri_id *out, tr_error *err)
{
    tri_graph *graph = c->graph;
    const tri_value value = graph->values[like];
    if (tri_op_get(op)->communicates) {
        attr.message.made.shape = value.shape;
        attr.message.made.dtype = value.dtype;
    }
    tri_id node = tri_graph_emit(graph, op, value.name, &attr, &in, num_in, 1);
    TRI_TRY(tri_graph_status(graph, err));
    *out = graph->nodes[node].out[0];
    graph->values[*out].at = value.at;
    graph->values[*out].whole = value.whole;
    return TR_OK;
}

/* What enters a chunk from the one before it (or, backwards, the one behind). */
static tr_status receive(cutter *c, int chunk, bool backward, tr_error *err)
{
    int border = backward ? chunk : chunk - 1, from = backward ? chunk + 1 : chunk - 1;
    if (from < 0 || from >= c->stages->num_chunks)
        return TR_OK;
    int peer = home_of(c, route_of(c, chunk), from);
    for (size_t v = 0; v < c->num_values && peer != c->stages->rank; v++)
        if (crosses(c, v, border, backward)) {
            tri_attr attr = {.message = {.axis = TRI_AXIS_PP, .peer = (uint32_t)peer}};
            TRI_TRY(emit_like(c, TRI_OP_RECV, attr, (tri_id)v, TRI_NONE, 0, &c->local[v], err));
            c->graph->nodes[c->graph->values[c->local[v]].producer].border = true;
            TRI_TRY(enter(c, chunk, (tri_id)v, c->local[v], err));
        }
    return TR_OK;
}

/* What leaves a chunk. A copy for a chunk of this rank is made here. */
static tr_status send(cutter *c, int chunk, bool backward, tr_error *err)
{
    int border = backward ? chunk - 1 : chunk, to = backward ? chunk - 1 : chunk + 1;
    if (to < 0 || to >= c->stages->num_chunks)
        return TR_OK;
    int peer = home_of(c, route_of(c, chunk), to);
    for (size_t v = 0; v < c->num_values; v++) {
        if (!crosses(c, v, border, backward))
            continue;
        if (peer == c->stages->rank) {
            tri_id copy;
            tri_attr attr = {.cast = {.dtype = c->graph->values[v].dtype}};
            TRI_TRY(emit_like(c, TRI_OP_CAST, attr, (tri_id)v, c->local[v], 1, &copy, err));
            TRI_TRY(enter(c, to, (tri_id)v, copy, err));
            continue;
        }
        tri_attr attr = {.message = {.axis = TRI_AXIS_PP, .peer = (uint32_t)peer}};
        c->graph->ends_chain = backward; /* what is sent is as far as this rank's gradients go */
        tri_id node = tri_graph_emit(c->graph, TRI_OP_SEND, c->graph->values[v].name, &attr,
                                     &c->local[v], 1, 0);
        TRI_TRY(tri_graph_status(c->graph, err));
        c->graph->nodes[node].border = true;
    }
    return TR_OK;
}

/* A node that other ranks run: versions of states before it stay the newest. */
static void skip(cutter *c, const tri_node *node)
{
    tri_graph *graph = c->graph;
    for (int k = 0; k < node->num_out; k++) {
        tri_value *out = &graph->values[node->out[k]];
        out->producer = TRI_NONE;
        if (out->state == TRI_NONE)
            continue;
        c->now[node->out[k]] = c->now[node->prev[k]];
        if (graph->states[out->state].latest == node->out[k])
            graph->states[out->state].latest = c->now[node->out[k]];
        out->state = TRI_NONE;
        out->kind = TRI_VALUE_TEMP;
    }
}

static tr_status keep(cutter *c, tri_node node, tr_error *err)
{
    tri_graph *graph = c->graph;
    for (int j = 0; j < node.num_in; j++)
        if (node.in[j] != TRI_NONE)
            node.in[j] = resolve(c, node.in[j]);
    for (int k = 0; k < node.num_out; k++) {
        if (node.prev[k] == TRI_NONE)
            continue;
        node.prev[k] = c->now[node.prev[k]];
        if (node.write[k] == TRI_WRITE_ADD && graph->values[node.prev[k]].producer == TRI_NONE)
            node.write[k] = TRI_WRITE_START; /* what it would have added to is elsewhere */
    }
    tri_graph_append(graph, &node);
    return tri_graph_status(graph, err);
}

/* Nodes of one phase and one chunk, between what comes in and what goes out. */
static tr_status cut_chunk(cutter *c, int chunk, tri_phase phase, tr_error *err)
{
    bool backward = phase == TRI_PHASE_BACKWARD, here = route_of(c, chunk) >= 0, any = false;
    look_from(c, chunk);
    for (size_t n = 0; n < c->num_old; n++) {
        const tri_node *node = &c->old[n];
        if (node->phase != phase || tri_node_chunk(c->graph, node) != chunk)
            continue;
        if (!here) {
            skip(c, node);
            continue;
        }
        c->graph->phase = phase;
        c->graph->layer = node->layer;
        c->graph->ends_chain = false;
        if (!any)
            TRI_TRY(receive(c, chunk, backward, err));
        any = true;
        TRI_TRY(keep(c, *node, err));
    }
    return any ? send(c, chunk, backward, err) : TR_OK;
}

/* Squares of what several ranks hold count once; a node of a parameter that is not here has
 * nothing to do. */
static bool runs_in_update(const cutter *c, const tri_node *node)
{
    const tri_graph *graph = c->graph;
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        tri_id state = graph->values[c->now[node->in[j]]].state;
        tri_id param = state == TRI_NONE ? TRI_NONE : graph->states[state].param;
        if (param == TRI_NONE)
            continue;
        if (c->homes->elsewhere[param])
            return false;
        if (node->op == TRI_OP_SUM_SQUARES && (int)c->homes->first[param] != c->stages->rank)
            return false;
    }
    return true;
}

/* Temporaries of the update that were never made: whatever reads them is not here either. */
static bool reads_skipped(const cutter *c, const tri_node *node)
{
    for (int j = 0; j < node->num_in; j++) {
        const tri_value *in =
            node->in[j] == TRI_NONE ? NULL : &c->graph->values[resolve(c, node->in[j])];
        if (in && in->kind == TRI_VALUE_TEMP && in->producer == TRI_NONE)
            return true;
    }
    return false;
}

/* Whether a node that was kept so far makes a version of a state. */
static bool written(const cutter *c, tri_id state)
{
    for (size_t n = 0; n < c->graph->num_nodes; n++)
        for (int k = 0; k < c->graph->nodes[n].num_out; k++)
            if (c->graph->values[c->graph->nodes[n].out[k]].state == state)
                return true;
    return false;
}

/* Whether a node of the update that is kept adds to a state. */
static bool update_adds(const cutter *c, tri_id state)
{
    for (size_t n = 0; n < c->num_old; n++) {
        const tri_node *node = &c->old[n];
        bool adds = node->num_out > 0 &&
                    (node->write[0] == TRI_WRITE_START || node->write[0] == TRI_WRITE_ADD);
        if (node->phase == TRI_PHASE_UPDATE && adds &&
            c->graph->values[node->out[0]].state == state && runs_in_update(c, node))
            return true;
    }
    return false;
}

/* Statistics that nothing here contributes to begin with what changes nothing: one by one before
 * all sums, so that those travel together as on the other ranks. */
static tr_status start_statistics(cutter *c, tr_error *err)
{
    tri_graph *graph = c->graph;
    for (size_t s = 0; s < graph->num_states; s++) {
        tri_id first = TRI_NONE;
        if (graph->states[s].kind != TRI_STATE_STAT)
            continue;
        for (size_t v = 0; v < c->num_values && first == TRI_NONE; v++)
            if (graph->values[v].state == s)
                first = c->now[v];
        if (first == TRI_NONE || graph->states[s].latest == first || written(c, (tri_id)s) ||
            update_adds(c, (tri_id)s))
            continue;
        tri_id latest = graph->states[s].latest;
        tri_partial_how join = tri_graph_join_of(graph, (tri_id)s);
        const int64_t count = tri_shape_count(&graph->states[s].shape);
        const tri_attr attr = {.axpby = {.alpha = (float)tri_join_start(join),
                                         .count = count > 1 ? (int32_t)count : 0}};
        graph->phase = TRI_PHASE_UPDATE;
        graph->layer = graph->num_layers;
        tri_id start = tri_graph_emit(graph, TRI_OP_FILL, graph->states[s].name, &attr, NULL, 0, 1);
        TRI_TRY(tri_graph_status(graph, err));
        graph->states[s].latest = first;
        tri_graph_write_state(graph, start, 0, (tri_id)s, TRI_WRITE_START);
        graph->states[s].latest = latest;
        for (size_t v = 0; v < c->num_values; v++)
            if (c->now[v] == first)
                c->now[v] = graph->nodes[start].out[0];
    }
    return TR_OK;
}

static tr_status cut_update(cutter *c, tr_error *err)
{
    look_from(c, -1);
    TRI_TRY(start_statistics(c, err));
    for (size_t n = 0; n < c->num_old; n++) {
        const tri_node *node = &c->old[n];
        if (node->phase != TRI_PHASE_UPDATE)
            continue;
        if (!runs_in_update(c, node) || reads_skipped(c, node)) {
            skip(c, node);
            continue;
        }
        c->graph->phase = TRI_PHASE_UPDATE;
        c->graph->layer = node->layer;
        c->graph->ends_chain = false;
        TRI_TRY(keep(c, *node, err));
    }
    return TR_OK;
}

/* What the host reads is on every rank: made on one, it is sent to the others. */
static tr_status share_outputs(cutter *c, tr_error *err)
{
    tri_graph *graph = c->graph;
    for (size_t v = 0; v < c->num_values; v++) {
        if (!graph->values[v].output || c->made_in[v] < 0)
            continue;
        bool here = route_of(c, c->made_in[v]) >= 0;
        graph->phase = TRI_PHASE_UPDATE;
        graph->layer = graph->num_layers;
        tri_attr attr = {
            .message = {.axis = TRI_AXIS_PP, .peer = (uint32_t)home_of(c, 0, c->made_in[v])}};
        tri_id all;
        TRI_TRY(emit_like(c, TRI_OP_BROADCAST, attr, (tri_id)v, here ? (tri_id)v : TRI_NONE, 1,
                          &all, err));
        graph->values[all].output = true;
        graph->values[v].output = false;
        graph->values[v].name = tri_arena_printf(&graph->arena, "%s.own", graph->values[v].name);
    }
    return tri_graph_status(graph, err);
}

/* Takes out the states that this rank has no use for. */
static tr_status drop_states(cutter *c, tr_error *err)
{
    tri_graph *graph = c->graph;
    tri_id *id = malloc((graph->num_states + 1) * sizeof *id);
    bool *used = calloc(graph->num_states + 1, sizeof *used);
    if (!id || !used) {
        free(id);
        free(used);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to cut the graph");
    }
    for (size_t s = 0; s < graph->num_states; s++) {
        tri_id param = graph->states[s].param;
        used[s] = param != TRI_NONE && !c->homes->elsewhere[param];
    }
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE && graph->values[node->in[j]].state != TRI_NONE)
                used[graph->values[node->in[j]].state] = true;
        for (int k = 0; k < node->num_out; k++)
            if (graph->values[node->out[k]].state != TRI_NONE)
                used[graph->values[node->out[k]].state] = true;
    }
    size_t kept = 0;
    for (size_t s = 0; s < graph->num_states; s++) {
        id[s] = used[s] ? (tri_id)kept : TRI_NONE;
        if (used[s])
            graph->states[kept++] = graph->states[s];
    }
    graph->num_states = kept;
    for (size_t v = 0; v < graph->num_values; v++) {
        tri_value *value = &graph->values[v];
        if (value->state == TRI_NONE)
            continue;
        value->state = id[value->state];
        if (value->state == TRI_NONE) {
            value->kind = TRI_VALUE_TEMP;
            value->output = false;
        }
    }
    for (size_t i = 0; i < graph->num_stats; i++)
        graph->stats[i].state = id[graph->stats[i].state];
    tri_id *tables[] = {graph->param_state, graph->copy_state, graph->grad_state};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < graph->params->count; i++)
            if (tables[t][i] != TRI_NONE)
                tables[t][i] = id[tables[t][i]];
    if (graph->scaler != TRI_NONE)
        graph->scaler = id[graph->scaler];
    free(id);
    free(used);
    return TR_OK;
}

/* A chunk may live here on two routes only when they pass through the same ranks. */
static tr_status check_routes(const cutter *c, tr_error *err)
{
    const tri_stages *s = c->stages;
    for (int chunk = 0; chunk < s->num_chunks; chunk++)
        for (int route = 0; route < s->num_routes; route++) {
            if (home_of(c, route, chunk) != s->rank)
                continue;
            int first = route_of(c, chunk);
            for (int to = chunk - 1; to <= chunk + 1; to += 2)
                if (to >= 0 && to < s->num_chunks && home_of(c, route, to) != home_of(c, first, to))
                    return tri_fail(err, TR_ERROR_INPUT,
                                    "the schedule brings two routes with different neighbours "
                                    "through chunk %d on rank %d; give each route its own rank",
                                    chunk, s->rank);
        }
    return TR_OK;
}

static tr_status cut(cutter *c, tr_error *err)
{
    if (c->all_routes)
        TRI_TRY(check_routes(c, err));
    note_reads(c);
    for (int chunk = 0; chunk < c->stages->num_chunks; chunk++)
        TRI_TRY(cut_chunk(c, chunk, TRI_PHASE_FORWARD, err));
    for (int chunk = c->stages->num_chunks - 1; chunk >= 0; chunk--)
        TRI_TRY(cut_chunk(c, chunk, TRI_PHASE_BACKWARD, err));
    TRI_TRY(cut_update(c, err));
    TRI_TRY(share_outputs(c, err));
    return drop_states(c, err);
}

tr_status tri_stages_cut(tri_graph *graph, const tri_stages *stages, const tri_homes *homes,
                         bool all_routes, tr_error *err)
{
    size_t num = graph->num_values;
    cutter c = {.graph = graph,
                .stages = stages,
                .homes = homes,
                .all_routes = all_routes,
                .num_values = num};
    c.old = tri_graph_take_nodes(graph, &c.num_old);
    c.now = malloc((num + 1) * sizeof *c.now);
    c.local = malloc((num + 1) * sizeof *c.local);
    c.first_read = malloc((num + 1) * sizeof *c.first_read);
    c.last_read = malloc((num + 1) * sizeof *c.last_read);
    c.made_in = malloc((num + 1) * sizeof *c.made_in);
    c.backward = calloc(num + 1, sizeof *c.backward);
    tr_status status = c.now && c.local && c.first_read && c.last_read && c.made_in && c.backward
                           ? cut(&c, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to cut the graph");
    free(c.now);
    free(c.local);
    free(c.first_read);
    free(c.last_read);
    free(c.made_in);
    free(c.backward);
    free(c.entries);
    free(c.old);
    return status;
}
