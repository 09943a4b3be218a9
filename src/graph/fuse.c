/* Passes that make one node of two. Each is an identity in exact arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"
#include "graph/passes.h"

uint32_t *tri_graph_count_uses(const tri_graph *graph)
{
    uint32_t *uses = calloc(graph->num_values + 1, sizeof *uses);
    if (!uses)
        return NULL;
    for (size_t n = 0; n < graph->num_nodes; n++)
        for (int j = 0; j < graph->nodes[n].num_in; j++)
            if (graph->nodes[n].in[j] != TRI_NONE)
                uses[graph->nodes[n].in[j]]++;
    for (size_t v = 0; v < graph->num_values; v++)
        uses[v] += graph->values[v].output;
    return uses;
}

void tri_graph_remove_nodes(tri_graph *graph, const bool *dead)
{
    size_t kept = 0;
    for (size_t n = 0; n < graph->num_nodes; n++) {
        if (dead[n])
            continue;
        if (kept != n)
            graph->nodes[kept] = graph->nodes[n];
        for (int k = 0; k < graph->nodes[kept].num_out; k++)
            graph->values[graph->nodes[kept].out[k]].producer = (tri_id)kept;
        kept++;
    }
    graph->num_nodes = kept;
}

tri_node *tri_graph_take_nodes(tri_graph *graph, size_t *num)
{
    tri_node *nodes = graph->nodes;
    *num = graph->num_nodes;
    graph->nodes = NULL;
    graph->num_nodes = graph->nodes_capacity = 0;
    return nodes;
}

void tri_graph_append(tri_graph *graph, const tri_node *node)
{
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

tr_status tri_graph_reorder(tri_graph *graph, const tri_id *order, tr_error *err)
{
    tri_node *nodes = calloc(graph->num_nodes + 1, sizeof *nodes);
    if (!nodes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to order the nodes of the graph");
    for (size_t n = 0; n < graph->num_nodes; n++) {
        nodes[n] = graph->nodes[order[n]];
        for (int k = 0; k < nodes[n].num_out; k++)
            graph->values[nodes[n].out[k]].producer = (tri_id)n;
    }
    free(graph->nodes);
    graph->nodes = nodes;
    graph->nodes_capacity = graph->num_nodes + 1;
    return TR_OK;
}

typedef struct rewrite {
    tri_graph *graph;
    uint32_t *uses;
    bool *dead;
} rewrite;

static tr_status rewrite_begin(rewrite *rw, tri_graph *graph, tr_error *err)
{
    *rw = (rewrite){.graph = graph,
                    .uses = tri_graph_count_uses(graph),
                    .dead = calloc(graph->num_nodes + 1, sizeof(bool))};
    if (rw->uses && rw->dead)
        return TR_OK;
    free(rw->uses);
    free(rw->dead);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to rewrite the graph");
}

static void rewrite_end(rewrite *rw)
{
    tri_graph_remove_nodes(rw->graph, rw->dead);
    free(rw->uses);
    free(rw->dead);
}

/* The live node that produces a temporary that has one reader, or TRI_NONE. */
static tri_id sole_producer(const rewrite *rw, tri_id value)
{
    const tri_value *v = &rw->graph->values[value];
    if (v->kind != TRI_VALUE_TEMP || rw->uses[value] != 1 || rw->dead[v->producer])
        return TRI_NONE;
    return v->producer;
}

static int output_number(const tri_node *node, tri_id value)
{
    int k = 0;
    while (node->out[k] != value)
        k++;
    return k;
}

tr_status tri_fold_accumulate(tri_graph *graph, tr_error *err)
{
    rewrite rw;
    TRI_TRY(rewrite_begin(&rw, graph, err));
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        if (node->op != TRI_OP_ACCUMULATE)
            continue;
        tri_id from = sole_producer(&rw, node->in[0]);
        if (from == TRI_NONE)
            continue;
        tri_node *producer = &graph->nodes[from];
        int k = output_number(producer, node->in[0]);
        if (!(tri_op_get(producer->op)->can_accumulate >> k & 1) ||
            producer->write[k] != TRI_WRITE_NEW || tri_node_epilogue(producer) != TRI_EPILOGUE_NONE)
            continue;
        producer->out[k] = node->out[0];
        producer->write[k] = node->write[0];
        producer->prev[k] = node->prev[0];
        rw.dead[n] = true;
    }
    rewrite_end(&rw);
    return TR_OK;
}

/* The product whose plain output `value` is, when nothing else reads it. */
static tri_node *plain_product(rewrite *rw, tri_id value)
{
    tri_id from = sole_producer(rw, value);
    if (from == TRI_NONE)
        return NULL;
    tri_node *node = &rw->graph->nodes[from];
    bool plain = node->op == TRI_OP_MATMUL && node->attr.matmul.epilogue == TRI_EPILOGUE_NONE &&
                 node->write[0] == TRI_WRITE_NEW;
    return plain ? node : NULL;
}

/* The fused node takes the place of the later of the two, so that all its inputs exist. */
static void fuse_bias(rewrite *rw, tri_id id)
{
    tri_node *node = &rw->graph->nodes[id];
    tri_node *product = plain_product(rw, node->in[0]);
    if (!product)
        return;
    tri_node fused = *product;
    fused.attr.matmul.epilogue = TRI_EPILOGUE_BIAS;
    fused.in[2] = node->in[1];
    fused.num_in = 3;
    fused.out[0] = node->out[0];
    rw->dead[product - rw->graph->nodes] = true;
    *node = fused;
    rw->graph->values[fused.out[0]].producer = id;
}

/* product + bias, kept for the backward, then GELU: the GELU node becomes the fused one. */
static void fuse_bias_gelu(rewrite *rw, tri_id id)
{
    tri_graph *graph = rw->graph;
    tri_node *node = &graph->nodes[id];
    tri_id from = graph->values[node->in[0]].producer;
    if (node->attr.act.kind != TRI_ACT_GELU || from == TRI_NONE || rw->dead[from])
        return;
    tri_node *biased = &graph->nodes[from];
    if (biased->op != TRI_OP_MATMUL || biased->attr.matmul.epilogue != TRI_EPILOGUE_BIAS)
        return;
    /* Every other reader of the sum must come after the GELU. */
    for (tri_id n = from + 1; n < id; n++)
        for (int j = 0; !rw->dead[n] && j < graph->nodes[n].num_in; j++)
            if (graph->nodes[n].in[j] == node->in[0])
                return;
    tri_node fused = *biased;
    fused.attr.matmul.epilogue = TRI_EPILOGUE_BIAS_GELU;
    fused.num_out = 2;
    fused.out[0] = node->out[0];
    fused.out[1] = node->in[0];
    fused.write[1] = TRI_WRITE_NEW;
    fused.prev[1] = TRI_NONE;
    rw->dead[from] = true;
    *node = fused;
    graph->values[fused.out[0]].producer = graph->values[fused.out[1]].producer = id;
}

static void fuse_gelu_grad(rewrite *rw, tri_id id)
{
    tri_node *node = &rw->graph->nodes[id];
    tri_node *product = node->attr.act.kind == TRI_ACT_GELU ? plain_product(rw, node->in[1]) : NULL;
    if (!product)
        return;
    tri_node fused = *product;
    fused.attr.matmul.epilogue = TRI_EPILOGUE_GELU_GRAD;
    fused.in[2] = node->in[0];
    fused.num_in = 3;
    fused.out[0] = node->out[0];
    rw->dead[product - rw->graph->nodes] = true;
    *node = fused;
    rw->graph->values[fused.out[0]].producer = id;
}

tr_status tri_fuse_epilogues(tri_graph *graph, const tri_fusions *can, tr_error *err)
{
    rewrite rw;
    TRI_TRY(rewrite_begin(&rw, graph, err));
    for (size_t n = 0; n < graph->num_nodes; n++) {
        switch (graph->nodes[n].op) {
        case TRI_OP_BIAS_ADD:
            if (can->bias)
                fuse_bias(&rw, (tri_id)n);
            break;
        case TRI_OP_ACT:
            if (can->bias_gelu)
                fuse_bias_gelu(&rw, (tri_id)n);
            break;
        case TRI_OP_ACT_GRAD:
            if (can->gelu_grad)
                fuse_gelu_grad(&rw, (tri_id)n);
            break;
        default:
            break;
        }
    }
    rewrite_end(&rw);
    return TR_OK;
}
