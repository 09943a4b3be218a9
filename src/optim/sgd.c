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

static const tri_setting own[] = {
    TRI_FLOAT_ROW("optim.momentum", "0.9", 0, 0.9999,
                  "Momentum (sgd, muon; muon takes 0.95 when none is given)", "mu"),
    TRI_BOOL_ROW("optim.nesterov", "false", "Look-ahead momentum (sgd)", "nag"),
};

static void read(const tr_settings *s, tri_optim_config *config)
{
    config->momentum = (float)tr_settings_float(s, "optim.momentum");
    config->nesterov = tr_settings_bool(s, "optim.nesterov");
}

const tri_optim_def tri_optim_sgd = {
    .kind = "sgd",
    .emit = emit,
    .own = {.rows = own, .num_rows = sizeof own / sizeof *own},
    .read = read,
};
