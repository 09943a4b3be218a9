/* The textbook toy: pairs of linear layers dim -> ffn_dim -> dim, an activation between the two of
 * a pair or none, and a loss on the last output. Small enough to check by hand. */
#include <math.h>

#include "model/model.h"
#include "model/writer.h"

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    static const tri_act acts[] = {[TRI_MODEL_ACT_RELU] = TRI_ACT_RELU,
                                   [TRI_MODEL_ACT_GELU] = TRI_ACT_GELU,
                                   [TRI_MODEL_ACT_GELU_ERF] = TRI_ACT_GELU_ERF};
    tri_shape bd = tri_shape_of(2, TRI_DIM_B, batch->rows, TRI_DIM_D, m->dim);
    tri_id x = tri_graph_input(g, "x", TRI_F32, bd, true);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "pair.%d", l);
        x = tri_linear(g, "fc1", x);
        if (m->act != TRI_MODEL_ACT_NONE)
            x = tri_activation(g, "act", acts[m->act], x);
        x = tri_linear(g, "fc2", x);
    }
    tri_graph_enter(g, (int)m->num_layers, "%s", "");
    if (mode == TRI_MODE_PREDICT) {
        tri_mark_output(g, x);
        return;
    }
    tri_output_loss(g, m->loss, x, tri_graph_input(g, "target", TRI_F32, bd, true));
}

/* As common frameworks do: uniform within one over the root of the number of inputs. */
static void params(const tri_model_config *m, tri_param_table *table)
{
    tri_param_writer w = {.table = table};
    tri_shape d = tri_shape_of(1, TRI_DIM_D, m->dim), f = tri_shape_of(1, TRI_DIM_F, m->ffn_dim);
    tri_init up = {TRI_INIT_UNIFORM, 1 / sqrtf((float)m->dim)};
    tri_init down = {TRI_INIT_UNIFORM, 1 / sqrtf((float)m->ffn_dim)};
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_writer_enter(&w, l, "pair.%d.", l);
        tri_write_linear(&w, "fc1", f, d, up, m->bias ? &up : NULL);
        tri_write_linear(&w, "fc2", d, f, down, m->bias ? &down : NULL);
    }
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    (void)m;
    (void)batch;
    (void)err;
    return TR_OK;
}

static const tri_setting own[] = {
    TRI_BOOL_ROW("model.bias", "true", "Bias terms in linear layers (mlp)", "use_bias"),
    TRI_CHOICE_ROW(
        "model.act", "gelu", "none, relu, gelu, gelu_erf",
        "Activation (mlp, bert): gelu is the tanh form, gelu_erf the exact one, which a bert "
        "takes when none is given",
        "activation activation_function nonlinearity"),
    TRI_CHOICE_ROW(
        "model.loss", "mse", "sse, mse, mean",
        "Loss (mlp): half the sum of squared errors over the batch (sse), their mean (mse), or the "
        "mean of the outputs (mean)",
        "loss_fn criterion objective"),
};

tri_model_act tri_model_act_from(const tr_settings *s)
{
    static const tri_model_act acts[] = {TRI_MODEL_ACT_NONE, TRI_MODEL_ACT_RELU, TRI_MODEL_ACT_GELU,
                                         TRI_MODEL_ACT_GELU_ERF}; /* as model.act has them */
    return acts[tr_settings_choice(s, "model.act")];
}

static void read(const tr_settings *s, tri_model_config *m)
{
    static const tri_out_loss losses[] = {TRI_LOSS_SSE, TRI_LOSS_MSE, TRI_LOSS_MEAN};
    m->bias = tr_settings_bool(s, "model.bias");
    m->act = tri_model_act_from(s);
    m->loss = losses[tr_settings_choice(s, "model.loss")];
}

const tri_model_def tri_model_mlp = {
    .kind = "mlp",
    .help = "pairs of linear layers with an activation between, the textbook toy",
    .tasks = 1 << TRI_TASK_LM,
    .own = {.rows = own, .num_rows = sizeof own / sizeof *own},
    .read = read,
    .check = check,
    .params = params,
    .emit = emit,
};
