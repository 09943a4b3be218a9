#include "graph/emit_experts.h"

#include <string.h>

#include "base/rng.h"

static tri_id weight_of(tri_graph *graph, const char *name, const char *suffix)
{
    const char *full = tri_arena_dotted(&graph->arena, tri_graph_name(graph, name), suffix);
    tri_id param = full ? tri_param_find(graph->params, full) : TRI_NONE;
    if (param == TRI_NONE) {
        tri_graph_fail(graph, "the model has no parameter %s", full);
        return TRI_NONE;
    }
    return tri_graph_weight(graph, param);
}

/* x in f32, each element times a factor of its own. */
static tri_id jitter_of(tri_graph *graph, const char *full, tri_id x, float p,
                        const tri_batch_inputs *in)
{
    if (p <= 0 || x == TRI_NONE)
        return x;
    if (graph->values[x].dtype != TRI_F32) {
        const char *name = tri_arena_printf(&graph->arena, "%s.f32", graph->values[x].name);
        const tri_attr wide = {.cast = {.dtype = TRI_F32}};
        x = tri_node_out(graph, tri_graph_emit(graph, TRI_OP_CAST, name, &wide, &x, 1, 1), 0);
    }
    const char *name = tri_arena_printf(&graph->arena, "%s.jitter", full);
    const tri_attr attr = {.dropout = {.p = p, .stream = tri_stream("jitter", full)}};
    tri_id operands[] = {x, in->rows, in->step, in->places};
    int num = in->places == TRI_NONE ? 3 : 4;
    return tri_node_out(graph, tri_graph_emit(graph, TRI_OP_JITTER, name, &attr, operands, num, 1),
                        0);
}

tri_routing tri_route(tri_graph *graph, const char *name, tri_id x, const tri_route_attr *how,
                      float jitter, const tri_batch_inputs *in)
{
    const char *full = tri_graph_name(graph, name);
    const char *bias = tri_arena_printf(&graph->arena, "%s.e_score_correction_bias", full);
    tri_routing r = {.logits = tri_linear(graph, name, jitter_of(graph, full, x, jitter, in)),
                     .weights = TRI_NONE,
                     .choice = TRI_NONE,
                     .kept = TRI_NONE,
                     .bias = bias ? tri_param_find(graph->params, bias) : TRI_NONE};
    tri_id from[] = {r.logits, r.bias == TRI_NONE ? TRI_NONE : tri_graph_param(graph, r.bias)};
    tri_attr attr = {.route = *how};
    tri_id node =
        tri_graph_emit(graph, TRI_OP_ROUTE, full, &attr, from, r.bias == TRI_NONE ? 1 : 2, 2);
    r.weights = tri_node_out(graph, node, 0);
    r.choice = r.kept = tri_node_out(graph, node, 1);
    return r;
}

/* Shapes are those of the whole model here, so a row of the batch is whole. */
void tri_drop_rows(tri_graph *graph, const char *name, tri_routing *routing, float capacity,
                   const tri_batch_inputs *in)
{
    if (routing->choice == TRI_NONE || capacity <= 0)
        return;
    const tri_shape *logits = &graph->values[routing->logits].shape;
    const tri_shape *choice = &graph->values[routing->choice].shape;
    const int64_t experts = logits->dim[2].size, rows = choice->dim[1].size * choice->dim[2].size;
    double share = (double)capacity * (double)rows / (double)experts;
    int64_t limit = (int64_t)share + ((double)(int64_t)share < share);
    const tri_attr attr = {
        .route = {.experts = (int32_t)experts, .limit = limit < rows ? limit : rows}};
    tri_id from[] = {routing->choice, in->places};
    tri_id node = tri_graph_emit(graph, TRI_OP_DROP_ROWS, tri_graph_name(graph, name), &attr, from,
                                 in->places == TRI_NONE ? 1 : 2, 1);
    routing->kept = tri_node_out(graph, node, 0);
}

/* Output k of a node joins into a statistic, which other nodes may feed as well. */
static void feed(tri_graph *graph, tri_id node, int k, size_t row)
{
    uint8_t stat = tri_graph_stat(graph, row);
    if (node == TRI_NONE || graph->status != TR_OK || graph->arena.failed)
        return;
    tri_id state = graph->stats[stat].state;
    bool first = graph->values[graph->states[state].latest].producer == TRI_NONE;
    tri_graph_write_state(graph, node, k, state, first ? TRI_WRITE_START : TRI_WRITE_ADD);
}

/* Rows at their experts, and back: where experts may be on other ranks. */
static tri_id move(tri_graph *graph, tri_op op, tri_id rows, tri_id expert)
{
    if (!graph->experts_apart || rows == TRI_NONE)
        return rows;
    const char *name = tri_arena_dotted(&graph->arena, graph->values[rows].name,
                                        op == TRI_OP_DISPATCH ? "there" : "back");
    return tri_node_out(graph,
                        tri_graph_emit(graph, op, name, NULL, (tri_id[]){rows, expert}, 2, 1), 0);
}

static void plan_rooms(tri_graph *graph, const char *full, const tri_attr *attr, tri_id expert)
{
    if (!graph->experts_apart)
        return;
    const char *name = tri_arena_printf(&graph->arena, "%s.rooms", full);
    feed(graph, tri_graph_emit(graph, TRI_OP_ROOMS, name, attr, &expert, 1, 1), 0, TRI_STAT_LOST);
}

/* Rows that an index of one term each finds; back leads the other way. */
static tri_id gather(tri_graph *graph, const char *name, tri_id x, uint8_t lead, bool each,
                     tri_id index, tri_id back)
{
    tri_attr attr = {.gather = {.lead = lead, .each = each}};
    return tri_node_out(
        graph,
        tri_graph_emit(graph, TRI_OP_GATHER_ROWS, name, &attr, (tri_id[]){x, index, back}, 3, 1),
        0);
}

static tri_id grouped(tri_graph *graph, const char *name, const char *part, tri_id rows,
                      tri_id expert)
{
    const char *full = tri_arena_dotted(&graph->arena, name, part);
    tri_id in[] = {rows, weight_of(graph, full, "weight"), expert};
    return tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_GROUPED, tri_graph_name(graph, full), NULL, in, 3, 1),
        0);
}

tri_id tri_experts(tri_graph *graph, const char *name, tri_id x, const tri_routing *routing)
{
    const char *full = tri_graph_name(graph, name);
    if (routing->logits == TRI_NONE || x == TRI_NONE)
        return TRI_NONE;
    const tri_shape *logits = &graph->values[routing->logits].shape;
    tri_attr attr = {.route = {.experts = (int32_t)logits->dim[logits->rank - 1].size}};
    tri_id sort = tri_graph_emit(graph, TRI_OP_SORT_ROWS, full, &attr, &routing->kept, 1, 4);
    tri_id place = tri_node_out(graph, sort, 0), row = tri_node_out(graph, sort, 1);
    tri_id slot = tri_node_out(graph, sort, 2), expert = tri_node_out(graph, sort, 3);
    const char *rows = tri_arena_printf(&graph->arena, "%s.rows", full);
    const char *weights = tri_arena_printf(&graph->arena, "%s.weights", full);
    tri_id xs = gather(graph, rows, x, 2, true, row, place);
    tri_id ws = gather(graph, weights, routing->weights, 3, true, slot, place);
    plan_rooms(graph, full, &attr, expert);
    tri_id there = move(graph, TRI_OP_DISPATCH, expert, expert);
    xs = move(graph, TRI_OP_DISPATCH, xs, expert);
    ws = move(graph, TRI_OP_DISPATCH, ws, expert);
    tri_id gate = grouped(graph, name, "gate_proj", xs, there);
    tri_id up = grouped(graph, name, "up_proj", xs, there);
    const char *act = tri_arena_printf(&graph->arena, "%s.act", full);
    tri_id h = tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_SWIGLU_ROWS, act, NULL, (tri_id[]){gate, up, ws}, 3, 1),
        0);
    tri_id ys = grouped(graph, name, "down_proj", h, there);
    ys = move(graph, TRI_OP_COLLECT, ys, expert);
    return gather(graph, full, ys, 3, false, place, row);
}

tri_id tri_gate_rows(tri_graph *graph, const char *name, tri_id x, tri_id gate)
{
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_GATE_ROWS, tri_graph_name(graph, name), NULL,
                                       (tri_id[]){x, gate}, 2, 1),
                        0);
}

static tri_id input_named(const tri_graph *graph, const char *name)
{
    for (size_t v = 0; v < graph->num_values; v++)
        if (graph->values[v].kind == TRI_VALUE_INPUT && strcmp(graph->values[v].name, name) == 0)
            return (tri_id)v;
    return TRI_NONE;
}

void tri_count_dropped(tri_graph *graph, const char *name, const tri_routing *routing, float alpha)
{
    tri_id targets = input_named(graph, "targets");
    if (targets == TRI_NONE || routing->kept == routing->choice)
        return;
    const tri_attr attr = {.route = {.alpha = alpha}};
    tri_id in[] = {routing->kept, targets};
    feed(graph,
         tri_graph_emit(graph, TRI_OP_COUNT_DROPPED, tri_graph_name(graph, name), &attr, in, 2, 1),
         0, TRI_STAT_DROPPED);
}

/* The largest bias of any router. */
static void note_bias(tri_graph *graph, const char *name, tri_id bias)
{
    const char *full = tri_arena_printf(&graph->arena, "%s.bias", tri_graph_name(graph, name));
    tri_id param = tri_graph_param(graph, bias);
    feed(graph, tri_graph_emit(graph, TRI_OP_LARGEST, full, NULL, &param, 1, 1), 0, TRI_STAT_BIAS);
}

/* The load of each expert, of all micro-batches and ranks: for the host, and for the bias. */
static void note_load(tri_graph *graph, const char *name, tri_id sums, tri_id bias, float rate)
{
    const char *full = tri_arena_printf(&graph->arena, "%s.load", tri_graph_name(graph, name));
    tri_id node = tri_graph_emit(graph, TRI_OP_ROUTE_LOAD, full, NULL, &sums, 1, 1);
    if (node == TRI_NONE)
        return;
    tri_shape shape = graph->values[graph->nodes[node].out[0]].shape;
    tri_id state = tri_graph_state(graph, TRI_STATE_STAT, full, TRI_F32, shape, TRI_NONE);
    if (state == TRI_NONE)
        return;
    tri_graph_write_state(graph, node, 0, state, TRI_WRITE_START);
    if (bias != TRI_NONE)
        tri_graph_steer(graph, bias, state, rate);
    tri_mark_output(graph, tri_node_out(graph, node, 0));
}

tri_id tri_route_sums(tri_graph *graph, const char *name, const tri_routing *routing,
                      const tri_route_attr *how, float mean, float rate)
{
    tri_id targets = input_named(graph, "targets");
    if (targets == TRI_NONE || routing->logits == TRI_NONE)
        return TRI_NONE;
    const char *full = tri_graph_name(graph, name);
    tri_attr attr = {.route = *how};
    attr.route.alpha = mean;
    tri_id in[] = {routing->logits, routing->choice, targets};
    tri_id node = tri_graph_emit(graph, TRI_OP_ROUTE_SUMS, full, &attr, in, 3, 3);
    if (node == TRI_NONE)
        return TRI_NONE;
    feed(graph, node, 1, TRI_STAT_ROUTER_Z);
    feed(graph, node, 2, TRI_STAT_ENTROPY);
    tri_id sums = tri_node_out(graph, node, 0);
    note_load(graph, name, sums, routing->bias, rate);
    if (routing->bias != TRI_NONE)
        note_bias(graph, name, routing->bias);
    return sums;
}

void tri_balance(tri_graph *graph, const char *name, tri_id sums, float alpha)
{
    tri_attr attr = {.route = {.alpha = alpha}};
    if (sums == TRI_NONE)
        return;
    tri_id node =
        tri_graph_emit(graph, TRI_OP_BALANCE, tri_graph_name(graph, name), &attr, &sums, 1, 1);
    feed(graph, node, 0, TRI_STAT_BALANCE);
}

static void become_loss(tri_graph *graph, const char *name, size_t row, float weight)
{
    uint8_t stat = tri_graph_stat(graph, row);
    tri_graph_show(graph, stat);
    if (weight > 0 && graph->num_losses > 0)
        tri_graph_add_loss(graph, &(tri_loss){name, stat, graph->losses[0].count, weight});
}

/* Shows a statistic that some router feeds. */
static void show_fed(tri_graph *graph, size_t row)
{
    if (tri_graph_stat_value(graph, row) != TRI_NONE)
        tri_graph_show(graph, tri_graph_stat(graph, row));
}

void tri_router_losses(tri_graph *graph, float balance, float z)
{
    if (graph->num_losses == 0 || graph->status != TR_OK)
        return;
    if (graph->num_shown == 0) /* beside another, the main loss is shown by its name */
        tri_graph_show(graph, graph->losses[0].sum);
    become_loss(graph, "balance_loss", TRI_STAT_BALANCE, balance);
    become_loss(graph, "router_z", TRI_STAT_ROUTER_Z, z);
    tri_graph_show(graph, tri_graph_stat(graph, TRI_STAT_ENTROPY));
    show_fed(graph, TRI_STAT_LOST);
    show_fed(graph, TRI_STAT_DROPPED);
    show_fed(graph, TRI_STAT_BIAS);
}
