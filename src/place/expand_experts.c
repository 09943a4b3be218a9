/* Experts on several ranks (layout.ep): rows travel to the ranks of their experts, and results
 * back.
 *
 * A rank's rows are sorted by expert, so those of one rank lie together. They are put into the room
 * of that pair, an exchange of varying counts takes them there, and what has come is sorted by
 * expert again, with what came from nobody at the end. Between dispatch and collect values are such
 * rows: [ranks, room, ..] instead of [B, T, C, ..]. Gradients take the same ways in the other
 * direction, by the same plan.
 *
 * All rows of a layer that are dispatched have one plan, named by the list of experts before it. */
#include "place/expand_experts.h"

#include <stdlib.h>
#include <string.h>

#include "graph/passes.h"
#include "mesh/mesh.h"

typedef struct rooms_plan {
    tri_id expert; /* the list that it is for */
    tri_id from, to, fitted, got;
    tri_id slot, place, there; /* of what has come: its order, the way back, and its experts */
} rooms_plan;

typedef struct expander {
    tri_graph *graph;
    double room;
    int32_t ranks;
    uint8_t axis;
    tri_id *now;    /* of each value: what is read instead */
    bool *at_rooms; /* of each value: it is rows at their experts */
    size_t num_values;
    int64_t rows; /* of this rank's tokens: those that it has at its experts when loads are equal */
    rooms_plan *plans;
    size_t num_plans, plans_capacity;
} expander;

static bool goes_on(const tri_graph *graph)
{
    return graph->status == TR_OK && !graph->arena.failed;
}

static tri_shape in_rooms(const tri_shape *rows, int lead, int64_t ranks, int64_t room)
{
    tri_shape shape = {.rank = 2, .dim = {{TRI_DIM_N, ranks}, {TRI_DIM_N, room}}};
    for (int d = lead; d < rows->rank; d++)
        shape.dim[shape.rank++] = rows->dim[d];
    return shape;
}

static tri_id emit(expander *x, tri_op op, const char *like, const char *what, const tri_attr *attr,
                   const tri_id *in, int num_in, int num_out)
{
    const char *name = tri_arena_dotted(&x->graph->arena, like, what);
    return tri_graph_emit(x->graph, op, name, attr, in, num_in, num_out);
}

static tri_id made(const expander *x, tri_id node, int k)
{
    return node == TRI_NONE ? TRI_NONE : x->graph->nodes[node].out[k];
}

/* Rows that a pair of ranks has room for: as many for all pairs, though ranks may have different
 * numbers of tokens. The first has the most. */
static int64_t room_of(const expander *x, tri_id expert)
{
    const int32_t first[TRI_MAX_FACTORS] = {0};
    const tri_value *value = &x->graph->values[expert];
    int64_t rows = 1, begin;
    for (int d = 0; d < value->whole.rank; d++)
        rows *= tri_placement_piece(&x->graph->grid, &value->at.dim[d], value->whole.dim[d], first,
                                    &begin);
    double wanted = x->room > 0 ? x->room * (double)rows / x->ranks : (double)rows;
    int64_t room = (int64_t)wanted + ((double)(int64_t)wanted < wanted);
    return room < 1 ? 1 : room < rows ? room : rows;
}

/* fit_rooms makes the version of the statistic that `rooms` was to make. */
static tri_id fit(expander *x, const tri_node *rooms, const char *like, tri_id counts, int64_t room)
{
    tri_graph *graph = x->graph;
    if (!goes_on(graph))
        return TRI_NONE;
    tri_value fitted = graph->values[counts];
    fitted.name = tri_arena_printf(&graph->arena, "%s.sent", like);
    tri_node node = {.op = TRI_OP_FIT_ROOMS,
                     .attr = {.message = {.room = {.rows = room}}},
                     .num_in = 1,
                     .num_out = 2,
                     .in = {counts},
                     .out = {tri_graph_add_value(graph, fitted), rooms->out[0]},
                     .write = {TRI_WRITE_NEW, rooms->write[0]},
                     .prev = {TRI_NONE, rooms->prev[0]},
                     .phase = rooms->phase,
                     .layer = rooms->layer};
    if (!goes_on(graph))
        return TRI_NONE;
    tri_graph_append(graph, &node);
    return node.out[0];
}

static void make_plan(expander *x, const tri_node *rooms)
{
    tri_graph *graph = x->graph;
    rooms_plan *plans = tri_array_grow(x->plans, x->num_plans, &x->plans_capacity, sizeof *plans);
    if (!plans) {
        tri_graph_fail(graph, "no memory to plan the ways of rows");
        return;
    }
    x->plans = plans;
    rooms_plan p = {.expert = rooms->in[0]};
    const char *like = graph->values[p.expert].name;
    const int32_t experts = rooms->attr.route.experts;
    const int64_t room = room_of(x, p.expert);
    x->rows = tri_shape_count(&graph->values[p.expert].shape);
    const tri_cut even = {.dim = TRI_NO_DIM,
                          .parts = x->ranks,
                          .part = tri_grid_place(&graph->grid, graph->grid.axis[x->axis].factors),
                          .size = x->ranks,
                          .unit = 1};
    const tri_attr pack = {.route = {.experts = experts, .ranks = x->ranks, .room = room}};
    const tri_attr equal = {.message = {.axis = x->axis, .cut = even, .scatter = even}};
    const tri_attr rows = {.message = {.axis = x->axis}};
    const tri_attr sort = {.route = {.experts = experts / x->ranks}};
    tri_id packed = emit(x, TRI_OP_PACK_ROOMS, like, "rooms", &pack, &p.expert, 1, 4);
    p.from = made(x, packed, 1);
    p.to = made(x, packed, 2);
    p.fitted = fit(x, rooms, like, made(x, packed, 0), room);
    p.got = made(x, emit(x, TRI_OP_ALL_TO_ALL, like, "got", &equal, &p.fitted, 1, 1), 0);
    tri_id sent[] = {made(x, packed, 3), p.fitted, p.got};
    tri_id came[] = {made(x, emit(x, TRI_OP_ALL_TO_ALL_ROWS, like, "came", &rows, sent, 3, 1), 0),
                     p.got};
    tri_id ids = made(x, emit(x, TRI_OP_MASK_ROWS, like, "ids", NULL, came, 2, 1), 0);
    tri_id sorted = emit(x, TRI_OP_SORT_ROWS, like, "there", &sort, &ids, 1, 4);
    p.place = made(x, sorted, 0);
    p.slot = made(x, sorted, 2);
    p.there = made(x, sorted, 3);
    x->plans[x->num_plans++] = p;
}

static const rooms_plan *plan_of(const expander *x, tri_id expert)
{
    for (size_t i = 0; i < x->num_plans; i++)
        if (x->plans[i].expert == expert)
            return &x->plans[i];
    tri_graph_fail(x->graph, "rows of %s have no plan", x->graph->values[expert].name);
    return NULL;
}

static tri_id gather(expander *x, const char *like, const char *what, tri_id rows, uint8_t lead,
                     tri_id index)
{
    const tri_attr attr = {.gather = {.lead = lead, .each = true}};
    return made(x, emit(x, TRI_OP_GATHER_ROWS, like, what, &attr, (tri_id[]){rows, index}, 2, 1),
                0);
}

/* Rows into rooms, to the other ranks, and into the order that they have there. `back`: the way of
 * results. */
static tri_id send(expander *x, const rooms_plan *p, const char *like, tri_id rows, bool back)
{
    const tri_attr attr = {.message = {.axis = x->axis}};
    uint8_t lead = (uint8_t)x->graph->values[back ? p->there : p->expert].shape.rank;
    tri_id rooms = gather(x, like, "sent", rows, lead, back ? p->place : p->from);
    tri_id in[] = {rooms, back ? p->got : p->fitted, back ? p->fitted : p->got};
    tri_id came = made(x, emit(x, TRI_OP_ALL_TO_ALL_ROWS, like, "came", &attr, in, 3, 1), 0);
    return gather(x, like, back ? "back" : "there", came, 2, back ? p->to : p->slot);
}

static void replace_move(expander *x, const tri_node *node)
{
    const rooms_plan *p = plan_of(x, node->in[1]);
    const char *like = x->graph->values[node->out[0]].name;
    bool back = node->op == TRI_OP_COLLECT;
    if (!p || !goes_on(x->graph))
        return;
    x->now[node->out[0]] =
        node->in[0] == p->expert ? p->there : send(x, p, like, node->in[0], back);
    x->at_rooms[node->out[0]] = !back;
}

/* What is made of rows at their experts is such rows, where it is rows at all. */
static void keep(expander *x, const tri_node *node, bool of_rooms, int64_t room)
{
    tri_graph *graph = x->graph;
    for (int k = 0; k < node->num_out && of_rooms; k++) {
        tri_value *value = &graph->values[node->out[k]];
        if (value->shape.rank < 3 || value->shape.dim[2].name != TRI_DIM_C)
            continue;
        value->shape = in_rooms(&value->shape, 3, x->ranks, room);
        value->at = (tri_placement){0};
        value->whole = value->shape;
        x->at_rooms[node->out[k]] = true;
    }
    tri_node own = *node;
    if (of_rooms && (node->op == TRI_OP_GROUPED || node->op == TRI_OP_GROUPED_GRAD))
        own.attr.grouped.rows = x->rows;
    tri_graph_append(graph, &own);
}

static void expand_node(expander *x, tri_node node)
{
    bool of_rooms = false;
    int64_t room = 0;
    for (int j = 0; j < node.num_in; j++) {
        if (node.in[j] == TRI_NONE || node.in[j] >= x->num_values)
            continue;
        bool here = x->at_rooms[node.in[j]];
        node.in[j] = x->now[node.in[j]];
        if (here && !of_rooms && node.in[j] != TRI_NONE)
            room = x->graph->values[node.in[j]].shape.dim[1].size;
        of_rooms |= here;
    }
    x->graph->phase = node.phase;
    x->graph->layer = node.layer;
    x->graph->ends_chain = node.ends_chain;
    if (node.op == TRI_OP_ROOMS)
        make_plan(x, &node);
    else if (node.op == TRI_OP_DISPATCH || node.op == TRI_OP_COLLECT)
        replace_move(x, &node);
    else
        keep(x, &node, of_rooms, room);
}

static bool any_rooms(const tri_graph *graph)
{
    for (size_t n = 0; n < graph->num_nodes; n++)
        if (graph->nodes[n].op == TRI_OP_ROOMS)
            return true;
    return false;
}

tr_status tri_expand_experts(tri_graph *graph, double room, tr_error *err)
{
    if (!any_rooms(graph))
        return TR_OK;
    const tri_factor_set ep = graph->grid.axis[TRI_AXIS_EP].factors;
    expander x = {.graph = graph,
                  .room = room,
                  .ranks = tri_grid_size(&graph->grid, ep),
                  .axis = TRI_AXIS_EP,
                  .num_values = graph->num_values};
    x.now = malloc((x.num_values + 1) * sizeof *x.now);
    x.at_rooms = calloc(x.num_values + 1, sizeof *x.at_rooms);
    if (!x.now || !x.at_rooms) {
        free(x.now);
        free(x.at_rooms);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for experts on several ranks");
    }
    for (size_t v = 0; v < x.num_values; v++)
        x.now[v] = (tri_id)v;
    size_t num;
    tri_node *old = tri_graph_take_nodes(graph, &num);
    for (size_t n = 0; n < num && goes_on(graph); n++)
        expand_node(&x, old[n]);
    free(old);
    free(x.now);
    free(x.at_rooms);
    free(x.plans);
    return tri_graph_status(graph, err);
}
