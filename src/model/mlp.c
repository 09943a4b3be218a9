/* The textbook toy: pairs of linear layers dim -> ffn_dim -> dim, an activation between the two of a
 * pair or none, and a loss on the last output. Small enough to check by hand. */
#include <math.h>

#include "model/model.h"

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    tri_shape bd = tri_shape_of(2, TRI_DIM_B, batch->rows, TRI_DIM_D, m->dim);
    tri_id x = tri_graph_input(g, "x", TRI_F32, bd, true);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "pair.%d", l);
        x = tri_linear(g, "fc1", x);
        if (m->act != TRI_MLP_NONE)
            x = tri_activation(g, "act", m->act == TRI_MLP_RELU ? TRI_ACT_RELU : TRI_ACT_GELU, x);
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
static void add_linear(tri_param_table *table, const tri_model_config *m, int layer,
                       const char *name, tri_dim out, tri_dim in)
{
    tri_init init = {TRI_INIT_UNIFORM, 1 / sqrtf((float)in.size)};
    tri_param weight = {
        .name = tri_arena_printf(&table->arena, "pair.%d.%s.weight", layer, name),
        .shape = {.rank = 2, .dim = {out, in}},
        .split = 1,
        .init = init,
        .role = TRI_ROLE_MATRIX,
        .layer = layer,
    };
    tri_param_add(table, weight);
    if (!m->bias)
        return;
    tri_param bias = {
        .name = tri_arena_printf(&table->arena, "pair.%d.%s.bias", layer, name),
        .shape = {.rank = 1, .dim = {out}},
        .split = 1,
        .init = init,
        .role = TRI_ROLE_BIAS,
        .layer = layer,
    };
    tri_param_add(table, bias);
}

static void params(const tri_model_config *m, tri_param_table *table)
{
    tri_dim d = {TRI_DIM_D, m->dim}, f = {TRI_DIM_F, m->ffn_dim};
    for (int l = 0; l < (int)m->num_layers; l++) {
        add_linear(table, m, l, "fc1", f, d);
        add_linear(table, m, l, "fc2", d, f);
    }
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    (void)m;
    (void)batch;
    (void)err;
    return TR_OK;
}

const tri_model_def tri_model_mlp = {
    .kind = "mlp",
    .help = "pairs of linear layers with an activation between, the textbook toy",
    .check = check,
    .params = params,
    .emit = emit,
};
