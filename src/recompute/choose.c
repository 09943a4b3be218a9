/* What is made again.
 *
 * A value can be made again when its operator is allowed at the level of its layer, and all that it
 * is made of is there in the backward: kept because the backward reads it, or made again itself.
 * At the highest level everything within the layer can; what comes from other layers is kept.
 *
 * The first sum of a layer that begins with a fused residual sum and norm is the layer's input: one
 * tensor, where the two that were added would be two. */
#include <stdlib.h>

#include "recompute/recompute.h"

typedef struct chooser {
    const tri_graph *graph;
    const tri_recompute_level *level; /* of each layer */
    bool attention_only;
    bool *read;  /* of each value: the backward reads it */
    bool *redo;  /* of each value: it is made again */
    bool *heavy; /* of each value: a product or attention of its own layer led to it */
    bool *leads; /* of each node: attention_only, it leads to attention */
    bool *seen;  /* of each node: visited */
} chooser;

static bool is_heavy(tri_op op)
{
    return op == TRI_OP_MATMUL || op == TRI_OP_GROUPED || op == TRI_OP_GROUPED8 ||
           op == TRI_OP_GROUPED_SWIGLU || op == TRI_OP_ATTENTION;
}

static bool adds_and_norms(tri_op op)
{
    return op == TRI_OP_ADD_LAYERNORM || op == TRI_OP_ADD_RMSNORM;
}

/* Outside of the layers nothing is made again. */
static tri_recompute_level level_of(const chooser *c, const tri_node *node)
{
    return node->layer < 0 || node->layer >= c->graph->num_layers ? TRI_LEVEL_KEEP
                                                                  : c->level[node->layer];
}

static const tri_node *maker(const tri_graph *graph, tri_id value)
{
    tri_id producer = graph->values[value].producer;
    return producer == TRI_NONE ? NULL : &graph->nodes[producer];
}

/* A temporary of the forward. */
static bool is_forward_temp(const tri_graph *graph, tri_id value)
{
    if (value == TRI_NONE || graph->values[value].kind != TRI_VALUE_TEMP)
        return false;
    const tri_node *node = maker(graph, value);
    return node && node->phase == TRI_PHASE_FORWARD;
}

/* Whether a forward value is a divided weight put together, which the backward has anyway. */
static bool is_gathered(const tri_graph *graph, tri_id value)
{
    return is_forward_temp(graph, value) && maker(graph, value)->op == TRI_OP_UNSHARD;
}

/* Results that follow from another result of the same node, which is kept. */
tri_node tri_recompute_node(tri_node node, const bool *redo)
{
    if (adds_and_norms(node.op) && !redo[node.out[0]]) {
        node.op = node.op == TRI_OP_ADD_LAYERNORM ? TRI_OP_LAYERNORM : TRI_OP_RMSNORM;
        node.in[0] = node.out[0];
        for (int j = 1; j + 1 < node.num_in; j++)
            node.in[j] = node.in[j + 1];
        node.num_in--;
        for (int k = 0; k + 1 < node.num_out; k++)
            node.out[k] = node.out[k + 1];
        node.num_out--;
    } else if (node.op == TRI_OP_MATMUL && node.attr.matmul.epilogue == TRI_EPILOGUE_BIAS_GELU &&
               !redo[node.out[1]]) {
        node.op = TRI_OP_ACT;
        node.attr = tri_attr_of(TRI_OP_ACT, &(tri_attr){.act = {.kind = TRI_ACT_GELU}});
        node.in[0] = node.out[1];
        node.num_in = node.num_out = 1;
    }
    return node;
}

/* Which nodes lead to attention without a product or a message in between. */
static void mark_leads(chooser *c)
{
    const tri_graph *graph = c->graph;
    for (size_t n = graph->num_nodes; n-- > 0;) {
        const tri_node *node = &graph->nodes[n];
        if (node->phase != TRI_PHASE_FORWARD)
            continue;
        c->leads[n] |= node->op == TRI_OP_ATTENTION;
        for (int j = 0; c->leads[n] && j < node->num_in; j++) {
            if (!is_forward_temp(graph, node->in[j]))
                continue;
            const tri_node *from = maker(graph, node->in[j]);
            if (from->layer == node->layer && !is_heavy(from->op) &&
                !tri_op_get(from->op)->communicates)
                c->leads[from - graph->nodes] = true;
        }
    }
}

static bool allowed(const chooser *c, size_t n)
{
    const tri_node *node = &c->graph->nodes[n];
    tri_recompute_level level = level_of(c, node);
    const tri_op_def *def = tri_op_get(node->op);
    if (node->op == TRI_OP_ROUTE)
        return false; /* a rounding could let a choice fall otherwise, and rows go elsewhere */
    if (c->attention_only)
        return level != TRI_LEVEL_KEEP && c->leads[n];
    if (def->communicates && node->num_in == 0)
        return false; /* what another stage sent is not sent again */
    if (node->op == TRI_OP_AMAX)
        return false; /* a few numbers for a pass over a tensor */
    switch (level) {
    case TRI_LEVEL_ALL:
        return true;
    case TRI_LEVEL_ATTENTION:
        return !def->communicates && (node->op == TRI_OP_ATTENTION || !is_heavy(node->op));
    case TRI_LEVEL_CHEAP:
        return !def->communicates && !is_heavy(node->op);
    default:
        return false;
    }
}

/* Whether an operand of a clone is there in the backward. What another layer at the highest level
 * would make again is not, unless it is kept as that layer's own. */
static bool available(const chooser *c, const tri_node *node, tri_id value)
{
    const tri_graph *graph = c->graph;
    if (!is_forward_temp(graph, value) || is_gathered(graph, value))
        return true;
    if (level_of(c, node) == TRI_LEVEL_ALL && !c->attention_only)
        return true;
    const tri_node *from = maker(graph, value);
    bool remote = from->layer != node->layer && level_of(c, from) == TRI_LEVEL_ALL;
    return c->read[value] || (c->redo[value] && !remote);
}

static bool is_layer_input(const chooser *c, const tri_node *node)
{
    return adds_and_norms(node->op) && level_of(c, node) == TRI_LEVEL_ALL &&
           !c->heavy[node->out[0]];
}

/* Results that follow from one that is kept. */
static void choose_rest(chooser *c, const tri_node *node)
{
    if (adds_and_norms(node->op) && c->read[node->out[0]])
        c->redo[node->out[1]] = c->redo[node->out[2]] = true;
    else if (node->op == TRI_OP_MATMUL && node->attr.matmul.epilogue == TRI_EPILOGUE_BIAS_GELU &&
             c->read[node->out[1]])
        c->redo[node->out[0]] = true;
}

static void choose_node(chooser *c, size_t n)
{
    const tri_graph *graph = c->graph;
    const tri_node *node = &graph->nodes[n];
    bool heavy = is_heavy(node->op);
    for (int j = 0; j < node->num_in; j++)
        if (is_forward_temp(graph, node->in[j]) && maker(graph, node->in[j])->layer == node->layer)
            heavy |= c->heavy[node->in[j]];
    for (int k = 0; k < node->num_out; k++)
        c->heavy[node->out[k]] = heavy;
    bool all = allowed(c, n) && !is_layer_input(c, node) && node->op != TRI_OP_UNSHARD;
    for (int k = 0; k < node->num_out; k++)
        all &= node->write[k] == TRI_WRITE_NEW; /* statistics are added to once */
    for (int j = 0; j < node->num_in; j++)
        all &= node->in[j] == TRI_NONE || available(c, node, node->in[j]);
    for (int k = 0; k < node->num_out; k++)
        c->redo[node->out[k]] = all;
    if (!all && level_of(c, node) != TRI_LEVEL_KEEP && (!c->attention_only || c->leads[n]))
        choose_rest(c, node);
}

/* What a layer at the highest level gives to another must not be made again there: that would need
 * all of this layer early, and so on down to the first. Nor what a chunk of a pipeline gives to
 * another, whose backward runs at another time. Returns whether something is newly kept. */
static bool keep_borders(chooser *c, tri_id value, int reader_layer)
{
    const tri_graph *graph = c->graph;
    if (!is_forward_temp(graph, value) || !c->redo[value])
        return false;
    tri_id id = graph->values[value].producer;
    const int *chunk_of = graph->chunk_of;
    int layer = graph->nodes[id].layer;
    if (layer != reader_layer &&
        (level_of(c, &graph->nodes[id]) == TRI_LEVEL_ALL ||
         (chunk_of && chunk_of[layer + 1] != chunk_of[reader_layer + 1]))) {
        c->redo[value] = false;
        return true;
    }
    if (c->seen[id])
        return false;
    c->seen[id] = true;
    bool kept = false;
    tri_node node = tri_recompute_node(graph->nodes[id], c->redo);
    for (int j = 0; j < node.num_in; j++)
        if (node.in[j] != TRI_NONE)
            kept |= keep_borders(c, node.in[j], node.layer);
    return kept;
}

static void choose(chooser *c)
{
    const tri_graph *graph = c->graph;
    for (size_t n = 0; n < graph->num_nodes; n++)
        for (int j = 0; graph->nodes[n].phase == TRI_PHASE_BACKWARD && j < graph->nodes[n].num_in;
             j++)
            if (graph->nodes[n].in[j] != TRI_NONE)
                c->read[graph->nodes[n].in[j]] = true;
    if (c->attention_only)
        mark_leads(c);
    for (size_t n = 0; n < graph->num_nodes; n++)
        if (graph->nodes[n].phase == TRI_PHASE_FORWARD)
            choose_node(c, n);
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 0; n < graph->num_nodes; n++)
            c->seen[n] = false;
        for (size_t n = 0; n < graph->num_nodes; n++)
            for (int j = 0;
                 graph->nodes[n].phase == TRI_PHASE_BACKWARD && j < graph->nodes[n].num_in; j++)
                if (graph->nodes[n].in[j] != TRI_NONE)
                    more |= keep_borders(c, graph->nodes[n].in[j], graph->nodes[n].layer);
    }
}

bool *tri_recompute_choose(const tri_graph *graph, const tri_recompute_level *level,
                           bool attention_only)
{
    chooser c = {.graph = graph, .level = level, .attention_only = attention_only};
    c.read = calloc(graph->num_values + 1, sizeof *c.read);
    c.redo = calloc(graph->num_values + 1, sizeof *c.redo);
    c.heavy = calloc(graph->num_values + 1, sizeof *c.heavy);
    c.leads = calloc(graph->num_nodes + 1, sizeof *c.leads);
    c.seen = calloc(graph->num_nodes + 1, sizeof *c.seen);
    if (c.read && c.redo && c.heavy && c.leads && c.seen) {
        choose(&c);
    } else {
        free(c.redo);
        c.redo = NULL;
    }
    free(c.read);
    free(c.heavy);
    free(c.leads);
    free(c.seen);
    return c.redo;
}
