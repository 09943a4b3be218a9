/* Values on their way from where they were made to where they are needed: the collectives that the
 * sweep inserts. Each conversion is made once, for all who want the same. */
#include "place/placer.h"

#include <stdlib.h>
#include <string.h>

tr_status tri_placer_complain(const tri_placer *p, const tri_node *node, const char *what,
                              tr_error *err)
{
    const char *name =
        node->num_out ? p->graph->values[node->out[0]].name : tri_op_get(node->op)->name;
    return tri_fail(err, TR_ERROR_INTERNAL, "placement of %s (%s): %s", name,
                    tri_op_get(node->op)->name, what);
}

tr_status tri_placer_note_values(tri_placer *p, tr_error *err)
{
    if (p->graph->num_values > p->capacity) {
        size_t capacity = 2 * p->graph->num_values + 64;
        tri_placed *values = realloc(p->values, capacity * sizeof *values);
        if (!values)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place the graph");
        p->values = values;
        p->capacity = capacity;
    }
    for (; p->num_values < p->graph->num_values; p->num_values++)
        p->values[p->num_values] = (tri_placed){.global = p->graph->values[p->num_values].shape,
                                                .now = (tri_id)p->num_values,
                                                .moved = TRI_NONE,
                                                .next = TRI_NONE,
                                                .replaces = TRI_NONE,
                                                .last = TRI_NONE};
    return tri_graph_status(p->graph, err);
}

tri_id tri_placer_now(tri_placer *p, tri_id id)
{
    tri_id last = id;
    while (p->values[last].now != last)
        last = p->values[last].now;
    for (tri_id next; id != last; id = next) { /* the next call has one step to take */
        next = p->values[id].now;
        p->values[id].now = last;
    }
    return last;
}

void tri_placer_put(tri_placer *p, tri_id id, const tri_placement *at)
{
    tri_placed *v = &p->values[id];
    tri_value *value = &p->graph->values[id];
    v->at = value->at = *at;
    value->whole = v->global;
    value->shape = tri_placement_shape(&p->layout->grid, at, &v->global);
    if (value->state == TRI_NONE ||
        !tri_zero_divides(p->graph, p->layout, p->zero, &p->graph->states[value->state]))
        return;
    const tri_flat *flat = &p->zero->flats[p->graph->states[value->state].param];
    int64_t first, count = tri_flat_slice(flat, flat->part, &first);
    value->flat = *flat;
    if (!flat->whole || count == 0)
        value->shape = tri_shape_scalar(count);
}

/* One node that reads one value; what it makes has the same logical shape and lies at `at`. */
static tr_status emit(tri_placer *p, tri_op op, const char *suffix, tri_id in, const tri_attr *attr,
                      const tri_placement *at, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_shape global = p->values[in].global;
    const char *name = tri_arena_dotted(&graph->arena, graph->values[in].name, suffix);
    tri_id node = tri_graph_emit(graph, op, name, attr, &in, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = global;
    tri_placer_put(p, *out, at);
    return TR_OK;
}

static tri_cut last_entries(const tri_placer *p, tri_id id, const tri_placement *at, int dim,
                            int num)
{
    return tri_placement_last(&p->layout->grid, &at->dim[dim], p->values[id].global.dim[dim], dim,
                              num);
}

/* The ranks that take part in a move, in the order of the pieces that it is about. */
static tri_entries ranks_of(const tri_move *move)
{
    tri_entries last = {.num = (uint8_t)move->num_entries};
    if (move->kind == TRI_MOVE_ALL_REDUCE)
        return (tri_entries){1, {move->over}};
    const tri_entries *list = move->kind == TRI_MOVE_ALL_GATHER ? &move->before.dim[move->from_dim]
                                                                : &move->after.dim[move->to_dim];
    memcpy(last.set, &list->set[list->num - last.num], last.num * sizeof *last.set);
    return last;
}

static tr_status axis_of(tri_placer *p, const tri_entries *order, tri_attr *attr, tr_error *err)
{
    int axis = tri_grid_axis_in_order(&p->graph->grid, order);
    if (axis < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "the ranks form more groups than a program has");
    attr->message.axis = (uint8_t)axis;
    return TR_OK;
}

/* Whether pieces along a dim lie one after the other as they are: the dims before it count one. On
 * every rank, since ranks name their messages alike, whatever they have; those that come first have
 * most. */
static bool first_dim(const tri_placer *p, tri_id id, int dim)
{
    const int32_t first[TRI_MAX_FACTORS] = {0};
    const tri_placed *v = &p->values[id];
    int64_t begin, most = 1;
    for (int d = 0; d < dim; d++)
        most *=
            tri_placement_piece(&p->layout->grid, &v->at.dim[d], v->global.dim[d], first, &begin);
    return most == 1;
}

static tr_status emit_gather(tri_placer *p, tri_id in, const tri_move *move, tri_id *out,
                             tr_error *err)
{
    tri_entries ranks = ranks_of(move);
    tri_attr attr = {
        .message = {.cut = last_entries(p, in, &move->before, move->from_dim, move->num_entries)}};
    TRI_TRY(axis_of(p, &ranks, &attr, err));
    bool dense = first_dim(p, in, move->from_dim);
    TRI_TRY(
        emit(p, TRI_OP_ALL_GATHER, dense ? "all" : "blocks", in, &attr, &move->after, out, err));
    return dense ? TR_OK : emit(p, TRI_OP_UNBLOCK, "all", *out, &attr, &move->after, out, err);
}

static tr_status emit_scatter(tri_placer *p, tri_id in, const tri_move *move, tri_id *out,
                              tr_error *err)
{
    tri_entries ranks = ranks_of(move);
    tri_attr attr = {
        .message = {.cut = last_entries(p, in, &move->after, move->to_dim, move->num_entries)}};
    TRI_TRY(axis_of(p, &ranks, &attr, err));
    if (!first_dim(p, in, move->to_dim))
        TRI_TRY(emit(p, TRI_OP_BLOCK, "blocks", in, &attr, &move->before, &in, err));
    return emit(p, TRI_OP_REDUCE_SCATTER, "sum", in, &attr, &move->after, out, err);
}

static tr_status emit_exchange(tri_placer *p, tri_id in, const tri_move *move, tri_id *out,
                               tr_error *err)
{
    tri_entries ranks = ranks_of(move);
    tri_attr gathers = {
        .message = {.cut = last_entries(p, in, &move->before, move->from_dim, move->num_entries)}};
    tri_attr scatters = {
        .message = {.cut = last_entries(p, in, &move->after, move->to_dim, move->num_entries)}};
    TRI_TRY(axis_of(p, &ranks, &gathers, err));
    gathers.message.scatter = scatters.message.cut;
    if (!first_dim(p, in, move->to_dim))
        TRI_TRY(emit(p, TRI_OP_BLOCK, "blocks", in, &scatters, &move->before, &in, err));
    bool dense = first_dim(p, in, move->from_dim);
    TRI_TRY(emit(p, TRI_OP_ALL_TO_ALL, dense ? "part" : "blocks", in, &gathers, &move->after, out,
                 err));
    gathers.message.scatter = (tri_cut){0};
    return dense ? TR_OK : emit(p, TRI_OP_UNBLOCK, "part", *out, &gathers, &move->after, out, err);
}

/* Over a single rank (one key head, which all have) nothing moves. */
static tr_status emit_same(tri_placer *p, tri_id in, const tri_move *move, tri_id *out,
                           tr_error *err)
{
    int64_t size = p->graph->values[in].shape.dim[0].size;
    const tri_attr attr = {.message = {.cut = {.parts = 1, .size = size, .unit = 1}}};
    return emit(p, TRI_OP_SLICE, "all", in, &attr, &move->after, out, err);
}

static tr_status emit_move(tri_placer *p, tri_id in, const tri_move *move, tri_id *out,
                           tr_error *err)
{
    tri_attr attr = {0};
    tri_entries ranks = ranks_of(move);
    bool alone = tri_grid_size(&p->layout->grid, move->over) == 1;
    if (alone && move->kind != TRI_MOVE_SLICE && p->values[in].global.rank > 0)
        return emit_same(p, in, move, out, err);
    switch (move->kind) {
    case TRI_MOVE_SLICE:
        attr.message.cut = last_entries(p, in, &move->after, move->to_dim, move->num_entries);
        TRI_TRY(axis_of(p, &ranks, &attr, err));
        return emit(p, TRI_OP_SLICE, "part", in, &attr, &move->after, out, err);
    case TRI_MOVE_ALL_REDUCE:
        TRI_TRY(axis_of(p, &ranks, &attr, err));
        return emit(p, TRI_OP_ALL_REDUCE, "sum", in, &attr, &move->after, out, err);
    case TRI_MOVE_REDUCE_SCATTER:
        return emit_scatter(p, in, move, out, err);
    case TRI_MOVE_ALL_TO_ALL:
        return emit_exchange(p, in, move, out, err);
    default:
        return emit_gather(p, in, move, out, err);
    }
}

/* Statistics of parts of a vocabulary: collected from all ranks, then combined. */
static tr_status combine(tri_placer *p, tri_id in, tri_factor_set over, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_placement at = p->values[in].at;
    tri_shape global = p->values[in].global;
    int32_t num = tri_grid_size(&p->layout->grid, over);
    tri_attr attr = {.message = {.cut = {.dim = TRI_NO_DIM, .parts = num, .size = num, .unit = 1}}};
    at.partial &= (tri_factor_set)~over;
    TRI_TRY(axis_of(p, &(tri_entries){1, {over}}, &attr, err));
    const char *name = tri_arena_printf(&graph->arena, "%s.parts", graph->values[in].name);
    tri_id node = tri_graph_emit(graph, TRI_OP_ALL_GATHER, name, &attr, &in, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_id all = graph->nodes[node].out[0];
    name = tri_arena_printf(&graph->arena, "%s.all", graph->values[in].name);
    node = tri_graph_emit(graph, TRI_OP_CE_COMBINE, name, NULL, &all, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = global;
    tri_placer_put(p, *out, &at);
    return TR_OK;
}

/* Goes the way that was planned; what is on it is kept for others. */
static tr_status go(tri_placer *p, tri_id id, const tri_moves *moves, tri_id of, tri_id *out,
                    tr_error *err)
{
    *out = id;
    for (int i = 0; i < moves->num; i++) {
        TRI_TRY(emit_move(p, *out, &moves->move[i], out, err));
        p->values[*out].next = p->values[of].moved;
        p->values[of].moved = *out;
    }
    return TR_OK;
}

tr_status tri_placer_complete(tri_placer *p, tri_id id, tri_factor_set over, tri_id *out,
                              tr_error *err)
{
    *out = tri_placer_now(p, id);
    if (*out != id)
        return TR_OK;
    const tri_placement *at = &p->values[id].at;
    if (at->how == TRI_PARTIAL_COMBINE) {
        TRI_TRY(combine(p, id, over, out, err));
    } else {
        tri_placement want = *at;
        tri_placement anchor =
            tri_policy_place(p->layout, TRI_POLICY_ANCHOR, &p->values[id].global, over);
        want.partial &= (tri_factor_set)~over;
        for (int d = 0; d < p->values[id].global.rank; d++)
            for (int i = 0; i < anchor.dim[d].num && want.dim[d].num < TRI_MAX_ENTRIES; i++)
                want.dim[d].set[want.dim[d].num++] = anchor.dim[d].set[i];
        tri_moves moves;
        TRI_TRY(tri_plan_moves(p->values[id].global.rank, at, &want, &moves, err));
        TRI_TRY(go(p, id, &moves, id, out, err));
    }
    p->values[id].now = *out;
    return TR_OK;
}

tr_status tri_placer_reduce(tri_placer *p, tri_id id, tri_factor_set over, tri_id *out,
                            tr_error *err)
{
    tri_move move = {.kind = TRI_MOVE_ALL_REDUCE, .over = over, .after = p->values[id].at};
    move.after.partial &= (tri_factor_set)~over;
    return emit_move(p, id, &move, out, err);
}

tr_status tri_placer_return(tri_placer *p, const tri_node *node, const tri_placement *before,
                            tr_error *err)
{
    const uint8_t returns = tri_op_get(node->op)->returns;
    for (int k = 0; k < node->num_out; k++) {
        tri_spot spots[TRI_MAX_FACTORS];
        tri_id id = node->out[k], back;
        if (!(returns >> k & 1) || p->graph->values[id].state != TRI_NONE)
            continue;
        for (int f = 0; f < p->layout->grid.num_factors; f++) {
            tri_spot was = tri_placement_spot(before, f);
            spots[f] = tri_placement_spot(&p->values[id].at, f);
            if (spots[f].kind == TRI_SPOT_WHOLE && was.kind == TRI_SPOT_CUT)
                spots[f] = was;
        }
        tri_placement want = tri_placement_of(&p->layout->grid, &p->values[id].global, spots);
        want.how = p->values[id].at.how;
        TRI_TRY(tri_placer_convert(p, id, &want, &back, err));
        p->values[id].now = back;
    }
    return TR_OK;
}

static bool is_local(const tri_moves *moves)
{
    for (int i = 0; i < moves->num; i++)
        if (moves->move[i].kind != TRI_MOVE_SLICE)
            return false;
    return true;
}

/* Whether what was made of a value is for others alone. Each chunk of a pipeline has the inputs of
 * the step, and makes of them what it needs. And what the forward has put together over cp is too
 * large to be kept for the backward, which gathers it again: so what a rank keeps shrinks with the
 * number of ranks. */
static bool is_for_others(const tri_placer *p, tri_id id, tri_id other)
{
    const tri_graph *graph = p->graph;
    const tri_node *maker = &graph->nodes[graph->values[other].producer];
    if (graph->values[id].kind == TRI_VALUE_INPUT)
        return graph->chunk_of && tri_node_chunk(graph, maker) != p->chunk;
    tri_factor_set gathered =
        tri_placement_cut(&p->values[id].at) & ~tri_placement_cut(&p->values[other].at);
    return graph->phase == TRI_PHASE_BACKWARD && graph->values[id].kind == TRI_VALUE_TEMP &&
           gathered & tri_placer_axis(p, TRI_AXIS_CP) && maker->phase == TRI_PHASE_FORWARD;
}

/* From one of the places where it is already, if no message is needed; otherwise from where it was
 * made. */
tr_status tri_placer_convert(tri_placer *p, tri_id id, const tri_placement *want, tri_id *out,
                             tr_error *err)
{
    tri_moves moves;
    int rank = p->values[id].global.rank;
    *out = id;
    if (tri_placement_equal(&p->values[id].at, want))
        return TR_OK;
    for (tri_id other = p->values[id].moved; other != TRI_NONE; other = p->values[other].next) {
        *out = other;
        if (is_for_others(p, id, other))
            continue;
        if (tri_placement_equal(&p->values[other].at, want))
            return TR_OK;
    }
    for (tri_id other = p->values[id].moved; other != TRI_NONE; other = p->values[other].next) {
        if (want->partial & ~p->values[other].at.partial || is_for_others(p, id, other))
            continue;
        TRI_TRY(tri_plan_moves(rank, &p->values[other].at, want, &moves, err));
        if (is_local(&moves))
            return go(p, other, &moves, id, out, err);
    }
    TRI_TRY(tri_plan_moves(rank, &p->values[id].at, want, &moves, err));
    return go(p, id, &moves, id, out, err);
}
