/* Lion (Chen et al. 2023): steps of one size, in the direction of the sign of a momentum. */
#include "optim/optim.h"

static void emit(tri_graph *graph, const tri_update *u)
{
    tri_attr attr = {.update = {.beta1 = u->config->beta1,
                                .beta2 = u->config->beta2,
                                .weight_decay = u->weight_decay,
                                .lr_scale = u->lr_scale}};
    tri_id in[] = {u->value, tri_optim_state(graph, u, "lion.m"), u->grad, u->sched, u->result};
    tri_graph_emit(graph, TRI_OP_LION, u->param->name, &attr, in, 5, 2);
}

const tri_optim_def tri_optim_lion = {
    .kind = "lion",
    .emit = emit,
    .own = {.reads = "optim.beta1 optim.beta2", .defaults = "optim.beta2=0.99"},
};
