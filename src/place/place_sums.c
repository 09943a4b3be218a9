/* States: their pieces, and the sums that the backward leaves as terms on every rank.
 *
 * Gradients are summed over dp in the backward of the last micro-batch, some at a time, as soon as
 * their last contribution is there: so most of them travel while the rest is still computed. Those
 * that ZeRO divides go bucket by bucket, the others when enough bytes have come together. */
#include "place/placer.h"

#include <stdlib.h>
#include <string.h>

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
    for (size_t v = 0; v < p->num_values; v++)
        if (p->values[v].now == before)
            p->values[v].now = after;
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
    /* Squares of slices: copies of a slice count once. */
    tri_axis axis = p->graph->flats && state == p->norm ? TRI_AXIS_SHARD : TRI_AXIS_DP;
    if (p->terms_dp[state] && tri_mesh_size(&p->layout->mesh, axis) > 1)
        TRI_TRY(sum_state(p, state, axis, NULL, err));
    if (p->terms_pp[state])
        TRI_TRY(sum_state(p, state, TRI_AXIS_PP, NULL, err));
    p->terms_tp[state] = p->terms_dp[state] = p->terms_pp[state] = false;
    return TR_OK;
}

bool tri_placer_in_bucket(const tri_placer *p, tri_id param, size_t other)
{
    const tri_flat *a = &p->graph->flats[param], *b = &p->graph->flats[other];
    const tri_param *x = &p->graph->params->items[param], *y = &p->graph->params->items[other];
    tri_dtype compute = p->graph->precision.compute;
    return a->total == b->total && x->layer == y->layer &&
           (!p->graph->home_set || p->graph->home_set[param] == p->graph->home_set[other]) &&
           tri_param_has_copy(x, compute) == tri_param_has_copy(y, compute);
}

/* Whether every tensor of a bucket has a gradient to be summed: a message is of whole buckets. */
static bool sums_whole_bucket(const tri_placer *p, size_t param)
{
    const tri_graph *graph = p->graph;
    for (size_t i = 0; i < graph->params->count; i++)
        if (tri_placer_in_bucket(p, (tri_id)param, i) &&
            (graph->grad_state[i] == TRI_NONE || !p->terms_dp[graph->grad_state[i]]))
            return false;
    return true;
}

/* Zero 1: the gradients of a bucket, in the order in which they lie in memory, so that they travel
 * in one message. The update reads only this rank's slice of the sum. */
static tr_status sum_bucket(tri_placer *p, size_t bucket, tr_error *err)
{
    const tri_graph *graph = p->graph;
    bool in_slices = sums_whole_bucket(p, bucket);
    tri_axis first = in_slices ? TRI_AXIS_SHARD : TRI_AXIS_DP;
    tri_axis last = in_slices ? TRI_AXIS_REPLICATE : TRI_AXIS_DP;
    for (tri_axis axis = first; axis <= last; axis++)
        for (size_t i = 0; i < graph->params->count; i++) {
            tri_id state = graph->grad_state[i];
            if (state == TRI_NONE || !p->terms_dp[state] ||
                !tri_placer_in_bucket(p, (tri_id)bucket, i) ||
                tri_zero_divides(graph, p->layout, &graph->states[state]))
                continue;
            if (axis == last)
                p->terms_dp[state] = false;
            if (tri_mesh_size(&p->layout->mesh, axis) > 1)
                TRI_TRY(sum_state(p, state, axis, in_slices ? &graph->flats[i] : NULL, err));
        }
    return TR_OK;
}

/* The gradient of one parameter over the ranks of a pipeline that hold it. */
static tr_status sum_home(tri_placer *p, size_t param, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id state = graph->grad_state[param];
    tri_attr attr = {.axis = TRI_AXIS_HOME};
    attr.num_homes =
        (uint8_t)tri_home_set_ranks(p->layout->stages, graph->home_set[param], attr.homes);
    if (state == TRI_NONE || attr.num_homes < 2)
        return TR_OK;
    bool divided = tri_zero_divides(graph, p->layout, &graph->states[state]);
    int64_t first;
    if (divided && tri_flat_slice(&graph->flats[param], graph->flats[param].part, &first) == 0)
        return TR_OK;
    if (graph->flats && !divided)
        attr.flat = graph->flats[param];
    return sum_with(p, state, TRI_OP_ALL_REDUCE, &attr, err);
}

/* Pipelines: the gradient of what several ranks hold is the sum of theirs. Of what ZeRO divides,
 * each has the same slices to add up; they travel by the bucket. */
static tr_status sum_homes(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    size_t count = graph->params->count;
    bool *done = calloc(count + 1, sizeof *done);
    if (!done)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
    tr_status status = TR_OK;
    for (size_t b = 0; b < count && graph->home_set; b++)
        for (size_t i = b; i < count && status == TR_OK; i++) {
            if (done[i] || (graph->flats ? !tri_placer_in_bucket(p, (tri_id)b, i) : i != b))
                continue;
            done[i] = true;
            status = sum_home(p, i, err);
        }
    free(done);
    return status;
}

/* Whatever is still a term of the gradients that `which` names (NULL: of all), over one axis, in
 * the order in which they lie in memory. */
static tr_status sum_gradients(tri_placer *p, const bool *which, tri_axis axis, tr_error *err)
{
    const tri_graph *graph = p->graph;
    bool *terms = axis == TRI_AXIS_TP ? p->terms_tp : p->terms_dp;
    for (tri_dtype dtype = 0; dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = 0; s < graph->num_states; s++) {
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
    for (size_t i = 0; graph->flats && i < graph->params->count; i++) {
        tri_id state = graph->grad_state[i];
        if (state != TRI_NONE && p->complete[state])
            TRI_TRY(sum_bucket(p, i, err));
    }
    if (!graph->flats)
        TRI_TRY(sum_gradients(p, p->complete, TRI_AXIS_DP, err));
    memset(p->complete, 0, graph->num_states * sizeof *p->complete);
    p->complete_bytes = 0;
    return TR_OK;
}

/* Whether a gradient can be summed in the backward: a pipeline may run the chunks that contribute
 * in any order, and adds up what several of its ranks hold. */
static bool sums_early(const tri_placer *p, size_t param)
{
    const tri_graph *graph = p->graph;
    uint16_t homes[TRI_MAX_HOMES];
    if (!graph->chunk_of)
        return true;
    if (graph->home_set && tri_home_set_ranks(p->layout->stages, graph->home_set[param], homes) > 1)
        return false;
    for (size_t n = 0; n < p->num_old; n++) {
        const tri_node *node = &p->old[n];
        tri_id state = node->num_out ? graph->values[node->out[0]].state : TRI_NONE;
        if (node->op == TRI_OP_ACCUMULATE && node->phase == TRI_PHASE_BACKWARD &&
            state == graph->grad_state[param] && tri_node_chunk(graph, node) != p->chunk)
            return false;
    }
    return true;
}

/* A bucket that ZeRO divides is one message, which needs all of it. */
static bool bucket_complete(const tri_placer *p, tri_id param)
{
    for (size_t i = 0; i < p->graph->params->count; i++)
        if (tri_placer_in_bucket(p, param, i) && p->graph->grad_state[i] != TRI_NONE &&
            (p->grads_left[i] > 0 || !sums_early(p, i)))
            return false;
    return true;
}

tr_status tri_placer_note_gradient(tri_placer *p, tri_id state, tr_error *err)
{
    const tri_graph *graph = p->graph;
    tri_id param = graph->states[state].param;
    p->grads_left[param]--;
    if (p->grads_left[param] > 0 || tri_mesh_size(&p->layout->mesh, TRI_AXIS_DP) == 1)
        return TR_OK;
    if (graph->flats) {
        if (!bucket_complete(p, param))
            return TR_OK;
        for (size_t i = 0; i < graph->params->count; i++)
            if (tri_placer_in_bucket(p, param, i) && graph->grad_state[i] != TRI_NONE)
                p->complete[graph->grad_state[i]] = true;
        return sum_complete(p, err);
    }
    if (!sums_early(p, param))
        return TR_OK;
    p->complete[state] = true;
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

tr_status tri_placer_complete_gradients(tri_placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->sums_done = true;
    TRI_TRY(tri_placer_end_backward(p, err));
    TRI_TRY(sum_gradients(p, NULL, TRI_AXIS_TP, err));
    for (size_t i = 0; graph->flats && i < graph->params->count; i++)
        TRI_TRY(sum_bucket(p, i, err));
    if (!graph->flats)
        TRI_TRY(sum_gradients(p, NULL, TRI_AXIS_DP, err));
    return sum_homes(p, err);
}

tr_status tri_placer_states(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    for (size_t i = 0; i < graph->params->count; i++) {
        tri_cut cut = tri_tp_cut(p->layout, &graph->params->items[i]);
        p->any_cut |= cut.parts > 0;
        if (cut.parts > 0)
            graph->local_shape[i].dim[cut.dim].size = tri_cut_size(&cut, cut.part);
    }
    if (p->layout->zero > 0 && tri_mesh_size(&p->layout->mesh, TRI_AXIS_SHARD) > 1)
        TRI_TRY(tri_zero_divide(graph, p->layout, err));
    for (size_t v = 0; v < graph->num_values; v++) {
        tri_id state = graph->values[v].state;
        if (state == TRI_NONE || graph->states[state].param == TRI_NONE)
            continue;
        tri_cut cut = tri_tp_cut(p->layout, &graph->params->items[graph->states[state].param]);
        tri_placer_set_spot(p, (tri_id)v,
                            cut.parts > 0 ? (tri_spot){TRI_SPOT_CUT, cut.dim}
                                          : (tri_spot){TRI_SPOT_WHOLE, 0});
        graph->states[state].shape = graph->values[v].shape;
    }
    return TR_OK;
}
