/* States: their pieces, and the sums that the backward leaves as terms on every rank.
 *
 * Gradients are summed over dp and cp in the backward of the last micro-batch, some at a time, as
 * soon as their last contribution is there: so most of them travel while the rest is still
 * computed. Those that ZeRO divides go bucket by bucket, the others when enough bytes have come
 * together. */
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
    tri_placer_put(p, after, &p->values[before].at);
    graph->values[after].at.partial = graph->values[before].at.partial &
                                      (tri_factor_set)~graph->grid.axis[attr->message.axis].factors;
    p->values[before].now = after;
    return TR_OK;
}

/* Adds up a state over an axis, in place: everywhere, or in each rank's slice of it. */
static tr_status sum_state(tri_placer *p, tri_id state, int axis, const tri_flat *slices,
                           tr_error *err)
{
    tri_attr attr = {
        .message = {.how = (uint8_t)tri_graph_join_of(p->graph, state), .axis = (uint8_t)axis},
        .flat = slices ? *slices : (tri_flat){0}};
    bool scatters = slices && (axis == TRI_AXIS_SHARD || axis == TRI_AXIS_EP_SHARD);
    return sum_with(p, state, scatters ? TRI_OP_SHARD_SUM : TRI_OP_ALL_REDUCE, &attr, err);
}

tr_status tri_placer_complete_state(tri_placer *p, tri_id state, tr_error *err)
{
    static const tri_axis families[] = {TRI_AXIS_TP, TRI_AXIS_DP, TRI_AXIS_PP};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        tri_axis family = families[i];
        tri_factor_set own =
            family == TRI_AXIS_DP ? tri_placer_data(p) : tri_placer_axis(p, family);
        tri_factor_set set = p->partial[state] & own;
        if (!set)
            continue;
        int axis = tri_grid_axis_of(&p->graph->grid, set);
        if (p->zero->flats && state == p->norm && set == tri_placer_axis(p, TRI_AXIS_SHARD))
            axis = TRI_AXIS_SHARD; /* squares of slices */
        if (axis < 0)
            return tri_fail(err, TR_ERROR_INTERNAL, "the ranks form too many groups");
        TRI_TRY(sum_state(p, state, axis, NULL, err));
    }
    p->partial[state] = 0;
    return TR_OK;
}

static bool partial_over(const tri_placer *p, tri_id state, tri_factor_set set)
{
    return p->partial[state] & set;
}

/* Whether every tensor of a bucket has a gradient to be summed: a message is of whole buckets. */
static bool sums_whole_bucket(const tri_placer *p, tri_id param)
{
    const tri_graph *graph = p->graph;
    for (tri_id i = p->zero->bucket_first[param]; i != TRI_NONE; i = p->zero->bucket_next[i])
        if (graph->grad_state[i] == TRI_NONE ||
            !partial_over(p, graph->grad_state[i], tri_placer_terms(p, i)))
            return false;
    return true;
}

/* Zero 1: the gradients of a bucket, in the order in which they lie in memory, so that they travel
 * in one message. The update reads only this rank's slice of the sum. */
static tr_status sum_bucket(tri_placer *p, tri_id bucket, tr_error *err)
{
    const tri_graph *graph = p->graph;
    const tri_factor_set data = tri_placer_terms(p, bucket);
    bool in_slices = sums_whole_bucket(p, bucket);
    int first = in_slices ? (int)tri_placer_shard(p, bucket)
                : data    ? tri_grid_axis_of(&p->graph->grid, data)
                          : -1;
    int last = in_slices ? (int)tri_placer_replicate(p, bucket) : first;
    for (int axis = first; axis <= last && axis >= 0; axis++)
        for (tri_id i = p->zero->bucket_first[bucket]; i != TRI_NONE; i = p->zero->bucket_next[i]) {
            tri_id state = graph->grad_state[i];
            if (state == TRI_NONE || !partial_over(p, state, data) ||
                tri_zero_divides(graph, p->layout, p->zero, &graph->states[state]))
                continue;
            if (axis == last)
                p->partial[state] &= (tri_factor_set)~data;
            if (graph->grid.axis[axis].factors)
                TRI_TRY(sum_state(p, state, axis, in_slices ? &p->zero->flats[i] : NULL, err));
        }
    return TR_OK;
}

/* A gradient that all ranks of cp have, since it is of a value that has no tokens (the head of a
 * classifier), counts once: those but the first add nothing. So every gradient is a sum of terms
 * over all that share out the batch, and travels with its bucket. */
tr_status tri_placer_share_gradient(tri_placer *p, tri_node *node, tri_placement *at, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_factor_set same =
        tri_placer_axis(p, TRI_AXIS_CP) & (tri_factor_set) ~(at->partial | tri_placement_cut(at));
    if (!same)
        return TR_OK;
    tri_id both[] = {node->in[0], node->in[0]};
    tri_attr attr = {.axpby = {.alpha = tri_grid_place(&graph->grid, same) == 0}};
    const char *name = tri_arena_printf(&graph->arena, "%s.once", graph->values[both[0]].name);
    tri_shape global = p->values[both[0]].global;
    tri_id share = tri_graph_emit(graph, TRI_OP_AXPBY, name, &attr, both, 2, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    at->partial |= same;
    node->in[0] = graph->nodes[share].out[0];
    p->values[node->in[0]].global = global;
    tri_placer_put(p, node->in[0], at);
    return TR_OK;
}

/* The gradient of one parameter over the ranks of a pipeline that hold it. */
static tr_status sum_home(tri_placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id state = graph->grad_state[param];
    tri_attr attr = {.message = {.axis = TRI_AXIS_HOME}};
    attr.message.homes.num = (uint32_t)tri_home_set_ranks(
        p->layout->stages, p->placed->homes.set[param], attr.message.homes.place);
    if (state == TRI_NONE || attr.message.homes.num < 2)
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

/* Whatever is still a term of the gradients that are complete (NULL: of all), over just this set of
 * factors of the family's, in the order in which they lie in memory. */
static tr_status sum_gradients(tri_placer *p, const bool *which, tri_factor_set set,
                               tri_factor_set family, tr_error *err)
{
    const tri_graph *graph = p->graph;
    int axis = set ? tri_grid_axis_of(&p->graph->grid, set) : -1;
    size_t first = which ? p->complete_first : 0, end = which ? p->complete_end : graph->num_states;
    for (tri_dtype dtype = 0; dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = first; s < end; s++) {
            if (graph->states[s].kind != TRI_STATE_GRAD || graph->states[s].dtype != dtype ||
                axis < 0 || (p->partial[s] & family) != set || (which && !which[s]))
                continue;
            p->partial[s] &= (tri_factor_set)~set;
            TRI_TRY(sum_state(p, (tri_id)s, axis, NULL, err));
        }
    return TR_OK;
}

/* Over tp, or over the copies of a key head alone; and over all that share out the batch. */
static tr_status sum_over_tp(tri_placer *p, const bool *which, tr_error *err)
{
    tri_factor_set tp = tri_placer_axis(p, TRI_AXIS_TP);
    TRI_TRY(sum_gradients(p, which, tp, tp, err));
    return sum_gradients(p, which, tri_placer_axis(p, TRI_AXIS_KV_COPY), tp, err);
}

static tr_status sum_over_data(tri_placer *p, const bool *which, tr_error *err)
{
    const tri_factor_set data = tri_placer_data(p), ep = tri_placer_axis(p, TRI_AXIS_EP);
    TRI_TRY(sum_gradients(p, which, data, data, err));
    if (ep) /* those of experts */
        TRI_TRY(sum_gradients(p, which, data & (tri_factor_set)~ep, data, err));
    return TR_OK;
}

/* The gradients that are complete on this rank. */
static tr_status sum_complete(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->graph->ends_chain = false;
    TRI_TRY(sum_over_tp(p, p->complete, err));
    for (size_t s = p->complete_first; p->zero->flats && s < p->complete_end; s++)
        if (p->complete[s])
            TRI_TRY(sum_bucket(p, graph->states[s].param, err));
    if (!p->zero->flats)
        TRI_TRY(sum_over_data(p, p->complete, err));
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
    if (p->grads_left[param] > 0 || !tri_placer_data(p))
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
                const tri_axis copies = tri_placer_replicate(p, (tri_id)i);
                if (state == TRI_NONE || !partial_over(p, state, tri_placer_axis(p, copies)) ||
                    tri_param_has_copy(&params[i], graph->precision.compute) != with_copy)
                    continue;
                p->partial[state] &= (tri_factor_set)~tri_placer_axis(p, copies);
                TRI_TRY(sum_state(p, state, copies, NULL, err));
            }
    }
    return TR_OK;
}

tr_status tri_placer_complete_gradients(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->sums_done = true;
    TRI_TRY(tri_placer_end_backward(p, err));
    TRI_TRY(sum_over_tp(p, NULL, err));
    for (tri_id i = 0; p->zero->flats && i < graph->params->count; i++)
        TRI_TRY(sum_bucket(p, i, err));
    if (p->zero->flats)
        TRI_TRY(sum_slices(p, err));
    if (!p->zero->flats)
        TRI_TRY(sum_over_data(p, NULL, err));
    return sum_homes(p, err);
}

tr_status tri_placer_states(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_grid *grid = &p->layout->grid;
    const tri_factor_set all = (tri_factor_set)~0;
    for (size_t i = 0; i < graph->params->count; i++) {
        const tri_shape *shape = &graph->params->items[i].shape;
        /* A norm needs whole rows, whatever its dims: all of its gain goes with them. */
        bool gain = graph->params->items[i].role == TRI_ROLE_NORM;
        p->params[i] = tri_policy_place(p->layout, TRI_POLICY_PARAM, shape, gain ? 0 : all);
        p->cut |= tri_placement_cut(&p->params[i]);
        p->placed->local_shape[i] = tri_placement_shape(grid, &p->params[i], shape);
    }
    if (p->layout->zero > 0 && tri_mesh_size(&p->layout->mesh, TRI_AXIS_SHARD) > 1)
        TRI_TRY(tri_zero_divide(graph, p->layout, p->placed, err));
    for (size_t v = 0; v < graph->num_values; v++) {
        const tri_value *value = &graph->values[v];
        tri_state *state = value->state == TRI_NONE ? NULL : &graph->states[value->state];
        tri_placement at = {0};
        if (state && state->param != TRI_NONE)
            at = p->params[state->param];
        else if (state && state->kind == TRI_STATE_CACHE)
            at = tri_policy_place(p->layout, TRI_POLICY_CACHE, &value->shape, all);
        else if (value->kind == TRI_VALUE_INPUT)
            at = tri_policy_place(p->layout, TRI_POLICY_INPUT, &value->shape, all);
        else
            continue;
        tri_placer_put(p, (tri_id)v, &at);
        if (state)
            state->shape = value->shape;
    }
    return TR_OK;
}
