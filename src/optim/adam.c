/* Adam (decay added to the gradient) and AdamW (decay apart from it): Kingma and Ba 2015,
 * Loshchilov and Hutter 2019. */
#include "optim/optim.h"

#include <math.h>

/* Moments begin with zero; what they lack of a mean is made up for. */
static double bias_correction(const tri_step_now *now, double beta)
{
    return 1 / (1 - pow(beta, now->nth));
}

static void emit(tri_graph *graph, const tri_update *u, bool decoupled)
{
    const tri_step_row rows[TRI_NUM_ADAM_ROWS] = {
        [TRI_ADAM_BIAS1] = {"adam.bias1", bias_correction, (double)u->config->beta1},
        [TRI_ADAM_BIAS2] = {"adam.bias2", bias_correction, (double)u->config->beta2},
    };
    tri_attr attr = {.update = {.beta1 = u->config->beta1,
                                .beta2 = u->config->beta2,
                                .eps = u->config->eps,
                                .decoupled = decoupled,
                                .weight_decay = u->weight_decay,
                                .lr_scale = u->lr_scale,
                                .own_rows = tri_graph_step_rows(graph, rows, TRI_NUM_ADAM_ROWS)}};
    tri_id m = tri_optim_state(graph, u, "adam.m"), v = tri_optim_state(graph, u, "adam.v");
    tri_id in[] = {u->value, m, v, u->grad, u->sched, u->result};
    tri_graph_emit(graph, TRI_OP_ADAM, u->param->name, &attr, in, 6, 3);
}

static void emit_adam(tri_graph *graph, const tri_update *u)
{
    emit(graph, u, false);
}

static void emit_adamw(tri_graph *graph, const tri_update *u)
{
    emit(graph, u, true);
}

const tri_optim_def tri_optim_adam = {.kind = "adam", .emit = emit_adam};
const tri_optim_def tri_optim_adamw = {.kind = "adamw", .emit = emit_adamw};
