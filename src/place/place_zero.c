/* What ZeRO adds to the sweep: buckets that are gathered before use, summed when their last
 * gradient is there, and gathered after the update. zero.c says what is divided, and how.
 *
 * Zero 3 gathers a bucket for the forward of a chunk and again for its backward, in every
 * micro-batch. Kept (layout->keep_gathered), it is gathered in the forward alone, by nodes that run
 * for the first micro-batch only, and the backward reads the same. */
#include "place/placer.h"

/* A temporary in its place in a bucket of its own kind. */
static void put_in_bucket(tri_placer *p, tri_id id, uint32_t bucket, tri_id param)
{
    p->graph->values[id].bucket = bucket;
    p->graph->values[id].place = p->zero->flats[param];
}

static tri_id first_version(const tri_placer *p, tri_id version)
{
    while (p->graph->values[version].producer != TRI_NONE)
        version = p->values[version].replaces;
    return version;
}

size_t tri_placer_num_wholes(const tri_graph *graph, const tri_layout *layout)
{
    if (!layout->keep_gathered)
        return 2;
    return graph->chunk_of ? (size_t)graph->chunk_of[graph->num_layers + 1] + 1 : 1;
}

/* What stays for the step serves both phases of its chunk; otherwise each gathers for itself. */
void tri_placer_find_gathered(tri_placer *p)
{
    size_t count = p->graph->params->count, chunk = p->chunk > 0 ? (size_t)p->chunk : 0;
    bool keep = p->layout->keep_gathered;
    p->gathered[0] = p->wholes + (keep ? chunk * count : 0);
    p->gathered[1] = keep ? p->gathered[0] : p->wholes + count;
}

/* Zero 3: the whole of a divided parameter for this phase (or, kept, for the step), with all of its
 * bucket. */
static tr_status gather_bucket(tri_placer *p, tri_id param, tri_id *whole_of, tr_error *err)
{
    tri_graph *graph = p->graph;
    uint32_t bucket = ++p->num_buckets;
    for (tri_id i = p->zero->bucket_first[param]; i != TRI_NONE; i = p->zero->bucket_next[i]) {
        tri_id state =
            graph->copy_state[i] != TRI_NONE ? graph->copy_state[i] : graph->param_state[i];
        if (state == TRI_NONE)
            continue;
        /* The newest version is the one after the update: phases before read the first. */
        tri_id slice = first_version(p, graph->states[state].latest);
        tri_attr attr = {.message = {.axis = (uint8_t)tri_placer_shard(p, i),
                                     .made = {.shape = p->placed->local_shape[i],
                                              .dtype = graph->states[state].dtype}},
                         .flat = p->zero->flats[i]};
        tri_placement at = p->values[slice].at;
        tri_shape global = p->values[slice].global;
        bool empty = tri_shape_count(&graph->states[state].shape) == 0;
        tri_id in = empty ? TRI_NONE : slice;
        tri_id node =
            tri_graph_emit(graph, TRI_OP_UNSHARD, graph->params->items[i].name, &attr, &in, 1, 1);
        TRI_TRY(tri_placer_note_values(p, err));
        graph->nodes[node].first_only = p->layout->keep_gathered;
        whole_of[i] = graph->nodes[node].out[0];
        p->values[whole_of[i]].global = global;
        tri_placer_put(p, whole_of[i], &at);
        put_in_bucket(p, whole_of[i], bucket, i);
    }
    return TR_OK;
}

/* The parameter that a value is a version of, in the kinds that operators of the model read. */
static tri_id divided_weight(const tri_placer *p, tri_id id)
{
    tri_id state = p->graph->values[id].state;
    if (state == TRI_NONE || p->layout->zero < 3 || !p->zero->flats)
        return TRI_NONE;
    tri_state_kind kind = p->graph->states[state].kind;
    if (!tri_zero_divides(p->graph, p->layout, p->zero, &p->graph->states[state]))
        return TRI_NONE;
    return kind == TRI_STATE_PARAM || kind == TRI_STATE_COPY ? p->graph->states[state].param
                                                             : TRI_NONE;
}

/* Of a table the gradient of a lookup needs the shape alone, so it is not gathered for that. */
static void take_shape(tri_placer *p, tri_node *node, tri_id param)
{
    bool grouped = tri_op_get(node->op)->family == TRI_ATTR_GROUPED;
    *(grouped ? &node->attr.grouped.table : &node->attr.lookup.table) =
        p->placed->local_shape[param];
    node->in[tri_op_get(node->op)->shape_in - 1] = TRI_NONE;
    p->shape_of = param;
}

tr_status tri_placer_gather_weights(tri_placer *p, tri_node *node, tr_error *err)
{
    tri_id *whole_of = p->gathered[node->phase == TRI_PHASE_BACKWARD];
    for (int j = 0; j < node->num_in && node->phase != TRI_PHASE_UPDATE; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        tri_id param = divided_weight(p, node->in[j]);
        if (param == TRI_NONE)
            continue;
        if (j + 1 == tri_op_get(node->op)->shape_in) {
            take_shape(p, node, param);
            continue;
        }
        if (whole_of[param] == TRI_NONE)
            TRI_TRY(gather_bucket(p, param, whole_of, err));
        node->in[j] = whole_of[param];
    }
    return TR_OK;
}

/* This rank's slice of a gradient, into its accumulator. */
static tr_status accumulate_slice(tri_placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_flat *flat = &p->zero->flats[param];
    tri_id state = graph->grad_state[param], old = graph->states[state].latest;
    int64_t first;
    if (!p->accumulated[param])
        graph->states[state].latest = first_version(p, old);
    if (tri_flat_slice(flat, flat->part, &first) == 0)
        return TR_OK;
    tri_attr attr = {.flat = flat->whole ? (tri_flat){0} : *flat};
    tri_id node = tri_graph_emit(graph, TRI_OP_ACCUMULATE, graph->states[state].name, &attr,
                                 &p->grad[param], 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_id out = graph->nodes[node].out[0];
    tri_graph_write_state(graph, node, 0, state,
                          p->accumulated[param] ? TRI_WRITE_ADD : TRI_WRITE_START);
    p->accumulated[param] = true;
    p->partial[state] |= tri_placer_axis(p, tri_placer_replicate(p, param));
    p->values[out].global = p->values[old].global;
    p->values[out].replaces = p->graph->nodes[node].prev[0];
    tri_placer_put(p, out, &p->values[old].at);
    p->values[old].now = out;
    return TR_OK;
}

void tri_placer_enter_chunk(tri_placer *p, int chunk)
{
    const tri_graph *graph = p->graph;
    p->chunk = chunk;
    tri_placer_find_gathered(p);
    for (size_t i = 0; i < graph->params->count; i++) {
        if (!p->layout->keep_gathered)
            p->gathered[0][i] = p->gathered[1][i] = TRI_NONE;
        p->grad[i] = TRI_NONE;
        p->grads_left[i] = 0;
    }
    for (size_t n = 0; n < p->num_old; n++) {
        const tri_node *node = &p->old[n];
        tri_id state = node->num_out ? graph->values[node->out[0]].state : TRI_NONE;
        if (node->op == TRI_OP_ACCUMULATE && node->phase == TRI_PHASE_BACKWARD &&
            state != TRI_NONE && graph->states[state].kind == TRI_STATE_GRAD &&
            tri_node_chunk(graph, node) == chunk)
            p->grads_left[graph->states[state].param]++;
    }
}

/* A gradient in its bucket: summed into slices. */
static tr_status sum_in_bucket(tri_placer *p, tri_id param, uint32_t bucket, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_axis shard = tri_placer_shard(p, param);
    tri_attr attr = {.message = {.axis = (uint8_t)shard}, .flat = p->zero->flats[param]};
    tri_id before = p->grad[param];
    tri_id node =
        tri_graph_emit(graph, TRI_OP_SHARD_SUM, graph->values[before].name, &attr, &before, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_id after = p->grad[param] = graph->nodes[node].out[0];
    p->values[after].global = p->values[before].global;
    tri_placement at = p->values[before].at;
    at.partial &= (tri_factor_set)~tri_placer_axis(p, shard);
    tri_placer_put(p, after, &at);
    put_in_bucket(p, after, bucket, param);
    return TR_OK;
}

/* Zero 2 and 3: when the last gradient of a bucket is there, it is summed over the shard group, and
 * each rank adds its slice to the accumulators. Those are summed over the copies of a group once,
 * when the backward is done. */
static tr_status divide_gradients(tri_placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_id first = p->zero->bucket_first[param], *next = p->zero->bucket_next;
    for (tri_id i = first; i != TRI_NONE; i = next[i])
        if (p->grads_left[i] > 0)
            return TR_OK;
    graph->ends_chain = false; /* sums of gradients wait for all of their bucket */
    uint32_t bucket = ++p->num_buckets;
    for (tri_id i = first; i != TRI_NONE; i = next[i]) {
        if (p->grad[i] == TRI_NONE)
            continue;
        tri_factor_set over = p->values[p->grad[i]].at.partial;
        over &= (tri_factor_set)~tri_placer_data(p);
        if (over)
            TRI_TRY(tri_placer_reduce(p, p->grad[i], over, &p->grad[i], err));
        put_in_bucket(p, p->grad[i], bucket, i);
        if (p->values[p->grad[i]].last != TRI_NONE) /* made where the sum goes, and added to */
            put_in_bucket(p, p->values[p->grad[i]].last, bucket, i);
    }
    for (tri_id i = first; i != TRI_NONE; i = next[i])
        if (p->grad[i] != TRI_NONE)
            TRI_TRY(sum_in_bucket(p, i, bucket, err));
    for (tri_id i = first; i != TRI_NONE; i = next[i])
        if (p->grad[i] != TRI_NONE)
            TRI_TRY(accumulate_slice(p, i, err));
    return TR_OK;
}

/* Whether the operator that makes a gradient can write it in f32 at once, as it would into an
 * accumulator; nobody else reads it. */
static bool make_wide(tri_placer *p, tri_id id)
{
    tri_value *value = &p->graph->values[id];
    if (value->kind != TRI_VALUE_TEMP || value->producer == TRI_NONE)
        return false;
    tri_node *node = &p->graph->nodes[value->producer];
    int k = 0;
    while (node->out[k] != id)
        k++;
    if (!(tri_op_get(node->op)->can_accumulate >> k & 1) ||
        tri_node_epilogue(node) != TRI_EPILOGUE_NONE)
        return false;
    node->attr.wide_out |= (uint8_t)(1 << k);
    value->dtype = TRI_F32;
    return true;
}

/* A contribution in the number format of its accumulator, in which it is to be summed: a sum over
 * many ranks in 16 bits would lose digits, or overflow. */
static tr_status widen(tri_placer *p, tri_id id, tri_dtype dtype, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    *out = id;
    if (graph->values[id].dtype == dtype || (dtype == TRI_F32 && make_wide(p, id)))
        return TR_OK;
    tri_attr attr = {.cast = {.dtype = dtype}};
    const char *name =
        tri_arena_dotted(&graph->arena, graph->values[id].name, tri_dtype_name(dtype));
    tri_id node = tri_graph_emit(graph, TRI_OP_CAST, name, &attr, &id, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = p->values[id].global;
    tri_placer_put(p, *out, &p->values[id].at);
    return TR_OK;
}

/* Zero 2 and 3: a contribution to a gradient stays a temporary. */
tr_status tri_placer_contribute(tri_placer *p, const tri_node *node, tr_error *err)
{
    tri_graph *graph = p->graph;
    const tri_state *state = &graph->states[graph->values[node->out[0]].state];
    tri_id param = state->param, in;
    TRI_TRY(widen(p, node->in[0], state->dtype, &in, err));
    if (p->grad[param] == TRI_NONE) {
        p->grad[param] = in;
    } else {
        tri_id both[] = {p->grad[param], in};
        tri_placement at = p->values[in].at;
        tri_shape global = p->values[in].global;
        if (!tri_placement_equal(&at, &p->values[both[0]].at))
            return tri_placer_complain(p, node, "its contributions lie in different ways", err);
        tri_id sum = tri_graph_emit(graph, TRI_OP_ADD, graph->values[in].name, NULL, both, 2, 1);
        TRI_TRY(tri_placer_note_values(p, err));
        p->grad[param] = graph->nodes[sum].out[0];
        p->values[p->grad[param]].last = in;
        p->values[p->grad[param]].global = global;
        tri_placer_put(p, p->grad[param], &at);
    }
    p->grads_left[param]--;
    return divide_gradients(p, param, err);
}

/* Zero 1 and 2: what was updated in slices is made whole everywhere. */
static tr_status gather_update(tri_placer *p, tri_id param, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_id copy = graph->copy_state[param];
    tri_id state = copy != TRI_NONE ? copy : graph->param_state[param];
    if (state == TRI_NONE || graph->params->items[param].role == TRI_ROLE_STEERED)
        return TR_OK;
    tri_attr attr = {.message = {.axis = (uint8_t)tri_placer_shard(p, param)},
                     .flat = p->zero->flats[param]};
    tri_id before = graph->states[state].latest;
    tri_id node =
        tri_graph_emit(graph, TRI_OP_SHARD_GATHER, graph->states[state].name, &attr, &before, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_id after = graph->nodes[node].out[0];
    p->values[after].global = p->values[before].global;
    tri_placer_put(p, after, &p->values[before].at);
    return TR_OK;
}

tr_status tri_placer_gather_updates(tri_placer *p, tr_error *err)
{
    tri_graph *graph = p->graph;
    if (!p->zero->flats || p->layout->zero >= 3 || !p->sums_done)
        return TR_OK;
    graph->phase = TRI_PHASE_UPDATE;
    for (tri_id b = 0; b < graph->params->count; b++)
        for (tri_id i = p->zero->bucket_first[b] == b ? b : TRI_NONE; i != TRI_NONE;
             i = p->zero->bucket_next[i])
            TRI_TRY(gather_update(p, i, err));
    return TR_OK;
}
