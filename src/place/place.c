/* The sweep.
 *
 * The nodes are taken out of the graph and put back one after the other. Before a node, the values
 * it reads are brought to where its rule wants them; after it, its outputs get the shapes of this
 * rank's pieces. Invariants, for a value that a node made:
 *   1. `spot` says how it lies over tp;
 *   2. `now` of a version of a state leads to the version that holds its completed sum, once there
 * is one;
 *   3. `whole` and `piece` are the values it was converted to, or TRI_NONE. */
#include "graph/passes.h"
#include "place/placer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool has_rows(const tri_placer *p, tri_id id)
{
    return tri_placer_dim_named(&p->values[id].global, TRI_DIM_B) >= 0;
}

/* Up to the update, what has no rows but was made of what has them is a sum over rows. */
static void note_sums(tri_placer *p, const tri_node *node)
{
    bool rows = false;
    if (node->phase == TRI_PHASE_UPDATE)
        return;
    for (int j = 0; j < node->num_in; j++)
        rows |= node->in[j] != TRI_NONE &&
                (has_rows(p, node->in[j]) || p->values[node->in[j]].sums_rows);
    for (int k = 0; k < node->num_out; k++)
        p->values[node->out[k]].sums_rows = rows && !has_rows(p, node->out[k]);
}

/* A node that writes a state: over tp as its rule says, over dp a term when it sums over rows. */
static tr_status place_state_output(tri_placer *p, const tri_node *node, int k, tri_spot spot,
                                    tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id id = node->out[k], state = graph->values[id].state;
    bool cut = p->values[id].spot.kind == TRI_SPOT_CUT;
    if (cut && !tri_placer_same_spot(&p->values[id].spot, &spot))
        return tri_placer_complain(p, node, "its result is not cut as its state is", err);
    if (!cut && spot.kind == TRI_SPOT_CUT)
        return tri_placer_complain(p, node, "its result is cut, but its state is not", err);
    if (spot.kind == TRI_SPOT_TERMS)
        p->terms_tp[state] = true;
    if (node->phase == TRI_PHASE_BACKWARD && tri_cut_has_copies(&graph->values[id].cut))
        p->terms_copy[state] = true;
    if (p->values[id].sums_rows)
        p->terms_dp[state] = true;
    if (graph->chunk_of && graph->states[state].kind == TRI_STATE_STAT &&
        node->phase != TRI_PHASE_UPDATE)
        p->terms_pp[state] = true;
    return TR_OK;
}

/* Brings the inputs of a node to where its rule wants them; spots of the outputs in `out`. */
static tr_status place_inputs(tri_placer *p, tri_node *node, tri_spot *out, tr_error *err)
{
    const tri_op_def *def = tri_op_get(node->op);
    tri_spot want[TRI_MAX_IN];
    tri_shape shapes[TRI_MAX_IN];
    bool all_terms = def->linear;
    for (int j = 0; j < node->num_in; j++)
        all_terms &= node->in[j] == TRI_NONE || p->values[node->in[j]].spot.kind == TRI_SPOT_TERMS;
    for (int j = 0; j < node->num_in; j++) {
        want[j] = (tri_spot){TRI_SPOT_WHOLE, 0};
        shapes[j] = (tri_shape){.rank = -1};
        if (node->in[j] == TRI_NONE)
            continue;
        if (!all_terms && p->values[node->in[j]].spot.kind == TRI_SPOT_TERMS)
            TRI_TRY(tri_placer_complete(p, node->in[j], &node->in[j], err));
        want[j] = p->values[node->in[j]].spot;
        shapes[j] = p->values[node->in[j]].global;
    }
    for (int k = 0; k < node->num_out; k++)
        out[k] = (tri_spot){TRI_SPOT_WHOLE, 0};
    if (def->place)
        def->place(node, shapes, want, out);
    else
        for (int j = 0; j < node->num_in; j++)
            want[j] = (tri_spot){TRI_SPOT_WHOLE, 0};
    for (int j = 0; j < node->num_in; j++)
        if (node->in[j] != TRI_NONE)
            TRI_TRY(tri_placer_convert(p, node->in[j], want[j], &node->in[j], err));
    return TR_OK;
}

/* Squares are added once for each element of a parameter: what every rank has, the first adds. */
static bool adds_squares(tri_placer *p, tri_node *node)
{
    bool cut = p->values[node->in[0]].spot.kind == TRI_SPOT_CUT;
    if (p->any_cut && !cut && p->layout->coordinate[TRI_AXIS_TP] != 0)
        return false;
    if (tri_cut_has_copies(&p->graph->values[node->in[0]].cut) &&
        p->layout->coordinate[TRI_AXIS_KV_COPY] != 0)
        return false;
    node->write[0] = p->any_squares ? TRI_WRITE_ADD : TRI_WRITE_START;
    p->any_squares = true;
    return true;
}

/* The sum of squares is one of terms, on ranks without any parameter of their own too. */
static void note_squares(tri_placer *p, const tri_node *node)
{
    p->norm = p->graph->values[node->out[0]].state;
    p->terms_pp[p->norm] |= p->graph->chunk_of != NULL;
    p->terms_dp[p->norm] |= p->zero->flats != NULL;
    p->terms_tp[p->norm] |= p->any_cut;
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
    tri_spot out[TRI_MAX_OUT];
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
    TRI_TRY(tri_placer_gather_weights(p, &node, err));
    bool runs = take_slice(p, &node);
    if (runs && node.op == TRI_OP_SUM_SQUARES)
        runs = adds_squares(p, &node);
    if (!runs) {
        drop(p, &node);
        return TR_OK;
    }
    TRI_TRY(place_inputs(p, &node, out, err));
    note_sums(p, &node);
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD && p->zero->flats &&
        p->layout->zero >= 2)
        return tri_placer_contribute(p, &node, err);
    for (int k = 0; k < node.num_out; k++) {
        if (graph->values[node.out[k]].state != TRI_NONE)
            TRI_TRY(place_state_output(p, &node, k, out[k], err));
        else
            tri_placer_set_spot(p, node.out[k], out[k]);
    }
    tri_graph_append(graph, &node);
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD)
        TRI_TRY(tri_placer_note_gradient(p, graph->values[node.out[0]].state, err));
    return tri_graph_status(graph, err);
}

/* What the host reads is whole and complete. */
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
        else if (p->values[id].spot.kind == TRI_SPOT_TERMS)
            TRI_TRY(tri_placer_complete(p, id, &id, err));
        id = tri_placer_now(p, id);
        TRI_TRY(tri_placer_convert(p, id, (tri_spot){TRI_SPOT_WHOLE, 0}, &id, err));
        if (id == v)
            continue;
        graph->values[v].output = false;
        graph->values[id].output = true;
        if (graph->values[id].state == TRI_NONE)
            graph->values[id].name = graph->values[v].name; /* the host knows it by that */
    }
    if (graph->loss != TRI_NONE)
        graph->loss = tri_placer_now(p, graph->loss);
    if (graph->count != TRI_NONE)
        graph->count = tri_placer_now(p, graph->count);
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
 * replaces (kept in `piece`, which states have no other use for). */
static void note_versions(tri_placer *p, const tri_node *nodes, size_t num_nodes)
{
    const tri_graph *graph = p->graph;
    for (size_t n = 0; n < num_nodes; n++)
        for (int k = 0; k < nodes[n].num_out; k++) {
            tri_id out = nodes[n].out[k], state = graph->values[out].state;
            if (state == TRI_NONE)
                continue;
            p->values[out].piece = nodes[n].prev[k];
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
    if (tri_mesh_size(&layout->mesh, TRI_AXIS_TP) == 1 &&
        tri_mesh_size(&layout->mesh, TRI_AXIS_DP) == 1 && !graph->chunk_of)
        return TR_OK;
    size_t num_params = graph->params->count;
    tri_placer p = {.graph = graph,
                    .layout = layout,
                    .placed = placed,
                    .zero = &placed->zero,
                    .norm = TRI_NONE,
                    .chunk = -1};
    p.terms_tp = calloc(graph->num_states + 1, sizeof *p.terms_tp);
    p.terms_dp = calloc(graph->num_states + 1, sizeof *p.terms_dp);
    p.terms_pp = calloc(graph->num_states + 1, sizeof *p.terms_pp);
    p.terms_copy = calloc(graph->num_states + 1, sizeof *p.terms_copy);
    p.terms_replicate = calloc(graph->num_states + 1, sizeof *p.terms_replicate);
    p.accumulated = calloc(num_params + 1, sizeof *p.accumulated);
    size_t num_ids = (1 + tri_placer_num_wholes(graph, layout)) * num_params;
    tri_id *ids = malloc((num_ids + 1) * sizeof *ids);
    p.grads_left = calloc(num_params + 1, sizeof *p.grads_left);
    p.complete = calloc(graph->num_states + 1, sizeof *p.complete);
    int *chunks = malloc((2 * num_params + 1) * sizeof *chunks);
    tr_status status = p.terms_tp && p.terms_dp && p.terms_pp && p.terms_copy &&
                               p.terms_replicate && p.accumulated && ids && p.grads_left &&
                               p.complete && chunks
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
    free(p.terms_tp);
    free(p.terms_dp);
    free(p.terms_pp);
    free(p.accumulated);
    free(p.terms_copy);
    free(p.terms_replicate);
    free(p.grads_left);
    free(p.complete);
    free(chunks);
    free(ids);
    free(p.values);
    return status;
}
