/* Values on their way from where they were made to where they are needed: the collectives that the
 * sweep inserts. Each conversion is made once, for all who want the same. */
#include "place/placer.h"

#include <stdlib.h>

tr_status tri_placer_complain(const tri_placer *p, const tri_node *node, const char *what,
                              tr_error *err)
{
    const char *name =
        node->num_out ? p->graph->values[node->out[0]].name : tri_op_get(node->op)->name;
    return tri_fail(err, TR_ERROR_INTERNAL, "placement of %s (%s): %s", name,
                    tri_op_get(node->op)->name, what);
}

/* Notes values that were made since the last call: whole until something else is said. */
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
                                                .whole = TRI_NONE,
                                                .piece = TRI_NONE,
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

/* The value's own shape, for where it lies. */
void tri_placer_set_spot(tri_placer *p, tri_id id, tri_spot spot)
{
    tri_placed *v = &p->values[id];
    tri_value *value = &p->graph->values[id];
    v->spot = spot;
    value->shape = v->global;
    value->cut = (tri_cut){0};
    if (spot.kind == TRI_SPOT_CUT) {
        value->cut = tri_tp_cut_dim(p->layout, &v->global, spot.dim);
        value->shape.dim[spot.dim].size = tri_cut_size(&value->cut, value->cut.part);
    }
    if (value->state == TRI_NONE ||
        !tri_zero_divides(p->graph, p->layout, p->zero, &p->graph->states[value->state]))
        return;
    const tri_flat *flat = &p->zero->flats[p->graph->states[value->state].param];
    int64_t first, count = tri_flat_slice(flat, flat->part, &first);
    value->flat = *flat;
    if (!flat->whole || count == 0)
        value->shape = tri_shape_scalar(count);
}

/* Emits a node over the axis of a cut (tp unless it says otherwise) that reads one value; what it
 * makes has the same logical shape. */
tr_status tri_placer_emit(tri_placer *p, tri_op op, const char *suffix, tri_id in, tri_cut cut,
                          tri_spot spot, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    tri_attr attr = {.axis = cut.axis, .cut = cut};
    tri_shape global = p->values[in].global;
    const char *name = tri_arena_printf(&graph->arena, "%s.%s", graph->values[in].name, suffix);
    tri_id node = tri_graph_emit(graph, op, name, &attr, &in, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    *out = graph->nodes[node].out[0];
    p->values[*out].global = global;
    tri_placer_set_spot(p, *out, spot);
    return TR_OK;
}

static bool first_dim(const tri_shape *shape, int dim)
{
    return tri_shape_span(shape, 0, dim) == 1;
}

static tr_status gather(tri_placer *p, tri_id in, tri_id *out, tr_error *err)
{
    tri_cut cut = p->graph->values[in].cut;
    const tri_spot whole = {TRI_SPOT_WHOLE, 0};
    if (cut.parts == 1) /* one key head, and every rank has it */
        return tri_placer_emit(p, TRI_OP_SLICE, "all", in, cut, whole, out, err);
    bool dense = first_dim(&p->values[in].global, cut.dim);
    TRI_TRY(
        tri_placer_emit(p, TRI_OP_ALL_GATHER, dense ? "all" : "blocks", in, cut, whole, out, err));
    return dense ? TR_OK : tri_placer_emit(p, TRI_OP_UNBLOCK, "all", *out, cut, whole, out, err);
}

static tr_status scatter(tri_placer *p, tri_id in, int dim, tri_id *out, tr_error *err)
{
    const tri_shape *global = &p->values[in].global;
    tri_cut cut = tri_tp_cut_dim(p->layout, global, dim);
    const tri_spot terms = {TRI_SPOT_TERMS, 0}, piece = {TRI_SPOT_CUT, dim};
    if (!first_dim(global, dim))
        TRI_TRY(tri_placer_emit(p, TRI_OP_BLOCK, "blocks", in, cut, terms, &in, err));
    return tri_placer_emit(p, TRI_OP_REDUCE_SCATTER, "sum", in, cut, piece, out, err);
}

/* Statistics of parts of a vocabulary: collected from all ranks, then combined. */
static tr_status combine(tri_placer *p, tri_id in, tri_id *out, tr_error *err)
{
    tri_graph *graph = p->graph;
    int parts = tri_mesh_size(&p->layout->mesh, TRI_AXIS_TP);
    tri_attr attr = {.axis = TRI_AXIS_TP, .cut = {.parts = parts, .unit = 1}};
    const char *name = tri_arena_printf(&graph->arena, "%s.parts", graph->values[in].name);
    tri_id node = tri_graph_emit(graph, TRI_OP_ALL_GATHER, name, &attr, &in, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    tri_id all = graph->nodes[node].out[0];
    name = tri_arena_printf(&graph->arena, "%s.all", graph->values[in].name);
    node = tri_graph_emit(graph, TRI_OP_CE_COMBINE, name, NULL, &all, 1, 1);
    TRI_TRY(tri_placer_note_values(p, err));
    *out = graph->nodes[node].out[0];
    return TR_OK;
}

int tri_placer_dim_named(const tri_shape *shape, tri_dim_name name)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d].name == name)
            return d;
    return -1;
}

/* The completed sum of a temporary, in the place where the residual stream lies. */
tr_status tri_placer_complete(tri_placer *p, tri_id id, tri_id *out, tr_error *err)
{
    *out = tri_placer_now(p, id);
    if (*out != id)
        return TR_OK;
    int position = p->layout->sp ? tri_placer_dim_named(&p->values[id].global, TRI_DIM_T) : -1;
    tri_id producer = p->graph->values[id].producer;
    if (producer != TRI_NONE && p->graph->nodes[producer].op == TRI_OP_CE_STATS)
        TRI_TRY(combine(p, id, out, err));
    else if (position >= 0)
        TRI_TRY(scatter(p, id, position, out, err));
    else
        TRI_TRY(tri_placer_emit(p, TRI_OP_ALL_REDUCE, "sum", id, (tri_cut){0},
                                (tri_spot){TRI_SPOT_WHOLE, 0}, out, err));
    p->values[id].now = *out;
    return TR_OK;
}

bool tri_placer_same_spot(const tri_spot *a, const tri_spot *b)
{
    return a->kind == b->kind && (a->kind != TRI_SPOT_CUT || a->dim == b->dim);
}

tr_status tri_placer_convert(tri_placer *p, tri_id id, tri_spot want, tri_id *out, tr_error *err)
{
    *out = id;
    if (tri_placer_same_spot(&p->values[id].spot, &want))
        return TR_OK;
    if (p->values[id].spot.kind == TRI_SPOT_CUT) {
        if (p->values[id].whole == TRI_NONE) {
            TRI_TRY(gather(p, id, out, err));
            p->values[id].whole = *out;
        }
        return tri_placer_convert(p, p->values[id].whole, want, out, err);
    }
    tri_id piece = p->values[id].piece;
    if (piece == TRI_NONE || p->values[piece].spot.dim != want.dim) {
        tri_cut cut = tri_tp_cut_dim(p->layout, &p->values[id].global, want.dim);
        TRI_TRY(tri_placer_emit(p, TRI_OP_SLICE, "part", id, cut, want, &piece, err));
        p->values[id].piece = piece;
    }
    *out = piece;
    return TR_OK;
}
