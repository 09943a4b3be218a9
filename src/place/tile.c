/* Tiles.
 *
 * Whether an operator can run on a tile is what its placement rule says of inputs that are cut
 * along the dim: results that are cut are tiles themselves, and terms are added up. So an operator
 * that can be sharded along the dim can be tiled, and any other is refused by name.
 *
 * Invariants, of a value that the nodes inside make, when tile i has been put:
 *   1. `tile` is what tile i has of it, unless it is only added up;
 *   2. `sum` is the version that holds tiles 0 to i: of a state, of terms, or of tiles that are put
 *      together for readers outside;
 *   3. the last tile makes the value itself, so that nobody outside reads anything else than
 * before.
 *
 * A weight that ZeRO gathers for the forward is read from the gather of the backward, where all
 * tiles run. */
#include "place/tile.h"

#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"
#include "graph/passes.h"
#include "place/policy.h"

typedef struct tiler {
    tri_graph *graph;
    const tri_tiling *how;
    tri_node *old; /* the nodes as they were */
    size_t num_old, num_values;
    bool backward;    /* the nodes inside run there */
    int32_t part;     /* the tile at hand */
    tri_id *producer; /* of each old value: as it was */
    tri_id *tile, *sum;
    uint32_t *uses;    /* of each old value, by nodes outside */
    bool *from, *to;   /* of each old value: it comes from a wide one, it leads to one */
    bool *inside;      /* of each old node */
    bool *behind;      /* of each old node outside: it needs what the tiles make */
    bool *made_behind; /* of each old value: by the tiles, or by such a node */
    bool *ahead;       /* of each old node: it gathers what the tiles read, and stood after them */
} tiler;

static bool is_wide(const tiler *t, tri_id value)
{
    const tri_value *v = &t->graph->values[value];
    return v->kind == TRI_VALUE_TEMP && tri_dim_named(&v->shape, t->how->along) >= 0 &&
           tri_dim_named(&v->shape, t->how->wide) >= 0;
}

static bool touches_wide(const tiler *t, const tri_node *node)
{
    bool wide = false;
    for (int j = 0; j < node->num_in; j++)
        wide |= node->in[j] != TRI_NONE && is_wide(t, node->in[j]);
    for (int k = 0; k < node->num_out; k++)
        wide |= is_wide(t, node->out[k]);
    return wide;
}

static bool made_inside(const tiler *t, tri_id value)
{
    return value < t->num_values && t->producer[value] != TRI_NONE && t->inside[t->producer[value]];
}

/* A gradient that is added to its accumulator is added tile by tile. */
static bool adds_up(const tiler *t, const tri_node *node)
{
    return node->op == TRI_OP_ACCUMULATE && node->attr.flat.parts == 0 &&
           made_inside(t, node->in[0]) && t->uses[node->in[0]] == 1 &&
           tri_dim_named(&t->graph->values[node->in[0]].shape, t->how->along) < 0;
}

static void find_inside(tiler *t)
{
    for (size_t n = 0; n < t->num_old; n++) {
        const tri_node *node = &t->old[n];
        bool from = t->inside[n] = node->phase != TRI_PHASE_UPDATE && touches_wide(t, node);
        for (int j = 0; j < node->num_in; j++)
            from |= node->in[j] != TRI_NONE && t->from[node->in[j]];
        for (int k = 0; from && k < node->num_out; k++)
            t->from[node->out[k]] = true;
    }
    for (size_t n = t->num_old; n-- > 0;) {
        const tri_node *node = &t->old[n];
        bool from = false, to = t->inside[n];
        for (int k = 0; k < node->num_out; k++) {
            to |= t->to[node->out[k]];
            from |= t->from[node->out[k]];
        }
        for (int j = 0; to && j < node->num_in; j++)
            if (node->in[j] != TRI_NONE)
                t->to[node->in[j]] = true;
        t->inside[n] |= from && to;
    }
    for (size_t n = 0; n < t->num_old; n++)
        for (int j = 0; !t->inside[n] && j < t->old[n].num_in; j++)
            if (t->old[n].in[j] != TRI_NONE)
                t->uses[t->old[n].in[j]]++;
    for (size_t n = 0; n < t->num_old; n++) {
        t->inside[n] |= adds_up(t, &t->old[n]);
        if (t->inside[n] && t->old[n].op == TRI_OP_ACCUMULATE)
            t->uses[t->old[n].in[0]] = 0;
        t->backward |= t->inside[n] && t->old[n].phase == TRI_PHASE_BACKWARD;
    }
}

/* Nodes outside that need what the tiles make come after them. */
static void find_behind(tiler *t)
{
    for (size_t n = 0; n < t->num_old; n++) {
        const tri_node *node = &t->old[n];
        for (int j = 0; j < node->num_in; j++)
            t->behind[n] |= node->in[j] != TRI_NONE && t->made_behind[node->in[j]];
        for (int k = 0; k < node->num_out; k++)
            t->behind[n] |= node->prev[k] != TRI_NONE && t->made_behind[node->prev[k]];
        for (int k = 0; k < node->num_out; k++)
            t->made_behind[node->out[k]] = t->inside[n] || t->behind[n];
    }
}

/* ---- can it be done? ---- */

static tr_status refuse(const tri_node *node, const char *why, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INTERNAL, "%s cannot run in tiles: %s",
                    tri_op_get(node->op)->name, why);
}

/* How the outputs of a node lie when its inputs are cut along the dim. */
static tr_status ask(const tiler *t, const tri_node *node, tri_spot *out, tr_error *err)
{
    const tri_op_def *def = tri_op_get(node->op);
    tri_shape shapes[TRI_MAX_IN];
    tri_spot in[TRI_MAX_IN], want[TRI_MAX_IN];
    if (node->op == TRI_OP_ACCUMULATE && t->uses[node->in[0]] == 0) {
        out[0] = (tri_spot){TRI_SPOT_TERMS, 0};
        return TR_OK;
    }
    if (!def->place || node->op == TRI_OP_DROPOUT)
        return refuse(node, "no rule says what it makes of a tile", err);
    for (int j = 0; j < node->num_in; j++) {
        in[j] = (tri_spot){TRI_SPOT_WHOLE, 0};
        shapes[j] =
            node->in[j] == TRI_NONE ? (tri_shape){.rank = -1} : t->graph->values[node->in[j]].shape;
        int dim = tri_dim_named(&shapes[j], t->how->along);
        if (dim >= 0)
            in[j] = (tri_spot){TRI_SPOT_CUT, dim};
        else if (node->in[j] != TRI_NONE && made_inside(t, node->in[j]))
            return refuse(node, "it needs a sum over all of them", err);
    }
    memcpy(want, in, sizeof in);
    for (int k = 0; k < node->num_out; k++)
        out[k] = (tri_spot){TRI_SPOT_WHOLE, 0};
    def->place(node, shapes, want, out);
    for (int j = 0; j < node->num_in; j++)
        if (want[j].kind != in[j].kind || want[j].dim != in[j].dim)
            return refuse(node, "it needs an input whole", err);
    for (int k = 0; k < node->num_out; k++) {
        int dim = tri_dim_named(&t->graph->values[node->out[k]].shape, t->how->along);
        bool cut = out[k].kind == TRI_SPOT_CUT && out[k].dim == dim;
        if (!cut && out[k].kind != TRI_SPOT_TERMS)
            return refuse(node, "a result belongs to no tile", err);
        bool is_state = t->graph->values[node->out[k]].state != TRI_NONE;
        if (t->graph->values[node->out[k]].output || (is_state && cut) ||
            (!cut && !(def->can_accumulate >> k & 1)))
            return refuse(node, "its result cannot be added up", err);
    }
    return TR_OK;
}

static tr_status check(const tiler *t, tr_error *err)
{
    tri_spot out[TRI_MAX_OUT];
    for (size_t n = 0; n < t->num_old; n++)
        if (t->inside[n])
            TRI_TRY(ask(t, &t->old[n], out, err));
    return TR_OK;
}

/* ---- the nodes of a tile ---- */

static tri_cut cut_of(const tiler *t, const tri_shape *shape)
{
    int dim = tri_dim_named(shape, t->how->along);
    return (tri_cut){.dim = (uint8_t)dim,
                     .parts = t->how->num_tiles,
                     .part = t->part,
                     .size = shape->dim[dim].size,
                     .unit = 1};
}

/* What a tile has of a value: of this rank alone, whatever cuts the dim over ranks. */
static void become_tile(const tiler *t, tri_value *value, tri_cut cut)
{
    value->shape.dim[cut.dim].size = tri_cut_size(&cut, t->part);
    value->at.dim[cut.dim].num = 0;
    if (value->whole.rank > cut.dim)
        value->whole.dim[cut.dim].size = value->shape.dim[cut.dim].size;
}

/* The value itself for the last tile, a copy of it before. */
static tri_id value_of(const tiler *t, tri_id old)
{
    return t->part == t->how->num_tiles - 1 ? old
                                            : tri_graph_add_value(t->graph, t->graph->values[old]);
}

static void append(const tiler *t, tri_node *node)
{
    if (t->backward) {
        node->phase = TRI_PHASE_BACKWARD;
        node->with_chain = true;
    }
    tri_graph_append(t->graph, node);
}

/* One more tile of a sum: the output becomes its next version. */
static void go_on(tiler *t, tri_node *node, int k, tri_id old)
{
    tri_id version = value_of(t, old);
    node->out[k] = version;
    if (t->sum[old] != TRI_NONE) {
        node->write[k] = TRI_WRITE_ADD;
        node->prev[k] = t->sum[old];
    }
    t->sum[old] = version;
}

/* The tile of a value from outside: a copy. */
static tri_id slice(tiler *t, tri_id value, const tri_node *reader)
{
    tri_graph *graph = t->graph;
    tri_cut cut = cut_of(t, &graph->values[value].shape);
    const tri_attr attr = {.message = {.cut = cut}};
    const char *name =
        tri_arena_printf(&graph->arena, "%s.%d", graph->values[value].name, (int)t->part);
    graph->phase = t->backward ? TRI_PHASE_BACKWARD : reader->phase;
    graph->layer = reader->layer;
    graph->ends_chain = false;
    tri_id node = tri_graph_emit(graph, TRI_OP_SLICE, name, &attr, &value, 1, 1);
    if (node == TRI_NONE)
        return TRI_NONE;
    graph->nodes[node].with_chain = t->backward;
    tri_value *made = &graph->values[graph->nodes[node].out[0]];
    made->at = graph->values[value].at;
    made->whole = graph->values[value].whole;
    become_tile(t, made, cut);
    return graph->nodes[node].out[0];
}

static bool gathers_behind(const tri_node *node)
{
    return node->op == TRI_OP_UNSHARD && node->phase == TRI_PHASE_BACKWARD;
}

/* The node of the backward that gathers what the forward of this chunk has gathered; TRI_NONE: what
 * is read is something else, or there is none. */
static tri_id gather_behind(const tiler *t, tri_id value)
{
    const tri_graph *graph = t->graph;
    const tri_node *node = t->producer[value] == TRI_NONE ? NULL : &t->old[t->producer[value]];
    if (!t->backward || !node || node->op != TRI_OP_UNSHARD || node->first_only ||
        node->phase != TRI_PHASE_FORWARD)
        return TRI_NONE;
    for (size_t n = t->producer[value]; n < t->num_old; n++)
        if (gathers_behind(&t->old[n]) &&
            tri_node_chunk(graph, &t->old[n]) == tri_node_chunk(graph, node) &&
            strcmp(graph->values[t->old[n].out[0]].name, graph->values[value].name) == 0)
            return (tri_id)n;
    return TRI_NONE;
}

/* Gathers that stand after the last node inside, since nothing of the backward read it so early (a
 * bias): with their neighbours, which travel in the same message. */
static void find_ahead(tiler *t, size_t last)
{
    for (size_t n = 0; n <= last; n++)
        for (int j = 0; t->inside[n] && j < t->old[n].num_in; j++) {
            tri_id value = t->old[n].in[j];
            tri_id gather = value == TRI_NONE ? TRI_NONE : gather_behind(t, value);
            if (gather == TRI_NONE || gather < last)
                continue;
            size_t first = gather, end = gather;
            while (first > last + 1 && gathers_behind(&t->old[first - 1]))
                first--;
            while (end + 1 < t->num_old && gathers_behind(&t->old[end + 1]))
                end++;
            for (size_t i = first; i <= end; i++)
                t->ahead[i] = true;
        }
}

static tri_id operand(tiler *t, const tri_node *reader, tri_id value)
{
    if (value == TRI_NONE)
        return TRI_NONE;
    if (tri_dim_named(&t->graph->values[value].shape, t->how->along) < 0 &&
        !made_inside(t, value)) {
        tri_id gather = gather_behind(t, value);
        return gather == TRI_NONE ? value : t->old[gather].out[0];
    }
    if (t->tile[value] == TRI_NONE)
        t->tile[value] = slice(t, value, reader);
    return t->tile[value];
}

/* A tile for readers outside, in its place among the others. */
static void put_together(tiler *t, tri_id old, const tri_node *maker)
{
    const tri_shape *whole = &t->graph->values[old].shape;
    tri_node node = {.op = TRI_OP_UNSLICE,
                     .attr = {.message = {.cut = cut_of(t, whole)}},
                     .num_in = 1,
                     .num_out = 1,
                     .in = {t->tile[old]},
                     .prev = {TRI_NONE},
                     .phase = maker->phase,
                     .layer = maker->layer};
    go_on(t, &node, 0, old);
    append(t, &node);
}

/* An output that is cut: a value for each tile, of which the last is the old one. */
static void make_tile(tiler *t, tri_node *node, int k, tri_id old)
{
    tri_graph *graph = t->graph;
    tri_value value = graph->values[old];
    tri_cut cut = cut_of(t, &value.shape);
    bool keeps = t->uses[old] == 0 && t->part == t->how->num_tiles - 1;
    value.name = tri_arena_printf(&graph->arena, "%s.%d", value.name, (int)t->part);
    become_tile(t, &value, cut);
    node->out[k] = keeps ? old : tri_graph_add_value(graph, value);
    if (keeps)
        graph->values[old] = value;
    t->tile[old] = node->out[k];
}

static void put_node(tiler *t, const tri_node *old)
{
    tri_node node = *old;
    tri_spot out[TRI_MAX_OUT];
    if (t->graph->arena.failed || t->graph->status != TR_OK || ask(t, old, out, NULL) != TR_OK)
        return;
    for (int j = 0; j < node.num_in; j++)
        node.in[j] = operand(t, old, node.in[j]);
    for (int k = 0; k < node.num_out; k++) {
        bool term = out[k].kind == TRI_SPOT_TERMS &&
                    t->graph->values[old->out[k]].state == TRI_NONE && t->uses[old->out[k]] == 0;
        if (term) /* added to its accumulator by the next node */
            t->tile[old->out[k]] = node.out[k] = value_of(t, old->out[k]);
        else if (out[k].kind == TRI_SPOT_TERMS)
            go_on(t, &node, k, old->out[k]);
        else
            make_tile(t, &node, k, old->out[k]);
    }
    append(t, &node);
    for (int k = 0; k < node.num_out; k++)
        if (out[k].kind == TRI_SPOT_CUT && t->uses[old->out[k]] > 0)
            put_together(t, old->out[k], old);
}

static void put_tiles(tiler *t)
{
    for (t->part = 0; t->part < t->how->num_tiles; t->part++) {
        for (size_t v = 0; v < t->num_values; v++)
            t->tile[v] = TRI_NONE;
        for (size_t n = 0; n < t->num_old; n++)
            if (t->inside[n])
                put_node(t, &t->old[n]);
    }
}

/* With several updates in a step the sums of the backward begin anew after each, but a statistic is
 * of the whole step. So the forward starts it, with nothing, and the tiles add. */
static void start_statistics(tiler *t, const tri_node *node)
{
    tri_graph *graph = t->graph;
    bool moves = graph->asynchronous && t->backward && node->phase == TRI_PHASE_FORWARD;
    for (int k = 0; moves && k < node->num_out; k++) {
        const tri_value *value = &graph->values[node->out[k]];
        if (value->state == TRI_NONE || node->write[k] != TRI_WRITE_START)
            continue;
        tri_node zero = {.op = TRI_OP_SUM_SQUARES,
                         .num_in = 1,
                         .num_out = 1,
                         .in = {TRI_NONE},
                         .out = {tri_graph_add_value(graph, *value)},
                         .write = {TRI_WRITE_START},
                         .prev = {node->prev[k]},
                         .phase = node->phase,
                         .layer = node->layer};
        if (zero.out[0] != TRI_NONE)
            tri_graph_append(graph, &zero);
        t->sum[node->out[k]] = zero.out[0];
    }
}

/* The tiles stand where the last of the nodes inside stood. */
static void put_back(tiler *t)
{
    size_t last = 0;
    for (size_t n = 0; n < t->num_old; n++)
        last = t->inside[n] ? n : last;
    find_ahead(t, last);
    for (size_t n = 0; n < t->num_old; n++) {
        if (t->inside[n])
            start_statistics(t, &t->old[n]);
        else if (!t->ahead[n] && (n > last || !t->behind[n]))
            tri_graph_append(t->graph, &t->old[n]);
        if (n != last)
            continue;
        for (size_t m = last + 1; m < t->num_old; m++)
            if (t->ahead[m])
                tri_graph_append(t->graph, &t->old[m]);
        put_tiles(t);
        for (size_t m = 0; m < last; m++)
            if (t->behind[m] && !t->inside[m])
                append(t, &t->old[m]);
    }
}

tr_status tri_tile(tri_graph *graph, const tri_tiling *how, tr_error *err)
{
    size_t num = graph->num_values, nodes = graph->num_nodes;
    tiler t = {.graph = graph, .how = how, .num_values = num};
    tri_id *ids = malloc((3 * num + 1) * sizeof *ids);
    bool *marks = calloc(3 * num + 3 * nodes + 1, sizeof *marks);
    t.uses = calloc(num + 1, sizeof *t.uses);
    t.old = tri_graph_take_nodes(graph, &t.num_old);
    tr_status status = ids && marks && t.uses ? TR_OK
                                              : tri_fail(err, TR_ERROR_RUNTIME,
                                                         "no memory to put the graph into tiles");
    if (status == TR_OK) {
        t.producer = ids;
        t.tile = ids + num;
        t.sum = ids + 2 * num;
        t.from = marks;
        t.to = marks + num;
        t.made_behind = marks + 2 * num;
        t.inside = marks + 3 * num;
        t.behind = t.inside + nodes;
        t.ahead = t.behind + nodes;
        for (size_t v = 0; v < num; v++) {
            t.producer[v] = graph->values[v].producer;
            t.sum[v] = TRI_NONE;
        }
        find_inside(&t);
        find_behind(&t);
        status = check(&t, err);
    }
    if (status == TR_OK)
        put_back(&t);
    free(t.old);
    free(ids);
    free(marks);
    free(t.uses);
    return status == TR_OK ? tri_graph_status(graph, err) : status;
}
