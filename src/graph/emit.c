#include "graph/emit.h"

#include <string.h>

#include "base/rng.h"
#include "graph/op_table.h"

tri_id tri_node_out(const tri_graph *graph, tri_id node, int k)
{
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[k];
}

/* The parameter "scope.name.suffix", or TRI_NONE when the table has none. */
static tri_id find_param(tri_graph *graph, const char *name, const char *suffix)
{
    const char *full = tri_arena_dotted(&graph->arena, tri_graph_name(graph, name), suffix);
    return tri_param_find(graph->params, full);
}

static tri_id need_param(tri_graph *graph, const char *name, const char *suffix)
{
    tri_id param = find_param(graph, name, suffix);
    if (param != TRI_NONE)
        return tri_graph_weight(graph, param);
    tri_graph_fail(graph, "the model has no parameter %s.%s", tri_graph_name(graph, name), suffix);
    return TRI_NONE;
}

/* y = x W^T, with W's trailing dims (after its split) contracted. */
static tri_id product(tri_graph *graph, const char *full_name, tri_id x, tri_id param)
{
    tri_id weight = tri_graph_weight(graph, param);
    if (x == TRI_NONE || weight == TRI_NONE)
        return TRI_NONE;
    tri_dtype dtype = graph->values[weight].dtype;
    if (graph->values[x].dtype != dtype) { /* an input of the step */
        const char *name =
            tri_arena_dotted(&graph->arena, graph->values[x].name, tri_dtype_name(dtype));
        x = tri_node_out(graph,
                         tri_graph_emit(graph, TRI_OP_CAST, name,
                                        &(tri_attr){.cast = {.dtype = dtype}}, &x, 1, 1),
                         0);
        if (x == TRI_NONE)
            return TRI_NONE;
    }
    const tri_param *p = &graph->params->items[param];
    int contracted = p->shape.rank - p->split;
    tri_attr attr = {.matmul = {.alpha = 1,
                                .split_a = (uint8_t)(graph->values[x].shape.rank - contracted),
                                .split_b = p->split,
                                .trans_b = true}};
    return tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_MATMUL, full_name, &attr, (tri_id[]){x, weight}, 2, 1),
        0);
}

tri_id tri_linear(tri_graph *graph, const char *name, tri_id x)
{
    return tri_linear_named(graph, name, name, x);
}

tri_id tri_linear_named(tri_graph *graph, const char *name, const char *params, tri_id x)
{
    tri_id weight = find_param(graph, params, "weight"), bias = find_param(graph, params, "bias");
    const char *full = tri_graph_name(graph, name);
    if (weight == TRI_NONE) {
        tri_graph_fail(graph, "the model has no parameter %s.weight",
                       tri_graph_name(graph, params));
        return TRI_NONE;
    }
    if (bias == TRI_NONE)
        return product(graph, full, x, weight);
    tri_id y = product(graph, tri_arena_printf(&graph->arena, "%s.product", full), x, weight);
    tri_id b = tri_graph_weight(graph, bias);
    return tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_BIAS_ADD, full, NULL, (tri_id[]){y, b}, 2, 1), 0);
}

tri_id tri_bias(tri_graph *graph, const char *name, const char *bias, tri_id x)
{
    tri_id param = tri_param_find(graph->params, bias);
    if (param == TRI_NONE) {
        tri_graph_fail(graph, "the model has no parameter %s", bias);
        return TRI_NONE;
    }
    tri_id b = tri_graph_weight(graph, param);
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_BIAS_ADD, tri_graph_name(graph, name), NULL,
                                       (tri_id[]){x, b}, 2, 1),
                        0);
}

tri_id tri_linear_tied(tri_graph *graph, const char *name, const char *weight, tri_id x)
{
    tri_id param = tri_param_find(graph->params, weight);
    if (param == TRI_NONE) {
        tri_graph_fail(graph, "the model has no parameter %s", weight);
        return TRI_NONE;
    }
    return product(graph, tri_graph_name(graph, name), x, param);
}

tri_id tri_embed(tri_graph *graph, const char *name, tri_id ids)
{
    tri_id in[] = {need_param(graph, name, "weight"), ids};
    return tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_EMBED, tri_graph_name(graph, name), NULL, in, 2, 1), 0);
}

tri_id tri_add(tri_graph *graph, const char *name, tri_id a, tri_id b)
{
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_ADD, tri_graph_name(graph, name), NULL,
                                       (tri_id[]){a, b}, 2, 1),
                        0);
}

tri_id tri_activation(tri_graph *graph, const char *name, tri_act act, tri_id x)
{
    tri_attr attr = {.act = {.kind = act}};
    return tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_ACT, tri_graph_name(graph, name), &attr, &x, 1, 1), 0);
}

tri_id tri_dropout(tri_graph *graph, const char *name, tri_id x, float p,
                   const tri_batch_inputs *in)
{
    if (p <= 0)
        return x;
    const char *full = tri_graph_name(graph, name);
    tri_attr attr = {.dropout = {.p = p, .stream = tri_stream("drop", full)}};
    const tri_shape *shape = x == TRI_NONE ? NULL : &graph->values[x].shape;
    bool tokens = shape && shape->rank >= 3 && shape->dim[1].name == TRI_DIM_T;
    tri_id operands[] = {x, in->rows, in->step, in->places};
    int num = tokens && in->places != TRI_NONE ? 4 : 3;
    return tri_node_out(graph, tri_graph_emit(graph, TRI_OP_DROPOUT, full, &attr, operands, num, 1),
                        0);
}

tri_id tri_residual_layernorm(tri_graph *graph, const char *name, tri_id *stream, tri_id branch,
                              float eps)
{
    tri_attr attr = {.norm = {.eps = eps}};
    tri_id gain = need_param(graph, name, "weight"), shift = need_param(graph, name, "bias");
    const char *full = tri_graph_name(graph, name);
    if (branch == TRI_NONE)
        return tri_node_out(graph,
                            tri_graph_emit(graph, TRI_OP_LAYERNORM, full, &attr,
                                           (tri_id[]){*stream, gain, shift}, 3, 2),
                            0);
    tri_id node = tri_graph_emit(graph, TRI_OP_ADD_LAYERNORM, full, &attr,
                                 (tri_id[]){*stream, branch, gain, shift}, 4, 3);
    *stream = tri_node_out(graph, node, 0);
    return tri_node_out(graph, node, 1);
}

tri_id tri_rmsnorm(tri_graph *graph, const char *name, tri_id x, float eps)
{
    return tri_residual_rmsnorm(graph, name, &x, TRI_NONE, eps);
}

tri_id tri_residual_rmsnorm(tri_graph *graph, const char *name, tri_id *stream, tri_id branch,
                            float eps)
{
    tri_attr attr = {.norm = {.eps = eps}};
    tri_id gain = need_param(graph, name, "weight");
    const char *full = tri_graph_name(graph, name);
    if (gain != TRI_NONE)
        attr.norm.dims = (uint8_t)graph->values[gain].shape.rank;
    if (branch == TRI_NONE)
        return tri_node_out(
            graph,
            tri_graph_emit(graph, TRI_OP_RMSNORM, full, &attr, (tri_id[]){*stream, gain}, 2, 2), 0);
    tri_id node = tri_graph_emit(graph, TRI_OP_ADD_RMSNORM, full, &attr,
                                 (tri_id[]){*stream, branch, gain}, 3, 3);
    *stream = tri_node_out(graph, node, 0);
    return tri_node_out(graph, node, 1);
}

tri_id tri_swiglu(tri_graph *graph, const char *name, tri_id gate, tri_id up)
{
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_SWIGLU, tri_graph_name(graph, name), NULL,
                                       (tri_id[]){gate, up}, 2, 1),
                        0);
}

tri_id tri_select_row(tri_graph *graph, const char *name, tri_id x, tri_id index,
                      const tri_batch_inputs *in)
{
    tri_id operands[] = {x, index, in ? in->places : TRI_NONE};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_SELECT_ROW, tri_graph_name(graph, name), NULL,
                                       operands, operands[2] == TRI_NONE ? 2 : 3, 1),
                        0);
}

/* Output k of a node joins into a statistic. */
static uint8_t feed_stat(tri_graph *graph, tri_id node, int k, size_t row)
{
    uint8_t stat = tri_graph_stat(graph, row);
    if (graph->status == TR_OK && !graph->arena.failed)
        tri_graph_write_state(graph, node, k, graph->stats[stat].state, TRI_WRITE_START);
    return stat;
}

/* Outputs 0 and 1 of a loss are the sum and the count of the main one. */
static void become_loss(tri_graph *graph, const char *name, tri_id node)
{
    if (node == TRI_NONE)
        return;
    tri_loss loss = {.name = name, .weight = 1};
    loss.sum = feed_stat(graph, node, 0, TRI_STAT_LOSS);
    loss.count = feed_stat(graph, node, 1, TRI_STAT_COUNT);
    tri_graph_add_loss(graph, &loss);
}

void tri_cross_entropy(tri_graph *graph, tri_id logits, tri_id targets, const tri_head_config *head)
{
    tri_attr attr = {.loss = {.z = head->z_loss}};
    tri_id stats = tri_node_out(graph,
                                tri_graph_emit(graph, TRI_OP_CE_STATS, tri_graph_name(graph, "ce"),
                                               &attr, (tri_id[]){logits, targets}, 2, 1),
                                0);
    int num = 0, z = head->z_loss > 0;
    if (z + head->num_stats > TRI_MAX_HEAD_STATS) {
        tri_graph_fail(graph, "a head has at most %d statistics", TRI_MAX_HEAD_STATS);
        return;
    }
    if (z)
        attr.loss.stat[num++] = TRI_STAT_Z_LOSS;
    for (int i = 0; i < head->num_stats; i++)
        attr.loss.stat[num++] = head->stat[i];
    tri_id node = tri_graph_emit(graph, TRI_OP_CE_LOSS, tri_graph_name(graph, "ce"), &attr,
                                 (tri_id[]){stats, targets}, 2, 3 + num);
    become_loss(graph, "cross_entropy", node);
    if (z && graph->num_losses > 0) /* beside another, the main loss is shown by its name */
        tri_graph_show(graph, graph->losses[0].sum);
    for (int i = 0; node != TRI_NONE && i < num; i++) {
        uint8_t stat = feed_stat(graph, node, 3 + i, attr.loss.stat[i]);
        tri_graph_show(graph, stat);
        if (attr.loss.stat[i] == TRI_STAT_Z_LOSS)
            tri_graph_add_loss(graph,
                               &(tri_loss){"z_loss", stat, graph->losses[0].count, head->z_loss});
    }
}

void tri_output_loss(tri_graph *graph, tri_out_loss kind, tri_id out, tri_id target)
{
    tri_attr attr = {.loss = {.kind = kind}};
    tri_id node = tri_graph_emit(graph, TRI_OP_OUT_LOSS, tri_graph_name(graph, "out"), &attr,
                                 (tri_id[]){out, target}, 2, 2);
    become_loss(graph, "out", node);
}

void tri_mark_output(tri_graph *graph, tri_id value)
{
    if (value != TRI_NONE)
        graph->values[value].output = true;
}

tri_id tri_matmul(tri_graph *graph, const char *name, tri_id a, uint8_t split_a, bool trans_a,
                  tri_id b, uint8_t split_b, bool trans_b)
{
    tri_attr attr = {.matmul = {.alpha = 1,
                                .split_a = split_a,
                                .trans_a = trans_a,
                                .split_b = split_b,
                                .trans_b = trans_b}};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_MATMUL, tri_graph_name(graph, name), &attr,
                                       (tri_id[]){a, b}, 2, 1),
                        0);
}

tri_id tri_axpby(tri_graph *graph, const char *name, float alpha, tri_id x, float beta, tri_id y)
{
    tri_attr attr = {.axpby = {.alpha = alpha, .beta = beta}};
    return tri_node_out(graph,
                        tri_graph_emit(graph, TRI_OP_AXPBY, tri_graph_name(graph, name), &attr,
                                       (tri_id[]){x, y}, 2, 1),
                        0);
}
