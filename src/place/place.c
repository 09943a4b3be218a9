/* The sweep.
 *
 * The nodes are taken out of the graph and put back one after the other. Before a node, the values
 * it reads are brought to where its rule wants them; after it, its outputs get the shapes of this
 * rank's pieces. Invariants, for a value that a node made:
 *   1. `at` says where it lies;
 *   2. `now` of a version of a state leads to the version that holds its completed sum, once there
 * is one;
 *   3. `moved` lists the values it was converted to. */
#include "graph/passes.h"
#include "place/placer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node that writes a state lies as the state does; over what it is partial, the state is. */
static tr_status place_state_output(tri_placer *p, const tri_node *node, int k, tri_placement at,
                                    tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id id = node->out[k], state = graph->values[id].state;
    p->partial[state] |= at.partial;
    graph->values[id].at.partial = at.partial; /* of what this adds: for people */
    at.partial = 0;
    if (!tri_placement_equal(&p->values[id].at, &at)) {
        char own[96], other[96], what[256];
        const tri_shape *shape = &p->values[id].global;
        snprintf(what, sizeof what, "its result lies as %s, its state as %s",
                 tri_placement_text(&graph->grid, &at, shape, own, sizeof own),
                 tri_placement_text(&graph->grid, &p->values[id].at, shape, other, sizeof other));
        return tri_placer_complain(p, node, what, err);
    }
    if (graph->chunk_of && graph->states[state].kind == TRI_STATE_STAT &&
        node->phase != TRI_PHASE_UPDATE)
        p->partial[state] |= tri_placer_axis(p, TRI_AXIS_PP);
    return TR_OK;
}

/* Where an input of a node lies. Of a table that is not there, the parameter. */
static const tri_placement *input_at(const tri_placer *p, const tri_node *node, int j)
{
    if (node->in[j] != TRI_NONE)
        return &p->values[node->in[j]].at;
    bool shape_alone = j + 1 == tri_op_get(node->op)->shape_in && p->shape_of != TRI_NONE;
    return shape_alone ? &p->params[p->shape_of] : NULL;
}

/* Whether terms of an input over a factor give terms of the results: all inputs are added up, or
 * the policy lets terms pass through what is linear in this one, the others being made whole, or
 * it is cheaper to add up what comes out. A
 * value that is partial over more than the policy says is one of the residual stream's. */
static bool passes(const tri_placer *p, const tri_node *node, int j, int factor)
{
    const tri_op_def *def = tri_op_get(node->op);
    const uint8_t family = p->layout->grid.factor[factor].family;
    tri_factor_set partial =
        p->values[node->in[j]].at.partial & p->layout->grid.axis[family].factors;
    bool together = def->linear;
    bool alone = def->linear_in >> j & 1 && node->phase == TRI_PHASE_BACKWARD &&
                 (partial & ~p->deferred) == 0;
    bool carried = def->carries >> j & 1;
    for (int i = 0; i < node->num_in; i++) {
        const tri_placement *at = input_at(p, node, i);
        tri_spot spot = at ? tri_placement_spot(at, factor) : (tri_spot){TRI_SPOT_WHOLE, 0};
        together &= !at || spot.kind == TRI_SPOT_TERMS;
        alone &= i == j || spot.kind != TRI_SPOT_TERMS;
        alone &= i < def->min_in || !at;
        carried &= i == j || spot.kind == TRI_SPOT_WHOLE;
    }
    return together || alone || carried;
}

/* Completes what is partial where its terms cannot pass. */
static tr_status complete_inputs(tri_placer *p, tri_node *node, tr_error *err)
{
    tri_factor_set ends[TRI_MAX_IN] = {0};
    for (int j = 0; j < node->num_in; j++)
        for (int f = 0; node->in[j] != TRI_NONE && f < p->layout->grid.num_factors; f++)
            if (p->values[node->in[j]].at.partial >> f & 1 && !passes(p, node, j, f))
                ends[j] |= tri_factor_bit(f);
    for (int j = 0; j < node->num_in; j++)
        if (ends[j])
            TRI_TRY(tri_placer_complete(p, node->in[j], ends[j], &node->in[j], err));
    return TR_OK;
}

/* What the rule of an operator says over one factor: how inputs must lie, and outputs then do.
 * `gone`: of each input, the factors that it is gathered over anyway. */
static void ask_rule(const tri_placer *p, const tri_node *node, const tri_shape *shapes, int factor,
                     const tri_factor_set *gone, tri_spot *in, tri_spot *out)
{
    const tri_op_def *def = tri_op_get(node->op);
    const tri_spot whole = {TRI_SPOT_WHOLE, 0}, terms = {TRI_SPOT_TERMS, 0};
    bool passing = false;
    for (int j = 0; j < node->num_in; j++) {
        const tri_placement *at = input_at(p, node, j);
        in[j] = at && !(gone[j] >> factor & 1) ? tri_placement_spot(at, factor) : whole;
        passing |= in[j].kind == TRI_SPOT_TERMS;
    }
    for (int k = 0; k < node->num_out; k++)
        out[k] = passing ? terms : whole;
    if (!passing && def->place)
        def->place(node, shapes, in, out);
    for (int j = 0; j < node->num_in && (passing || !def->place); j++)
        in[j] = in[j].kind == TRI_SPOT_TERMS ? terms : whole;
}

/* The factors that an input is gathered over, when it is to lie like this: those that its dims are
 * not cut over any more, and what goes with them. */
static tri_factor_set taken_along(const tri_placement *at, const tri_spot *want, int num_factors)
{
    tri_factor_set lost = 0;
    for (int f = 0; f < num_factors; f++) {
        tri_spot spot = tri_placement_spot(at, f);
        if (spot.kind == TRI_SPOT_CUT && (want[f].kind != TRI_SPOT_CUT || want[f].dim != spot.dim))
            lost |= tri_factor_bit(f);
    }
    return tri_placement_along(at, lost);
}

/* How inputs are to lie, and outputs then do, over every factor. */
typedef struct wishes {
    tri_spot in[TRI_MAX_IN][TRI_MAX_FACTORS], out[TRI_MAX_OUT][TRI_MAX_FACTORS];
} wishes;

static void ask_all(const tri_placer *p, const tri_node *node, const tri_shape *shapes, wishes *w)
{
    const int num_factors = p->layout->grid.num_factors;
    tri_factor_set gone[TRI_MAX_IN] = {0};
    for (bool settled = false; !settled;) {
        settled = true;
        for (int f = 0; f < num_factors; f++) {
            tri_spot in[TRI_MAX_IN], out[TRI_MAX_OUT];
            ask_rule(p, node, shapes, f, gone, in, out);
            for (int j = 0; j < node->num_in; j++)
                w->in[j][f] = in[j];
            for (int k = 0; k < node->num_out; k++)
                w->out[k][f] = out[k];
        }
        for (int j = 0; j < node->num_in; j++) {
            if (node->in[j] == TRI_NONE)
                continue;
            tri_factor_set along =
                gone[j] | taken_along(&p->values[node->in[j]].at, w->in[j], num_factors);
            settled &= along == gone[j];
            gone[j] = along;
        }
    }
}

/* Brings the inputs of a node to where its rule wants them; where the outputs then lie in `out`. */
static tr_status place_inputs(tri_placer *p, tri_node *node, tri_placement *out, tr_error *err)
{
    const tri_grid *grid = &p->layout->grid;
    tri_shape shapes[TRI_MAX_IN];
    wishes w;
    TRI_TRY(complete_inputs(p, node, err));
    for (int j = 0; j < node->num_in; j++)
        shapes[j] =
            node->in[j] == TRI_NONE ? (tri_shape){.rank = -1} : p->values[node->in[j]].global;
    ask_all(p, node, shapes, &w);
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        tri_placement at = tri_placement_of(grid, &shapes[j], w.in[j]);
        at.how = p->values[node->in[j]].at.how;
        TRI_TRY(tri_placer_convert(p, node->in[j], &at, &node->in[j], err));
    }
    for (int k = 0; k < node->num_out; k++) {
        out[k] = tri_placement_of(grid, &p->values[node->out[k]].global, w.out[k]);
        out[k].how = (uint8_t)tri_op_get(node->op)->how;
    }
    return TR_OK;
}

/* Over which ranks ZeRO leaves different slices of some parameter. */
static tri_factor_set sharded(const tri_placer *p)
{
    return p->zero->flats ? tri_placer_axis(p, TRI_AXIS_SHARD) : 0;
}

/* Squares are added once for each element of a parameter: what several ranks have, the first adds.
 * Ranks of a pipeline, and slices that ZeRO leaves, have different ones. */
static bool adds_squares(tri_placer *p, tri_node *node)
{
    const tri_grid *grid = &p->layout->grid;
    const tri_id param = p->graph->states[p->graph->values[node->in[0]].state].param;
    tri_factor_set own = tri_placement_cut(&p->values[node->in[0]].at);
    if (p->zero->flats)
        own |= tri_placer_axis(p, tri_placer_shard(p, param));
    if (tri_grid_place(grid, (p->cut | sharded(p)) & (tri_factor_set)~own) != 0)
        return false;
    node->write[0] = p->any_squares ? TRI_WRITE_ADD : TRI_WRITE_START;
    p->any_squares = true;
    return true;
}

/* The sum of squares is one of terms, on ranks without any parameter of their own too. */
static void note_squares(tri_placer *p, const tri_node *node)
{
    p->norm = p->graph->values[node->out[0]].state;
    if (p->graph->chunk_of)
        p->partial[p->norm] |= tri_placer_axis(p, TRI_AXIS_PP);
    p->partial[p->norm] |= sharded(p) | p->cut; /* copies of a slice count once */
}

/* A rank that has nothing to add begins with zero all the same. */
static tr_status add_no_squares(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    if (p->norm == TRI_NONE || p->any_squares)
        return TR_OK;
    tri_id none = TRI_NONE, old = graph->states[p->norm].latest;
    tri_id node = tri_graph_emit(graph, TRI_OP_SUM_SQUARES, "sum_squares", NULL, &none, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_graph_write_state(graph, node, 0, p->norm, TRI_WRITE_START);
    p->any_squares = true;
    p->values[old].now = graph->nodes[node].out[0];
    return tri_graph_status(graph, err);
}

/* A node that this rank does not run: the versions before it stay the newest. */
static void drop(tri_placer *p, const tri_node *node)
{
    tri_graph *graph = p->graph;
    for (int k = 0; k < node->num_out; k++) {
        tri_id out = node->out[k], state = graph->values[out].state;
        p->values[out].absent = true;
        if (state == TRI_NONE)
            continue;
        p->values[out].absent = false;
        p->values[out].now = node->prev[k];
        if (graph->states[state].latest == out)
            graph->states[state].latest = node->prev[k];
        graph->values[out].state = TRI_NONE;
        graph->values[out].kind = TRI_VALUE_TEMP;
    }
}

/* ZeRO in the update: a node that works on a divided parameter takes this rank's slice; false when
 * that is empty. */
static bool take_slice(tri_placer *p, tri_node *node)
{
    const tri_graph *graph = p->graph;
    if (node->phase != TRI_PHASE_UPDATE || !p->zero->flats)
        return true;
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        if (p->values[node->in[j]].absent)
            return false;
        tri_id state = graph->values[node->in[j]].state;
        tri_id param = state == TRI_NONE ? TRI_NONE : graph->states[state].param;
        if (param == TRI_NONE)
            continue;
        int64_t first;
        const tri_flat *flat = &p->zero->flats[param];
        if (tri_flat_slice(flat, flat->part, &first) == 0)
            return false;
        if (!flat->whole)
            node->attr.flat = *flat;
    }
    return true;
}

static tr_status read_states(tri_placer *p, tri_node *node, tr_error *err)
{
    TRI_TRY(tri_placer_sum_loads(p, node, err));
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        node->in[j] = tri_placer_now(p, node->in[j]);
        tri_id state = p->graph->values[node->in[j]].state;
        if (state != TRI_NONE && node->phase == TRI_PHASE_UPDATE)
            TRI_TRY(tri_placer_complete_state(p, state, err));
        node->in[j] = tri_placer_now(p, node->in[j]);
    }
    for (int k = 0; k < node->num_out; k++)
        if (node->prev[k] != TRI_NONE)
            node->prev[k] = tri_placer_now(p, node->prev[k]);
    return TR_OK;
}

static tr_status place_node(tri_placer *p, tri_node node, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_placement out[TRI_MAX_OUT], first = {0};
    graph->phase = node.phase;
    graph->layer = node.layer;
    graph->ends_chain = node.ends_chain;
    if (node.phase == TRI_PHASE_UPDATE && !p->sums_done)
        TRI_TRY(tri_placer_complete_gradients(p, err));
    int chunk = node.phase == TRI_PHASE_UPDATE ? -1 : tri_node_chunk(graph, &node);
    if (graph->chunk_of && chunk != p->chunk) {
        TRI_TRY(tri_placer_end_backward(p, err));
        tri_placer_enter_chunk(p, chunk);
    }
    if (node.phase == TRI_PHASE_BACKWARD)
        p->backward_layer = node.layer;
    if (node.op == TRI_OP_SUM_SQUARES)
        note_squares(p, &node);
    else if (node.op == TRI_OP_FINISH)
        TRI_TRY(add_no_squares(p, err));
    TRI_TRY(read_states(p, &node, err));
    p->shape_of = TRI_NONE;
    TRI_TRY(tri_placer_gather_weights(p, &node, err));
    bool runs = take_slice(p, &node);
    if (runs && node.op == TRI_OP_SUM_SQUARES)
        runs = adds_squares(p, &node);
    if (!runs) {
        drop(p, &node);
        return TR_OK;
    }
    TRI_TRY(tri_placer_attend(p, &node, err));
    TRI_TRY(tri_placer_sort(p, &node, err));
    if (node.num_in > 0 && node.in[0] != TRI_NONE)
        first = p->values[node.in[0]].at;
    TRI_TRY(place_inputs(p, &node, out, err));
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD)
        TRI_TRY(tri_placer_share_gradient(p, &node, out, err));
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD && p->zero->flats &&
        p->layout->zero >= 2)
        return tri_placer_contribute(p, &node, err);
    for (int k = 0; k < node.num_out; k++) {
        if (graph->values[node.out[k]].state != TRI_NONE)
            TRI_TRY(place_state_output(p, &node, k, out[k], err));
        else
            tri_placer_put(p, node.out[k], &out[k]);
    }
    tri_graph_append(graph, &node);
    TRI_TRY(tri_placer_return(p, &node, &first, err));
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD)
        TRI_TRY(tri_placer_note_gradient(p, graph->values[node.out[0]].state, err));
    return tri_graph_status(graph, err);
}

/* What the host reads is complete, and whole but for what it was cut along when it came in: a
 * rank's host gives it its rows, and reads theirs. */
static tri_placement host_place(const tri_placer *p, tri_id id)
{
    const tri_placement *at = &p->values[id].at;
    tri_placement host =
        tri_policy_place(p->layout, TRI_POLICY_INPUT, &p->values[id].global, (tri_factor_set)~0);
    for (int d = 0; d < p->values[id].global.rank; d++)
        if (tri_entries_set(&host.dim[d]) & ~tri_entries_set(&at->dim[d]))
            host.dim[d].num = 0; /* made of none of its rows */
    return host;
}

static tr_status place_outputs(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    graph->layer = graph->num_layers;
    tri_phase last = graph->phase;
    graph->ends_chain = false;
    size_t num = graph->num_values;
    for (size_t v = 0; v < num; v++) {
        if (!graph->values[v].output)
            continue;
        tri_id id = tri_placer_now(p, (tri_id)v), state = graph->values[id].state;
        /* Sums over a pipeline are formed on all of its ranks, when their forwards are done. */
        graph->phase = graph->chunk_of && state != TRI_NONE ? TRI_PHASE_UPDATE : last;
        if (state != TRI_NONE)
            TRI_TRY(tri_placer_complete_state(p, state, err));
        else if (p->values[id].at.partial)
            TRI_TRY(tri_placer_complete(p, id, p->values[id].at.partial, &id, err));
        id = tri_placer_now(p, id);
        if (state == TRI_NONE) {
            tri_placement host = host_place(p, id);
            TRI_TRY(tri_placer_convert(p, id, &host, &id, err));
        }
        if (id == v)
            continue;
        graph->values[v].output = false;
        graph->values[id].output = true;
        if (graph->values[id].state == TRI_NONE)
            graph->values[id].name = graph->values[v].name; /* the host knows it by that */
    }
    return tri_graph_status(graph, err);
}

static void note_chunk(tri_placer *p, tri_id param, const tri_node *node)
{
    int chunk = tri_node_chunk(p->graph, node);
    if (node->phase != TRI_PHASE_BACKWARD)
        return;
    if (chunk < p->first_chunk[param])
        p->first_chunk[param] = chunk;
    if (chunk > p->last_chunk[param])
        p->last_chunk[param] = chunk;
}

/* For ZeRO: how often each gradient is contributed to, and which version of a state another one
 * replaces. */
static void note_versions(tri_placer *p, const tri_node *nodes, size_t num_nodes)
{
    const tri_graph *graph = p->graph;
    for (size_t n = 0; n < num_nodes; n++)
        for (int k = 0; k < nodes[n].num_out; k++) {
            tri_id out = nodes[n].out[k], state = graph->values[out].state;
            if (state == TRI_NONE)
                continue;
            p->values[out].replaces = nodes[n].prev[k];
            if (graph->states[state].kind != TRI_STATE_GRAD || nodes[n].op != TRI_OP_ACCUMULATE)
                continue;
            if (graph->chunk_of)
                note_chunk(p, graph->states[state].param, &nodes[n]);
            else
                p->grads_left[graph->states[state].param]++;
        }
}

static tr_status sweep(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    size_t num_old;
    tri_node *old = tri_graph_take_nodes(graph, &num_old);
    tr_status status = tri_placer_note_values(p, err);
    if (status == TR_OK)
        status = tri_placer_states(p, err);
    p->old = old;
    p->num_old = num_old;
    if (status == TR_OK)
        note_versions(p, old, num_old);
    for (size_t n = 0; n < num_old && status == TR_OK; n++)
        status = place_node(p, old[n], err);
    free(old);
    TRI_TRY(status);
    TRI_TRY(tri_placer_gather_updates(p, err));
    return place_outputs(p, err);
}

tr_status tri_place(tri_graph *graph, const tri_layout *layout, tri_placed_params *placed,
                    tr_error *err)
{
    graph->grid = layout->grid;
    if (layout->grid.num_factors == 0 && !graph->chunk_of)
        return TR_OK;
    size_t num_params = graph->params->count;
    tri_placer p = {.graph = graph,
                    .layout = layout,
                    .placed = placed,
                    .zero = &placed->zero,
                    .norm = TRI_NONE,
                    .shape_of = TRI_NONE,
                    .chunk = -1};
    p.deferred = tri_policy_deferred(layout);
    p.partial = calloc(graph->num_states + 1, sizeof *p.partial);
    p.params = calloc(num_params + 1, sizeof *p.params);
    p.accumulated = calloc(num_params + 1, sizeof *p.accumulated);
    size_t num_ids = (1 + tri_placer_num_wholes(graph, layout)) * num_params;
    tri_id *ids = malloc((num_ids + 1) * sizeof *ids);
    p.grads_left = calloc(num_params + 1, sizeof *p.grads_left);
    p.complete = calloc(graph->num_states + 1, sizeof *p.complete);
    int *chunks = malloc((2 * num_params + 1) * sizeof *chunks);
    tr_status status =
        p.partial && p.params && p.accumulated && ids && p.grads_left && p.complete && chunks
            ? TR_OK
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
    for (size_t i = 0; ids && i < num_ids; i++)
        ids[i] = TRI_NONE;
    for (size_t i = 0; chunks && i < num_params; i++) {
        chunks[i] = INT_MAX;
        chunks[num_params + i] = -1;
    }
    if (status == TR_OK) {
        p.first_chunk = chunks;
        p.last_chunk = chunks + num_params;
        p.grad = ids;
        p.wholes = ids + num_params;
        tri_placer_find_gathered(&p);
        status = sweep(&p, err);
    }
    free(p.partial);
    free(p.params);
    free(p.accumulated);
    free(p.grads_left);
    free(p.complete);
    free(chunks);
    free(ids);
    free(p.values);
    return status;
}
