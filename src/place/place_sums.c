/* States: their pieces, and the sums that the backward leaves as terms on every rank.
 *
 * Gradients are summed over dp in the backward of the last micro-batch, some at a time, as soon as
 * their last contribution is there: so most of them travel while the rest is still computed. Those
 * that ZeRO divides go bucket by bucket, the others when enough bytes have come together. */
#include "place/placer.h"

static tr_status sum_with(tri_placer *p, tri_id state, tri_op op, const tri_attr *attr,
                          tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id before = graph->states[state].latest;
    tri_id node = tri_graph_emit(graph, op, graph->states[state].name, attr, &before, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    graph->nodes[node].last_only = graph->phase == TRI_PHASE_BACKWARD;
    tri_id after = graph->nodes[node].out[0];
    p->values[after].global = p->values[before].global;
    tri_placer_set_spot(p, after, p->values[before].spot);
    p->values[before].now = after;
    return TR_OK;
}

/* Adds up a state over an axis, in place: everywhere, or in each rank's slice of it. */
static tr_status sum_state(tri_placer *p, tri_id state, tri_axis axis, const tri_flat *slices,
                           tr_error *err)
{
    tri_attr attr = {.axis = (uint8_t)axis, .flat = slices ? *slices : (tri_flat){0}};
    bool scatters = slices && axis == TRI_AXIS_SHARD;
    return sum_with(p, state, scatters ? TRI_OP_SHARD_SUM : TRI_OP_ALL_REDUCE, &attr, err);
}

tr_status tri_placer_complete_state(tri_placer *p, tri_id state, tr_error *err)
{
    if (p->terms_tp[state] && tri_mesh_size(&p->layout->mesh, TRI_AXIS_TP) > 1)
        TRI_TRY(sum_state(p, state, TRI_AXIS_TP, NULL, err));
    if (p->terms_copy[state])
        TRI_TRY(sum_state(p, state, TRI_AXIS_KV_COPY, NULL, err));
    /* Squares of slices: copies of a slice count once. */
    tri_axis axis = p->zero->flats && state == p->norm ? TRI_AXIS_SHARD : TRI_AXIS_DP;
    if (p->terms_dp[state] && tri_mesh_size(&p->layout->mesh, axis) > 1)
        TRI_TRY(sum_state(p, state, axis, NULL, err));
    if (p->terms_pp[state])
        TRI_TRY(sum_state(p, state, TRI_AXIS_PP, NULL, err));
    p->terms_tp[state] = p->terms_copy[state] = p->terms_dp[state] = p->terms_pp[state] = false;
    return TR_OK;
}

/* Whether every tensor of a bucket has a gradient to be summed: a message is of whole buckets. */
static bool sums_whole_bucket(const tri_placer *p, tri_id param)
{
    const tri_graph *graph = p->graph;
    for (tri_id i = p->zero->bucket_first[param]; i != TRI_NONE; i = p->zero->bucket_next[i])
        if (graph->grad_state[i] == TRI_NONE || !p->terms_dp[graph->grad_state[i]])
            return false;
    return true;
}

/* Zero 1: the gradients of a bucket, in the order in which they lie in memory, so that they travel
 * in one message. The update reads only this rank's slice of the sum. */
static tr_status sum_bucket(tri_placer *p, tri_id bucket, tr_error *err)
{
    const tri_graph *graph = p->graph;
    bool in_slices = sums_whole_bucket(p, bucket);
    tri_axis first = in_slices ? TRI_AXIS_SHARD : TRI_AXIS_DP;
    tri_axis last = in_slices ? TRI_AXIS_REPLICATE : TRI_AXIS_DP;
    for (tri_axis axis = first; axis <= last; axis++)
        for (tri_id i = p->zero->bucket_first[bucket]; i != TRI_NONE; i = p->zero->bucket_next[i]) {
            tri_id state = graph->grad_state[i];
            if (state == TRI_NONE || !p->terms_dp[state] ||
                tri_zero_divides(graph, p->layout, p->zero, &graph->states[state]))
                continue;
            if (axis == last)
                p->terms_dp[state] = false;
            if (tri_mesh_size(&p->layout->mesh, axis) > 1)
                TRI_TRY(sum_state(p, state, axis, in_slices ? &p->zero->flats[i] : NULL, err));
        }
    return TR_OK;
}

/* The gradient of one parameter over the ranks of a pipeline that hold it. */
static tr_status sum_home(tri_placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id state = graph->grad_state[param];
    tri_attr attr = {.axis = TRI_AXIS_HOME};
    attr.num_homes =
        (uint32_t)tri_home_set_ranks(p->layout->stages, p->placed->homes.set[param], attr.homes);
    if (state == TRI_NONE || attr.num_homes < 2)
        return TR_OK;
    bool divided = tri_zero_divides(graph, p->layout, p->zero, &graph->states[state]);
    int64_t first;
    if (divided && tri_flat_slice(&p->zero->flats[param], p->zero->flats[param].part, &first) == 0)
        return TR_OK;
    if (p->zero->flats && !divided)
        attr.flat = p->zero->flats[param];
    return sum_with(p, state, TRI_OP_ALL_REDUCE, &attr, err);
}

/* Pipelines: the gradient of what several ranks hold is the sum of theirs. Of what ZeRO divides,
 * each has the same slices to add up; they travel by the bucket. */
static tr_status sum_homes(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    for (tri_id b = 0; b < graph->params->count && p->placed->homes.set; b++) {
        if (!p->zero->flats)
            TRI_TRY(sum_home(p, b, err));
        for (tri_id i = p->zero->flats && p->zero->bucket_first[b] == b ? b : TRI_NONE;
             i != TRI_NONE; i = p->zero->bucket_next[i])
            TRI_TRY(sum_home(p, i, err));
    }
    return TR_OK;
}

/* Whatever is still a term of the gradients that are complete (NULL: of all), over one axis, in
 * the order in which they lie in memory. */
static tr_status sum_gradients(tri_placer *p, const bool *which, tri_axis axis, tr_error *err)
{
    const tri_graph *graph = p->graph;
    bool *terms = axis == TRI_AXIS_TP        ? p->terms_tp
                  : axis == TRI_AXIS_KV_COPY ? p->terms_copy
                                             : p->terms_dp;
    size_t first = which ? p->complete_first : 0, end = which ? p->complete_end : graph->num_states;
    for (tri_dtype dtype = 0; dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = first; s < end; s++) {
            if (graph->states[s].kind != TRI_STATE_GRAD || graph->states[s].dtype != dtype ||
                !terms[s] || (which && !which[s]))
                continue;
            terms[s] = false;
            if (tri_mesh_size(&p->layout->mesh, axis) > 1)
                TRI_TRY(sum_state(p, (tri_id)s, axis, NULL, err));
        }
    return TR_OK;
}

/* The gradients that are complete on this rank. */
static tr_status sum_complete(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->graph->ends_chain = false;
    TRI_TRY(sum_gradients(p, p->complete, TRI_AXIS_TP, err));
    TRI_TRY(sum_gradients(p, p->complete, TRI_AXIS_KV_COPY, err));
    for (size_t s = p->complete_first; p->zero->flats && s < p->complete_end; s++)
        if (p->complete[s])
            TRI_TRY(sum_bucket(p, graph->states[s].param, err));
    if (!p->zero->flats)
        TRI_TRY(sum_gradients(p, p->complete, TRI_AXIS_DP, err));
    for (size_t s = p->complete_first; s < p->complete_end; s++)
        p->complete[s] = false;
    p->complete_first = p->complete_end = 0;
    p->complete_bytes = 0;
    return TR_OK;
}

/* Whether a gradient can be summed in the backward: a pipeline may run the chunks that contribute
 * in any order, and adds up what several of its ranks hold. */
static bool sums_early(const tri_placer *p, size_t param)
{
    const tri_graph *graph = p->graph;
    uint32_t homes[TRI_MAX_HOMES];
    if (!graph->chunk_of)
        return true;
    if (p->placed->homes.set &&
        tri_home_set_ranks(p->layout->stages, p->placed->homes.set[param], homes) > 1)
        return false;
    return p->first_chunk[param] > p->last_chunk[param] || /* nothing contributes to it */
           (p->first_chunk[param] == p->chunk && p->last_chunk[param] == p->chunk);
}

/* A bucket that ZeRO divides is one message, which needs all of it. */
static bool bucket_complete(const tri_placer *p, tri_id param)
{
    const tri_graph *graph = p->graph;
    for (tri_id i = p->zero->bucket_first[param]; i != TRI_NONE; i = p->zero->bucket_next[i])
        if (graph->grad_state[i] != TRI_NONE && (p->grads_left[i] > 0 || !sums_early(p, i)))
            return false;
    return true;
}

static void note_complete(tri_placer *p, tri_id state)
{
    bool none = p->complete_first == p->complete_end;
    p->complete[state] = true;
    p->complete_first = none || state < p->complete_first ? state : p->complete_first;
    p->complete_end = none || state >= p->complete_end ? state + 1 : p->complete_end;
}

tr_status tri_placer_note_gradient(tri_placer *p, tri_id state, tr_error *err)
{
    const tri_graph *graph = p->graph;
    tri_id param = graph->states[state].param;
    p->grads_left[param]--;
    if (p->grads_left[param] > 0 || tri_mesh_size(&p->layout->mesh, TRI_AXIS_DP) == 1)
        return TR_OK;
    if (p->zero->flats) {
        if (!bucket_complete(p, param))
            return TR_OK;
        for (tri_id i = p->zero->bucket_first[param]; i != TRI_NONE; i = p->zero->bucket_next[i])
            if (graph->grad_state[i] != TRI_NONE)
                note_complete(p, graph->grad_state[i]);
        return sum_complete(p, err);
    }
    if (!sums_early(p, param))
        return TR_OK;
    note_complete(p, state);
    /* Of the whole tensor: what tp leaves of it may differ, and the ranks must agree. */
    p->complete_bytes += (double)tri_shape_count(&graph->params->items[param].shape) *
                         (double)tri_dtype_bytes(graph->states[state].dtype);
    return p->complete_bytes >= p->layout->bucket_bytes ? sum_complete(p, err) : TR_OK;
}

tr_status tri_placer_end_backward(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_phase phase = graph->phase;
    const int layer = graph->layer;
    graph->phase = TRI_PHASE_BACKWARD;
    graph->layer = p->backward_layer;
    TRI_TRY(sum_complete(p, err));
    graph->phase = phase;
    graph->layer = layer;
    return TR_OK;
}

/* Zero 2 and 3 with copies between groups: accumulated slices, in the order in which they lie in
 * memory (program/memory.c), so that they travel together. */
static tr_status sum_slices(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    const tri_param *params = graph->params->items;
    size_t count = graph->params->count;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && params[end].layer == params[first].layer;)
            end++;
        for (int with_copy = 1; with_copy >= 0; with_copy--)
            for (size_t i = first; i < end; i++) {
                tri_id state = graph->grad_state[i];
                if (state == TRI_NONE || !p->terms_replicate[state] ||
                    tri_param_has_copy(&params[i], graph->precision.compute) != with_copy)
                    continue;
                p->terms_replicate[state] = false;
                if (tri_mesh_size(&p->layout->mesh, TRI_AXIS_REPLICATE) > 1)
                    TRI_TRY(sum_state(p, state, TRI_AXIS_REPLICATE, NULL, err));
            }
    }
    return TR_OK;
}

tr_status tri_placer_complete_gradients(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->sums_done = true;
    TRI_TRY(tri_placer_end_backward(p, err));
    TRI_TRY(sum_gradients(p, NULL, TRI_AXIS_TP, err));
    TRI_TRY(sum_gradients(p, NULL, TRI_AXIS_KV_COPY, err));
    for (tri_id i = 0; p->zero->flats && i < graph->params->count; i++)
        TRI_TRY(sum_bucket(p, i, err));
    if (p->zero->flats)
        TRI_TRY(sum_slices(p, err));
    if (!p->zero->flats)
        TRI_TRY(sum_gradients(p, NULL, TRI_AXIS_DP, err));
    return sum_homes(p, err);
}

/* States of a parameter lie as it does; caches of keys and values by heads. */
static tri_cut state_cut(const tri_placer *p, const tri_state *state)
{
    if (state->param != TRI_NONE)
        return tri_tp_cut(p->layout, &p->graph->params->items[state->param]);
    if (state->kind == TRI_STATE_CACHE && tri_mesh_size(&p->layout->mesh, TRI_AXIS_TP) > 1)
        return tri_tp_cut_dim(p->layout, &state->shape, 1);
    return (tri_cut){0};
}

tr_status tri_placer_states(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    for (size_t i = 0; i < graph->params->count; i++) {
        tri_cut cut = tri_tp_cut(p->layout, &graph->params->items[i]);
        p->any_cut |= cut.parts > 0;
        if (cut.parts > 0)
            p->placed->local_shape[i].dim[cut.dim].size = tri_cut_size(&cut, cut.part);
    }
    if (p->layout->zero > 0 && tri_mesh_size(&p->layout->mesh, TRI_AXIS_SHARD) > 1)
        TRI_TRY(tri_zero_divide(graph, p->layout, p->placed, err));
    for (size_t v = 0; v < graph->num_values; v++) {
        tri_id state = graph->values[v].state;
        if (state == TRI_NONE)
            continue;
        tri_cut cut = state_cut(p, &graph->states[state]);
        if (graph->states[state].param == TRI_NONE && cut.parts == 0)
            continue;
        tri_placer_set_spot(p, (tri_id)v,
                            cut.parts > 0 ? (tri_spot){TRI_SPOT_CUT, cut.dim}
                                          : (tri_spot){TRI_SPOT_WHOLE, 0});
        graph->states[state].shape = graph->values[v].shape;
    }
    return TR_OK;
}
