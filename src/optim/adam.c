/* Adam (decay added to the gradient) and AdamW (decay apart from it): Kingma and Ba 2015,
 * Loshchilov and Hutter 2019. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

enum { LEAST_CODED = 4096 }; /* elements */

/* Moments begin with zero; what they lack of a mean is made up for. */
static double bias_correction(const tri_step_now *now, double beta)
{
    return 1 / (1 - pow(beta, now->nth));
}

static double nth_update(const tri_step_now *now, double unused)
{
    (void)unused;
    return fmod(now->nth, 0x1p24); /* a float has no more whole numbers */
}

/* Which moments rest in 8 bits. Small tensors save nothing, and the gains, shifts and biases among
 * them are the most sensitive. */
static bool has_codes(const tri_update *u)
{
    bool matrix = u->param->role == TRI_ROLE_MATRIX || u->param->role == TRI_ROLE_EMBEDDING ||
                  u->param->role == TRI_ROLE_EXPERTS;
    return u->config->moments8 && matrix && tri_shape_count(&u->param->shape) >= LEAST_CODED;
}

static void emit(tri_graph *graph, const tri_update *u, bool decoupled)
{
    const tri_step_row rows[TRI_NUM_ADAM8_ROWS] = {
        [TRI_ADAM_BIAS1] = {"adam.bias1", bias_correction, (double)u->config->beta1},
        [TRI_ADAM_BIAS2] = {"adam.bias2", bias_correction, (double)u->config->beta2},
        [TRI_ADAM8_NTH] = {"adam8.nth", nth_update, 0},
    };
    bool codes = has_codes(u);
    size_t num_rows = codes ? TRI_NUM_ADAM8_ROWS : TRI_NUM_ADAM_ROWS;
    tri_attr attr = {.update = {.beta1 = u->config->beta1,
                                .beta2 = u->config->beta2,
                                .eps = u->config->eps,
                                .decoupled = decoupled,
                                .weight_decay = u->weight_decay,
                                .lr_scale = u->lr_scale,
                                .own_rows = tri_graph_step_rows(graph, rows, num_rows)}};
    tri_id m = tri_optim_state_as(graph, u, "adam.m", codes ? TRI_Q8S : TRI_F32);
    tri_id v = tri_optim_state_as(graph, u, "adam.v", codes ? TRI_Q8U : TRI_F32);
    tri_id in[] = {u->value, m, v, u->grad, u->sched, u->result};
    tri_graph_emit(graph, codes ? TRI_OP_ADAM8 : TRI_OP_ADAM, u->param->name, &attr, in, 6, 3);
}

static void emit_adam(tri_graph *graph, const tri_update *u)
{
    emit(graph, u, false);
}

static void emit_adamw(tri_graph *graph, const tri_update *u)
{
    emit(graph, u, true);
}

static const tri_setting own[] = {
    TRI_FLOAT_ROW("optim.beta1", "0.9", 0, 0.9999, "Decay of the first moment (adam, adamw, lion)",
                  "b1 betas"),
    TRI_FLOAT_ROW(
        "optim.beta2", "0.95", 0, 0.99999,
        "Decay of the second moment (adam, adamw); of the moment (lion, which takes 0.99 when "
        "none is given)",
        "b2"),
    TRI_FLOAT_ROW("optim.eps", "1e-8", 0, 1, "Added to the root of the second moment (adam, adamw)",
                  "epsilon"),
    TRI_CHOICE_ROW(
        "optim.moments", "fp32", "fp32, 8bit",
        "Moments at rest (adam, adamw): 8bit has a scale for each 256 elements; norms, biases "
        "and tensors of fewer than 4,096 elements stay fp32",
        "optim_bits adamw8bit 8bit_adam optimizer_state"),
};

static void read(const tr_settings *s, tri_optim_config *config)
{
    config->beta1 = (float)tr_settings_float(s, "optim.beta1");
    config->beta2 = (float)tr_settings_float(s, "optim.beta2");
    config->eps = (float)tr_settings_float(s, "optim.eps");
    config->moments8 = strcmp(tr_settings_string(s, "optim.moments"), "8bit") == 0;
}

const tri_optim_def tri_optim_adam = {
    .kind = "adam",
    .emit = emit_adam,
    .own = {.rows = own, .num_rows = sizeof own / sizeof *own},
    .read = read,
};
const tri_optim_def tri_optim_adamw = {
    .kind = "adamw",
    .emit = emit_adamw,
    .own = {.reads = "optim.beta1 optim.beta2 optim.eps optim.moments"},
};
