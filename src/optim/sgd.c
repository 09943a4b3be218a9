/* Stochastic gradient descent, with momentum and Nesterov's form of it. */
#include "optim/optim.h"

static void emit(tri_graph *graph, const tri_update *u)
{
    float momentum = u->config->momentum;
    tri_attr attr = {.update = {.beta1 = momentum,
                                .nesterov = u->config->nesterov,
                                .weight_decay = u->weight_decay,
                                .lr_scale = u->lr_scale}};
    tri_id velocity = momentum > 0 ? tri_optim_state(graph, u, "sgd.momentum") : TRI_NONE;
    tri_id in[] = {u->value, velocity, u->grad, u->sched, u->result};
    tri_graph_emit(graph, TRI_OP_SGD, u->param->name, &attr, in, 5, momentum > 0 ? 2 : 1);
}

const tri_optim_def tri_optim_sgd = {.kind = "sgd", .emit = emit};
