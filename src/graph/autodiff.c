/* Reverse-mode differentiation, as a pass: it walks the forward nodes backwards and lets each
 * operator's gradient rule emit its backward nodes.
 *
 * A value with several consumers gets the sum of their gradients. Gradients of parameters end in an
 * ACCUMULATE into the parameter's accumulator; tri_fold_accumulate removes most of those later. */
#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"

typedef struct autodiff {
    tri_graph *graph;
    tri_id *grad;      /* gradient of each forward value so far, or TRI_NONE */
    bool *needs;       /* the value depends on a parameter by differentiable operators */
    size_t num_values; /* of the forward graph */
} autodiff;

static bool is_param(const tri_graph *graph, tri_id value)
{
    tri_id state = graph->values[value].state;
    return state != TRI_NONE && (graph->states[state].kind == TRI_STATE_PARAM ||
                                 graph->states[state].kind == TRI_STATE_COPY);
}

static void mark_needs(autodiff *ad, size_t num_nodes)
{
    tri_graph *graph = ad->graph;
    for (size_t v = 0; v < ad->num_values; v++)
        ad->needs[v] = is_param(graph, (tri_id)v);
    for (size_t n = 0; n < num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        if (!tri_op_get(node->op)->grad)
            continue;
        bool needs = false;
        for (int j = 0; j < node->num_in; j++)
            needs |= node->in[j] != TRI_NONE && ad->needs[node->in[j]];
        for (int k = 0; k < node->num_out; k++)
            ad->needs[node->out[k]] = needs;
    }
}

/* The accumulator of a parameter; created at its first contribution. */
static tri_id grad_state_of(tri_graph *graph, tri_id param)
{
    if (graph->grad_state[param] == TRI_NONE) {
        const tri_param *p = &graph->params->items[param];
        const char *name = tri_arena_dotted(&graph->arena, "grad", p->name);
        tri_dtype dtype =
            tri_param_has_copy(p, graph->precision.compute) ? graph->precision.grad : TRI_F32;
        graph->grad_state[param] =
            tri_graph_state(graph, TRI_STATE_GRAD, name, dtype, p->shape, param);
    }
    return graph->grad_state[param];
}

static void contribute_param(tri_graph *graph, tri_id param, tri_id grad)
{
    bool first = graph->grad_state[param] == TRI_NONE;
    tri_id state = grad_state_of(graph, param);
    const char *name = tri_arena_dotted(&graph->arena, "grad", graph->params->items[param].name);
    tri_id node = tri_graph_emit(graph, TRI_OP_ACCUMULATE, name, NULL, &grad, 1, 1);
    if (node != TRI_NONE)
        tri_graph_write_state(graph, node, 0, state, first ? TRI_WRITE_START : TRI_WRITE_ADD);
}

static void contribute(autodiff *ad, tri_id value, tri_id grad)
{
    tri_graph *graph = ad->graph;
    if (is_param(graph, value)) {
        contribute_param(graph, graph->states[graph->values[value].state].param, grad);
        return;
    }
    if (ad->grad[value] == TRI_NONE) {
        ad->grad[value] = grad;
        return;
    }
    const char *name = tri_arena_dotted(&graph->arena, "d", graph->values[value].name);
    tri_id node =
        tri_graph_emit(graph, TRI_OP_ADD, name, NULL, (tri_id[]){ad->grad[value], grad}, 2, 1);
    ad->grad[value] = node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static void backward_of(autodiff *ad, tri_id id)
{
    tri_graph *graph = ad->graph;
    const tri_node node = graph->nodes[id]; /* a copy: rules append nodes */
    const tri_op_def *def = tri_op_get(node.op);
    tri_id dout[TRI_MAX_OUT], din[TRI_MAX_IN];
    bool wanted[TRI_MAX_IN], any = false;
    for (int k = 0; k < node.num_out; k++) {
        dout[k] = ad->grad[node.out[k]];
        any |= dout[k] != TRI_NONE || tri_graph_loss_of(graph, node.out[k]);
    }
    if (!def->grad || !any || !ad->needs[node.out[0]])
        return;
    graph->ends_chain = true;
    for (int j = 0; j < node.num_in; j++) {
        din[j] = TRI_NONE;
        wanted[j] = node.in[j] != TRI_NONE && ad->needs[node.in[j]];
        if (wanted[j] && !is_param(graph, node.in[j]))
            graph->ends_chain = false;
    }
    graph->layer = node.layer;
    def->grad(graph, id, dout, wanted, din);
    for (int j = 0; j < node.num_in; j++)
        if (wanted[j] && din[j] != TRI_NONE)
            contribute(ad, node.in[j], din[j]);
    graph->ends_chain = false;
}

tr_status tri_autodiff(tri_graph *graph, float loss_seed, tr_error *err)
{
    TRI_TRY(tri_graph_status(graph, err));
    if (graph->num_losses == 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "autodiff: the graph has no loss");
    size_t num_nodes = graph->num_nodes;
    autodiff ad = {.graph = graph, .num_values = graph->num_values};
    ad.grad = malloc(ad.num_values * sizeof *ad.grad);
    ad.needs = calloc(ad.num_values, sizeof *ad.needs);
    if (!ad.grad || !ad.needs) {
        free(ad.grad);
        free(ad.needs);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the backward graph");
    }
    for (size_t v = 0; v < ad.num_values; v++)
        ad.grad[v] = TRI_NONE;
    mark_needs(&ad, num_nodes);
    graph->phase = TRI_PHASE_BACKWARD;
    graph->loss_seed = loss_seed;
    if (graph->precision.compute == TRI_F16)
        graph->scaler = tri_graph_state(graph, TRI_STATE_OPTIM, "scaler", TRI_F32,
                                        tri_shape_scalar(TRI_NUM_SCALER), TRI_NONE);
    for (size_t n = num_nodes; n-- > 0;)
        backward_of(&ad, (tri_id)n);
    graph->ends_chain = false;
    free(ad.grad);
    free(ad.needs);
    return tri_graph_status(graph, err);
}
