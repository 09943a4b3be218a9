/* The sweep.
 *
 * The nodes are taken out of the graph and put back one after the other. Before a node, the values
 * it reads are brought to where its rule wants them; after it, its outputs get the shapes of this
 * rank's pieces. Invariants, for a value that a node made:
 *   1. `spot` says how it lies over tp;
 *   2. `now` of a version of a state is the version that holds its completed sum, once there is
 * one;
 *   3. `whole` and `piece` are the values it was converted to, or TRI_NONE. */
#include "place/place.h"

#include <stdlib.h>
#include <string.h>

typedef struct spot_of_value {
    tri_spot spot;
    tri_shape global; /* its shape in the whole model */
    bool sums_rows;   /* rows were summed over: it is a term of a sum over dp */
    bool absent;      /* update: another rank has it, this one nothing of it */
    tri_id now, whole, piece;
} spot_of_value;

typedef struct placer {
    tri_graph *graph;
    const tri_layout *layout;
    spot_of_value *values;
    size_t num_values, capacity;
    bool *terms_tp, *terms_dp; /* of each state: its newest version is a term */
    bool any_cut;              /* some parameter is */
    bool sums_done;            /* the gradients' */
    tri_id norm;               /* the state that squares are added to, TRI_NONE before the first */
    bool any_squares;          /* this rank has added some */
    /* ZeRO; of each parameter: */
    tri_id *gathered[2];  /* zero 3: the whole of it, in the forward and in the backward */
    tri_id *grad;         /* zero 2, 3: its gradient in this backward, not divided yet */
    uint32_t *grads_left; /* contributions to it that are still to come */
} placer;

static tr_status complain(const placer *p, const tri_node *node, const char *what, tr_error *err)
{
    const char *name =
        node->num_out ? p->graph->values[node->out[0]].name : tri_op_get(node->op)->name;
    return tri_fail(err, TR_ERROR_INTERNAL, "placement of %s (%s): %s", name,
                    tri_op_get(node->op)->name, what);
}

/* Notes values that were made since the last call: whole until something else is said. */
static tr_status note_values(placer *p, tr_error *err)
{
    if (p->graph->num_values > p->capacity) {
        size_t capacity = 2 * p->graph->num_values + 64;
        spot_of_value *values = realloc(p->values, capacity * sizeof *values);
        if (!values)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
        p->values = values;
        p->capacity = capacity;
    }
    for (; p->num_values < p->graph->num_values; p->num_values++)
        p->values[p->num_values] = (spot_of_value){.global = p->graph->values[p->num_values].shape,
                                                   .now = (tri_id)p->num_values,
                                                   .whole = TRI_NONE,
                                                   .piece = TRI_NONE};
    return tri_graph_status(p->graph, err);
}

/* The value's own shape, for where it lies. */
static void set_spot(placer *p, tri_id id, tri_spot spot)
{
    spot_of_value *v = &p->values[id];
    tri_value *value = &p->graph->values[id];
    v->spot = spot;
    value->shape = v->global;
    value->cut = (tri_cut){0};
    if (spot.kind == TRI_SPOT_CUT) {
        value->cut = tri_tp_cut_dim(p->layout, &v->global, spot.dim);
        value->shape.dim[spot.dim].size = tri_cut_size(&value->cut, value->cut.part);
    }
    if (value->state == TRI_NONE ||
        !tri_zero_divides(p->graph, p->layout, &p->graph->states[value->state]))
        return;
    const tri_flat *flat = &p->graph->flats[p->graph->states[value->state].param];
    int64_t first, count = tri_flat_slice(flat, flat->part, &first);
    value->flat = *flat;
    if (!flat->whole || count == 0)
        value->shape = tri_shape_scalar(count);
}

/* Emits a node over tp that reads one value; what it makes has the same logical shape. */
static tr_status emit(placer *p, tri_op op, const char *suffix, tri_id in, tri_cut cut,
                      tri_spot spot, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_attr attr = {.axis = TRI_AXIS_TP, .cut = cut};
    tri_shape global = p->values[in].global;
    const char *name = tri_arena_printf(&graph->arena, "%s.%s", graph->values[in].name, suffix);
    tri_id node = tri_graph_emit(graph, op, name, &attr, &in, 1, 1);
    TRI_TRY(note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = global;
    set_spot(p, *out, spot);
    return TR_OK;
}

static bool first_dim(const tri_shape *shape, int dim)
{
    return tri_shape_span(shape, 0, dim) == 1;
}

static tr_status gather(placer *p, tri_id in, tri_id *out, tr_error *err)
{
    tri_cut cut = p->graph->values[in].cut;
    const tri_spot whole = {TRI_SPOT_WHOLE, 0};
    bool dense = first_dim(&p->values[in].global, cut.dim);
    TRI_TRY(emit(p, TRI_OP_ALL_GATHER, dense ? "all" : "blocks", in, cut, whole, out, err));
    return dense ? TR_OK : emit(p, TRI_OP_UNBLOCK, "all", *out, cut, whole, out, err);
}

static tr_status scatter(placer *p, tri_id in, int dim, tri_id *out, tr_error *err)
{
    const tri_shape *global = &p->values[in].global;
    tri_cut cut = tri_tp_cut_dim(p->layout, global, dim);
    const tri_spot terms = {TRI_SPOT_TERMS, 0}, piece = {TRI_SPOT_CUT, dim};
    if (!first_dim(global, dim))
        TRI_TRY(emit(p, TRI_OP_BLOCK, "blocks", in, cut, terms, &in, err));
    return emit(p, TRI_OP_REDUCE_SCATTER, "sum", in, cut, piece, out, err);
}

/* Statistics of parts of a vocabulary: collected from all ranks, then combined. */
static tr_status combine(placer *p, tri_id in, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    int parts = tri_mesh_size(&p->layout->mesh, TRI_AXIS_TP);
    tri_attr attr = {.axis = TRI_AXIS_TP, .cut = {.parts = (uint16_t)parts, .unit = 1}};
    const char *name = tri_arena_printf(&graph->arena, "%s.parts", graph->values[in].name);
    tri_id node = tri_graph_emit(graph, TRI_OP_ALL_GATHER, name, &attr, &in, 1, 1);
    TRI_TRY(note_values(p, err));
    tri_id all = graph->nodes[node].out[0];
    name = tri_arena_printf(&graph->arena, "%s.all", graph->values[in].name);
    node = tri_graph_emit(graph, TRI_OP_CE_COMBINE, name, NULL, &all, 1, 1);
    TRI_TRY(note_values(p, err));
    *out = graph->nodes[node].out[0];
    return TR_OK;
}

static int dim_named(const tri_shape *shape, tri_dim_name name)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d].name == name)
            return d;
    return -1;
}

/* The completed sum of a temporary, in the place where the residual stream lies. */
static tr_status complete(placer *p, tri_id id, tri_id *out, tr_error *err)
{
    if (p->values[id].now != id) {
        *out = p->values[id].now;
        return TR_OK;
    }
    int position = p->layout->sp ? dim_named(&p->values[id].global, TRI_DIM_T) : -1;
    tri_id producer = p->graph->values[id].producer;
    if (producer != TRI_NONE && p->graph->nodes[producer].op == TRI_OP_CE_STATS)
        TRI_TRY(combine(p, id, out, err));
    else if (position >= 0)
        TRI_TRY(scatter(p, id, position, out, err));
    else
        TRI_TRY(emit(p, TRI_OP_ALL_REDUCE, "sum", id, (tri_cut){0}, (tri_spot){TRI_SPOT_WHOLE, 0},
                     out, err));
    p->values[id].now = *out;
    return TR_OK;
}

static bool same_spot(const tri_spot *a, const tri_spot *b)
{
    return a->kind == b->kind && (a->kind != TRI_SPOT_CUT || a->dim == b->dim);
}

static tr_status convert(placer *p, tri_id id, tri_spot want, tri_id *out, tr_error *err)
{
    *out = id;
    if (same_spot(&p->values[id].spot, &want))
        return TR_OK;
    if (p->values[id].spot.kind == TRI_SPOT_CUT) {
        if (p->values[id].whole == TRI_NONE) {
            TRI_TRY(gather(p, id, out, err));
            p->values[id].whole = *out;
        }
        return convert(p, p->values[id].whole, want, out, err);
    }
    tri_id piece = p->values[id].piece;
    if (piece == TRI_NONE || p->values[piece].spot.dim != want.dim) {
        tri_cut cut = tri_tp_cut_dim(p->layout, &p->values[id].global, want.dim);
        TRI_TRY(emit(p, TRI_OP_SLICE, "part", id, cut, want, &piece, err));
        p->values[id].piece = piece;
    }
    *out = piece;
    return TR_OK;
}

/* ---- states ---- */

/* Adds up a state over an axis, in place: everywhere, or in each rank's slice of it. */
static tr_status sum_state(placer *p, tri_id state, tri_axis axis, const tri_flat *slices,
                           tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id before = graph->states[state].latest;
    tri_attr attr = {.axis = (uint8_t)axis, .flat = slices ? *slices : (tri_flat){0}};
    bool scatters = slices && axis == TRI_AXIS_SHARD;
    tri_id node = tri_graph_emit(graph, scatters ? TRI_OP_SHARD_SUM : TRI_OP_ALL_REDUCE,
                                 graph->states[state].name, &attr, &before, 1, 1);
    TRI_TRY(note_values(p, err));
    tri_id after = graph->nodes[node].out[0];
    p->values[after].global = p->values[before].global;
    set_spot(p, after, p->values[before].spot);
    for (size_t v = 0; v < p->num_values; v++)
        if (p->values[v].now == before)
            p->values[v].now = after;
    return TR_OK;
}

static tr_status complete_state(placer *p, tri_id state, tr_error *err)
{
    if (p->terms_tp[state] && tri_mesh_size(&p->layout->mesh, TRI_AXIS_TP) > 1)
        TRI_TRY(sum_state(p, state, TRI_AXIS_TP, NULL, err));
    /* Squares of slices: copies of a slice count once. */
    tri_axis axis = p->graph->flats && state == p->norm ? TRI_AXIS_SHARD : TRI_AXIS_DP;
    if (p->terms_dp[state] && tri_mesh_size(&p->layout->mesh, axis) > 1)
        TRI_TRY(sum_state(p, state, axis, NULL, err));
    p->terms_tp[state] = p->terms_dp[state] = false;
    return TR_OK;
}

static bool in_bucket(const placer *p, tri_id param, size_t other)
{
    const tri_flat *a = &p->graph->flats[param], *b = &p->graph->flats[other];
    const tri_param *x = &p->graph->params->items[param], *y = &p->graph->params->items[other];
    tri_dtype compute = p->graph->precision.compute;
    return a->total == b->total && x->layer == y->layer &&
           tri_param_has_copy(x, compute) == tri_param_has_copy(y, compute);
}

/* Whether every tensor of a bucket has a gradient to be summed: a message is of whole buckets. */
static bool sums_whole_bucket(const placer *p, size_t param)
{
    const tri_graph *graph = p->graph;
    for (size_t i = 0; i < graph->params->count; i++)
        if (in_bucket(p, (tri_id)param, i) &&
            (graph->grad_state[i] == TRI_NONE || !p->terms_dp[graph->grad_state[i]]))
            return false;
    return true;
}

/* Zero 1: all gradients, in the order in which they lie in memory, so that those of a bucket travel
 * in one message. The update reads only this rank's slice of the sum. */
static tr_status sum_buckets(placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    for (size_t b = 0; b < graph->params->count; b++) {
        bool in_slices = sums_whole_bucket(p, b);
        tri_axis first = in_slices ? TRI_AXIS_SHARD : TRI_AXIS_DP;
        tri_axis last = in_slices ? TRI_AXIS_REPLICATE : TRI_AXIS_DP;
        for (tri_axis axis = first; axis <= last; axis++)
            for (size_t i = b; i < graph->params->count; i++) {
                tri_id state = graph->grad_state[i];
                if (state == TRI_NONE || !p->terms_dp[state] || !in_bucket(p, (tri_id)b, i) ||
                    tri_zero_divides(graph, p->layout, &graph->states[state]))
                    continue;
                if (axis == last)
                    p->terms_dp[state] = false;
                if (tri_mesh_size(&p->layout->mesh, axis) > 1)
                    TRI_TRY(sum_state(p, state, axis, in_slices ? &graph->flats[i] : NULL, err));
            }
    }
    return TR_OK;
}

static tr_status complete_gradients(placer *p, tr_error *err)
{
    const tri_graph *graph = p->graph;
    p->sums_done = true;
    for (tri_axis axis = TRI_AXIS_TP; axis <= TRI_AXIS_DP; axis++) {
        bool *terms = axis == TRI_AXIS_TP ? p->terms_tp : axis == TRI_AXIS_DP ? p->terms_dp : NULL;
        for (tri_dtype dtype = 0; terms && dtype < TRI_NUM_DTYPES; dtype++)
            for (size_t s = 0; s < graph->num_states; s++) {
                if (graph->states[s].kind != TRI_STATE_GRAD || graph->states[s].dtype != dtype ||
                    !terms[s])
                    continue;
                if (axis == TRI_AXIS_DP && graph->flats)
                    continue; /* in buckets, below */
                terms[s] = false;
                if (tri_mesh_size(&p->layout->mesh, axis) > 1)
                    TRI_TRY(sum_state(p, (tri_id)s, axis, NULL, err));
            }
    }
    return graph->flats ? sum_buckets(p, err) : TR_OK;
}

static tr_status place_states(placer *p, tr_error *err)
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
        set_spot(p, (tri_id)v,
                 cut.parts > 0 ? (tri_spot){TRI_SPOT_CUT, cut.dim} : (tri_spot){TRI_SPOT_WHOLE, 0});
        graph->states[state].shape = graph->values[v].shape;
    }
    return TR_OK;
}

/* ---- ZeRO ---- */

/* A temporary in its place in a bucket of its own kind. */
static void put_in_bucket(placer *p, tri_id id, uint32_t bucket, tri_id param)
{
    p->graph->values[id].bucket = bucket;
    p->graph->values[id].place = p->graph->flats[param];
}

static tri_id first_version(const placer *p, tri_id version)
{
    while (p->graph->values[version].producer != TRI_NONE)
        version = p->values[version].piece;
    return version;
}

/* Zero 3: the whole of a divided parameter for this phase, with all of its bucket. */
static tr_status gather_bucket(placer *p, tri_id param, tri_id *whole_of, tr_error *err)
{
    tri_graph *graph = p->graph;
    uint32_t bucket = ++graph->num_buckets;
    for (size_t i = 0; i < graph->params->count; i++) {
        tri_id state =
            graph->copy_state[i] != TRI_NONE ? graph->copy_state[i] : graph->param_state[i];
        if (!in_bucket(p, param, i) || state == TRI_NONE)
            continue;
        /* The newest version is the one after the update: phases before read the first. */
        tri_id slice = first_version(p, graph->states[state].latest);
        tri_attr attr = {.axis = TRI_AXIS_SHARD,
                         .flat = graph->flats[i],
                         .shape = graph->local_shape[i],
                         .dtype = graph->states[state].dtype};
        tri_spot spot = p->values[slice].spot;
        tri_shape global = p->values[slice].global;
        bool empty = tri_shape_count(&graph->states[state].shape) == 0;
        tri_id in = empty ? TRI_NONE : slice;
        tri_id node =
            tri_graph_emit(graph, TRI_OP_UNSHARD, graph->params->items[i].name, &attr, &in, 1, 1);
        TRI_TRY(note_values(p, err));
        whole_of[i] = graph->nodes[node].out[0];
        p->values[whole_of[i]].global = global;
        set_spot(p, whole_of[i], spot);
        put_in_bucket(p, whole_of[i], bucket, (tri_id)i);
    }
    return TR_OK;
}

/* The parameter that a value is a version of, in the kinds that operators of the model read. */
static tri_id divided_weight(const placer *p, tri_id id)
{
    tri_id state = p->graph->values[id].state;
    if (state == TRI_NONE || p->layout->zero < 3 || !p->graph->flats)
        return TRI_NONE;
    tri_state_kind kind = p->graph->states[state].kind;
    return kind == TRI_STATE_PARAM || kind == TRI_STATE_COPY ? p->graph->states[state].param
                                                             : TRI_NONE;
}

static tr_status gather_weights(placer *p, tri_node *node, tr_error *err)
{
    tri_id *whole_of = p->gathered[node->phase == TRI_PHASE_BACKWARD];
    for (int j = 0; j < node->num_in && node->phase != TRI_PHASE_UPDATE; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        tri_id param = divided_weight(p, node->in[j]);
        if (param == TRI_NONE)
            continue;
        if (whole_of[param] == TRI_NONE)
            TRI_TRY(gather_bucket(p, param, whole_of, err));
        node->in[j] = whole_of[param];
    }
    return TR_OK;
}

/* This rank's slice of a gradient, into its accumulator. */
static tr_status accumulate_slice(placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_flat *flat = &graph->flats[param];
    tri_id state = graph->grad_state[param], old = graph->states[state].latest;
    int64_t first;
    graph->states[state].latest = first_version(p, old);
    if (tri_flat_slice(flat, flat->part, &first) == 0)
        return TR_OK;
    tri_attr attr = {.flat = flat->whole ? (tri_flat){0} : *flat};
    tri_id node = tri_graph_emit(graph, TRI_OP_ACCUMULATE, graph->states[state].name, &attr,
                                 &p->grad[param], 1, 1);
    TRI_TRY(note_values(p, err));
    tri_id out = graph->nodes[node].out[0];
    tri_graph_write_state(graph, node, 0, state, TRI_WRITE_START);
    p->values[out].global = p->values[old].global;
    set_spot(p, out, p->values[old].spot);
    for (size_t v = 0; v < p->num_values; v++)
        if (p->values[v].now == old)
            p->values[v].now = out;
    return TR_OK;
}

/* A gradient in its bucket: summed into slices, then the slices over the copies. */
static tr_status sum_in_bucket(placer *p, tri_id param, tri_axis axis, uint32_t bucket,
                               tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_attr attr = {.axis = (uint8_t)axis, .flat = graph->flats[param]};
    tri_id before = p->grad[param];
    tri_id node =
        tri_graph_emit(graph, axis == TRI_AXIS_SHARD ? TRI_OP_SHARD_SUM : TRI_OP_ALL_REDUCE,
                       graph->values[before].name, &attr, &before, 1, 1);
    TRI_TRY(note_values(p, err));
    tri_id after = p->grad[param] = graph->nodes[node].out[0];
    p->values[after].global = p->values[before].global;
    set_spot(p, after, p->values[before].spot);
    put_in_bucket(p, after, bucket, param);
    return TR_OK;
}

/* Zero 2 and 3: when the last gradient of a bucket is there, it is summed over dp, and each rank
 * adds its slice to the accumulators. */
static tr_status divide_gradients(placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    for (size_t i = 0; i < graph->params->count; i++)
        if (in_bucket(p, param, i) && p->grads_left[i] > 0)
            return TR_OK;
    graph->ends_chain = false; /* sums of gradients wait for all of their bucket */
    uint32_t bucket = ++graph->num_buckets;
    for (size_t i = 0; i < graph->params->count; i++) {
        if (!in_bucket(p, param, i) || p->grad[i] == TRI_NONE)
            continue;
        if (p->values[p->grad[i]].spot.kind == TRI_SPOT_TERMS)
            TRI_TRY(emit(p, TRI_OP_ALL_REDUCE, "sum", p->grad[i], (tri_cut){0},
                         (tri_spot){TRI_SPOT_WHOLE, 0}, &p->grad[i], err));
        put_in_bucket(p, p->grad[i], bucket, (tri_id)i);
    }
    for (tri_axis axis = TRI_AXIS_SHARD; axis <= TRI_AXIS_REPLICATE; axis++)
        for (size_t i = 0; i < graph->params->count; i++)
            if (in_bucket(p, param, i) && p->grad[i] != TRI_NONE &&
                tri_mesh_size(&p->layout->mesh, axis) > 1)
                TRI_TRY(sum_in_bucket(p, (tri_id)i, axis, bucket, err));
    for (size_t i = 0; i < graph->params->count; i++)
        if (in_bucket(p, param, i) && p->grad[i] != TRI_NONE)
            TRI_TRY(accumulate_slice(p, (tri_id)i, err));
    return TR_OK;
}

/* A contribution in the number format of its accumulator, in which it is to be summed: a sum over
 * many ranks in 16 bits would lose digits, or overflow. */
static tr_status widen(placer *p, tri_id id, tri_dtype dtype, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    *out = id;
    if (graph->values[id].dtype == dtype)
        return TR_OK;
    tri_attr attr = {.dtype = dtype};
    const char *name =
        tri_arena_printf(&graph->arena, "%s.%s", graph->values[id].name, tri_dtype_name(dtype));
    tri_id node = tri_graph_emit(graph, TRI_OP_CAST, name, &attr, &id, 1, 1);
    TRI_TRY(note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = p->values[id].global;
    set_spot(p, *out, p->values[id].spot);
    return TR_OK;
}

/* Zero 2 and 3: a contribution to a gradient stays a temporary. */
static tr_status contribute(placer *p, const tri_node *node, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_state *state = &graph->states[graph->values[node->out[0]].state];
    tri_id param = state->param, in;
    TRI_TRY(widen(p, node->in[0], state->dtype, &in, err));
    if (p->grad[param] == TRI_NONE) {
        p->grad[param] = in;
    } else {
        tri_id both[] = {p->grad[param], in};
        tri_spot spot = p->values[in].spot;
        tri_shape global = p->values[in].global;
        if (!same_spot(&spot, &p->values[both[0]].spot))
            return complain(p, node, "its contributions lie in different ways", err);
        tri_id sum = tri_graph_emit(graph, TRI_OP_ADD, graph->values[in].name, NULL, both, 2, 1);
        TRI_TRY(note_values(p, err));
        p->grad[param] = graph->nodes[sum].out[0];
        p->values[p->grad[param]].global = global;
        set_spot(p, p->grad[param], spot);
    }
    p->grads_left[param]--;
    return divide_gradients(p, param, err);
}

/* Zero 1 and 2: what was updated in slices is made whole everywhere. */
static tr_status gather_updates(placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    if (!graph->flats || p->layout->zero >= 3 || !p->sums_done)
        return TR_OK;
    graph->phase = TRI_PHASE_UPDATE;
    size_t count = graph->params->count;
    bool *done = calloc(count + 1, sizeof *done);
    if (!done)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
    tr_status status = TR_OK;
    for (size_t b = 0; b < count; b++)
        for (size_t i = b; i < count && !done[b] && status == TR_OK; i++) {
            tri_id state =
                graph->copy_state[i] != TRI_NONE ? graph->copy_state[i] : graph->param_state[i];
            if (done[i] || !in_bucket(p, (tri_id)b, i) || state == TRI_NONE)
                continue;
            tri_attr attr = {.axis = TRI_AXIS_SHARD, .flat = graph->flats[i]};
            tri_id before = graph->states[state].latest;
            tri_id node = tri_graph_emit(graph, TRI_OP_SHARD_GATHER, graph->states[state].name,
                                         &attr, &before, 1, 1);
            status = note_values(p, err);
            if (status != TR_OK)
                break;
            tri_id after = graph->nodes[node].out[0];
            p->values[after].global = p->values[before].global;
            set_spot(p, after, p->values[before].spot);
            if (i != b)
                done[i] = true;
        }
    free(done);
    return status;
}

/* ---- nodes ---- */

static bool has_rows(const placer *p, tri_id id)
{
    return dim_named(&p->values[id].global, TRI_DIM_B) >= 0;
}

/* Up to the update, what has no rows but was made of what has them is a sum over rows. */
static void note_sums(placer *p, const tri_node *node)
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
static tr_status place_state_output(placer *p, const tri_node *node, int k, tri_spot spot,
                                    tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id id = node->out[k], state = graph->values[id].state;
    bool cut = p->values[id].spot.kind == TRI_SPOT_CUT;
    if (cut && !same_spot(&p->values[id].spot, &spot))
        return complain(p, node, "its result is not cut as its state is", err);
    if (!cut && spot.kind == TRI_SPOT_CUT)
        return complain(p, node, "its result is cut, but its state is not", err);
    if (spot.kind == TRI_SPOT_TERMS)
        p->terms_tp[state] = true;
    if (p->values[id].sums_rows)
        p->terms_dp[state] = true;
    return TR_OK;
}

static void append(placer *p, const tri_node *node)
{
    tri_graph *graph = p->graph;
    tri_node *nodes =
        tri_array_grow(graph->nodes, graph->num_nodes, &graph->nodes_capacity, sizeof *nodes);
    if (!nodes) {
        graph->arena.failed = true;
        return;
    }
    graph->nodes = nodes;
    nodes[graph->num_nodes] = *node;
    for (int k = 0; k < node->num_out; k++)
        graph->values[node->out[k]].producer = (tri_id)graph->num_nodes;
    graph->num_nodes++;
}

/* Brings the inputs of a node to where its rule wants them; spots of the outputs in `out`. */
static tr_status place_inputs(placer *p, tri_node *node, tri_spot *out, tr_error *err)
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
            TRI_TRY(complete(p, node->in[j], &node->in[j], err));
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
            TRI_TRY(convert(p, node->in[j], want[j], &node->in[j], err));
    return TR_OK;
}

/* Squares are added once for each element of a parameter: what every rank has, the first adds. */
static bool adds_squares(placer *p, tri_node *node)
{
    bool cut = p->values[node->in[0]].spot.kind == TRI_SPOT_CUT;
    if (p->any_cut && !cut && p->layout->coordinate[TRI_AXIS_TP] != 0)
        return false;
    node->write[0] = p->any_squares ? TRI_WRITE_ADD : TRI_WRITE_START;
    p->any_squares = true;
    return true;
}

/* The sum of squares is one of terms, on ranks without any parameter of their own too. */
static void note_squares(placer *p, const tri_node *node)
{
    p->norm = p->graph->values[node->out[0]].state;
    p->terms_dp[p->norm] |= p->graph->flats != NULL;
    p->terms_tp[p->norm] |= p->any_cut;
}

/* A rank that has nothing to add begins with zero all the same. */
static tr_status add_no_squares(placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    if (p->norm == TRI_NONE || p->any_squares)
        return TR_OK;
    tri_id none = TRI_NONE, old = graph->states[p->norm].latest;
    tri_id node = tri_graph_emit(graph, TRI_OP_SUM_SQUARES, "sum_squares", NULL, &none, 1, 1);
    TRI_TRY(note_values(p, err));
    tri_graph_write_state(graph, node, 0, p->norm, TRI_WRITE_START);
    p->any_squares = true;
    for (size_t v = 0; v < p->num_values; v++)
        if (p->values[v].now == old)
            p->values[v].now = graph->nodes[node].out[0];
    return tri_graph_status(graph, err);
}

/* A node that this rank does not run: the versions before it stay the newest. */
static void drop(placer *p, const tri_node *node)
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
static bool take_slice(placer *p, tri_node *node)
{
    const tri_graph *graph = p->graph;
    if (node->phase != TRI_PHASE_UPDATE || !graph->flats)
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
        const tri_flat *flat = &graph->flats[param];
        if (tri_flat_slice(flat, flat->part, &first) == 0)
            return false;
        if (!flat->whole)
            node->attr.flat = *flat;
    }
    return true;
}

static tr_status read_states(placer *p, tri_node *node, tr_error *err)
{
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        node->in[j] = p->values[node->in[j]].now;
        tri_id state = p->graph->values[node->in[j]].state;
        if (state != TRI_NONE && node->phase == TRI_PHASE_UPDATE)
            TRI_TRY(complete_state(p, state, err));
        node->in[j] = p->values[node->in[j]].now;
    }
    for (int k = 0; k < node->num_out; k++)
        if (node->prev[k] != TRI_NONE)
            node->prev[k] = p->values[node->prev[k]].now;
    return TR_OK;
}

static tr_status place_node(placer *p, tri_node node, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_spot out[TRI_MAX_OUT];
    graph->phase = node.phase;
    graph->layer = node.layer;
    graph->ends_chain = node.ends_chain;
    if (node.phase == TRI_PHASE_UPDATE && !p->sums_done)
        TRI_TRY(complete_gradients(p, err));
    if (node.op == TRI_OP_SUM_SQUARES)
        note_squares(p, &node);
    else if (node.op == TRI_OP_FINISH)
        TRI_TRY(add_no_squares(p, err));
    TRI_TRY(read_states(p, &node, err));
    TRI_TRY(gather_weights(p, &node, err));
    bool runs = take_slice(p, &node);
    if (runs && node.op == TRI_OP_SUM_SQUARES)
        runs = adds_squares(p, &node);
    if (!runs) {
        drop(p, &node);
        return TR_OK;
    }
    TRI_TRY(place_inputs(p, &node, out, err));
    note_sums(p, &node);
    if (node.op == TRI_OP_ACCUMULATE && node.phase == TRI_PHASE_BACKWARD && graph->flats &&
        p->layout->zero >= 2)
        return contribute(p, &node, err);
    for (int k = 0; k < node.num_out; k++) {
        if (graph->values[node.out[k]].state != TRI_NONE)
            TRI_TRY(place_state_output(p, &node, k, out[k], err));
        else
            set_spot(p, node.out[k], out[k]);
    }
    append(p, &node);
    return tri_graph_status(graph, err);
}

/* What the host reads is whole and complete. */
static tr_status place_outputs(placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    graph->layer = graph->num_layers;
    graph->ends_chain = false;
    size_t num = graph->num_values;
    for (size_t v = 0; v < num; v++) {
        if (!graph->values[v].output)
            continue;
        tri_id id = p->values[v].now, state = graph->values[id].state;
        if (state != TRI_NONE)
            TRI_TRY(complete_state(p, state, err));
        else if (p->values[id].spot.kind == TRI_SPOT_TERMS)
            TRI_TRY(complete(p, id, &id, err));
        id = p->values[id].now;
        TRI_TRY(convert(p, id, (tri_spot){TRI_SPOT_WHOLE, 0}, &id, err));
        if (id == v)
            continue;
        graph->values[v].output = false;
        graph->values[id].output = true;
        if (graph->values[id].state == TRI_NONE)
            graph->values[id].name = graph->values[v].name; /* the host knows it by that */
    }
    if (graph->loss != TRI_NONE)
        graph->loss = p->values[graph->loss].now;
    if (graph->count != TRI_NONE)
        graph->count = p->values[graph->count].now;
    return tri_graph_status(graph, err);
}

/* For ZeRO: how often each gradient is contributed to, and which version of a state another one
 * replaces (kept in `piece`, which states have no other use for). */
static void note_versions(placer *p, const tri_node *nodes, size_t num_nodes)
{
    const tri_graph *graph = p->graph;
    for (size_t n = 0; n < num_nodes; n++)
        for (int k = 0; k < nodes[n].num_out; k++) {
            tri_id out = nodes[n].out[k], state = graph->values[out].state;
            if (state == TRI_NONE)
                continue;
            p->values[out].piece = nodes[n].prev[k];
            if (graph->states[state].kind == TRI_STATE_GRAD && nodes[n].op == TRI_OP_ACCUMULATE)
                p->grads_left[graph->states[state].param]++;
        }
}

static tr_status sweep(placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    size_t num_old = graph->num_nodes;
    tri_node *old = graph->nodes;
    graph->nodes = NULL;
    graph->num_nodes = graph->nodes_capacity = 0;
    tr_status status = note_values(p, err);
    if (status == TR_OK)
        status = place_states(p, err);
    if (status == TR_OK)
        note_versions(p, old, num_old);
    for (size_t n = 0; n < num_old && status == TR_OK; n++)
        status = place_node(p, old[n], err);
    free(old);
    TRI_TRY(status);
    TRI_TRY(gather_updates(p, err));
    return place_outputs(p, err);
}

tr_status tri_place(tri_graph *graph, const tri_layout *layout, tr_error *err)
{
    if (tri_mesh_size(&layout->mesh, TRI_AXIS_TP) == 1 &&
        tri_mesh_size(&layout->mesh, TRI_AXIS_DP) == 1)
        return TR_OK;
    size_t num_params = graph->params->count;
    placer p = {.graph = graph, .layout = layout, .norm = TRI_NONE};
    p.terms_tp = calloc(graph->num_states + 1, sizeof *p.terms_tp);
    p.terms_dp = calloc(graph->num_states + 1, sizeof *p.terms_dp);
    tri_id *ids = malloc((3 * num_params + 1) * sizeof *ids);
    p.grads_left = calloc(num_params + 1, sizeof *p.grads_left);
    tr_status status = p.terms_tp && p.terms_dp && ids && p.grads_left
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
    for (size_t i = 0; ids && i < 3 * num_params; i++)
        ids[i] = TRI_NONE;
    if (status == TR_OK) {
        p.gathered[0] = ids;
        p.gathered[1] = ids + num_params;
        p.grad = ids + 2 * num_params;
        status = sweep(&p, err);
    }
    free(p.terms_tp);
    free(p.terms_dp);
    free(p.grads_left);
    free(ids);
    free(p.values);
    return status;
}
