/* GPT-2: learned positions, layer norm before each branch, GELU (tanh form), biases, dropout, and a
 * head that shares the token table. Parameter names are those of the released model. */
#include <math.h>

#include "model/sequence.h"
#include "model/writer.h"

static const float norm_eps = 1e-5f;

/* One block: attention and feed-forward, each added to the residual stream. */
static tri_id block(tri_graph *g, float dropout, const tri_batch_inputs *in, tri_id *stream,
                    tri_id branch)
{
    tri_id x = tri_residual_layernorm(g, "ln_1", stream, branch, norm_eps);
    x = tri_linear(g, "attn.c_attn", x); /* [B, T, qkv, H, K] */
    x = tri_attention(g, "attn", (tri_attention_inputs){x, TRI_NONE, TRI_NONE, in->docs},
                      (tri_attention_config){.causal = true, .dropout = dropout}, in);
    x = tri_linear(g, "attn.c_proj", x);
    x = tri_dropout(g, "attn.resid", x, dropout, in);

    x = tri_residual_layernorm(g, "ln_2", stream, x, norm_eps);
    x = tri_linear(g, "mlp.c_fc", x);
    x = tri_activation(g, "mlp.gelu", TRI_ACT_GELU, x);
    x = tri_linear(g, "mlp.c_proj", x);
    return tri_dropout(g, "mlp.resid", x, dropout, in);
}

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    tri_batch_inputs in = tri_sequence_inputs(g, batch);
    float dropout = mode == TRI_MODE_TRAIN ? m->dropout : 0;

    tri_graph_enter(g, -1, "%s", "");
    tri_id token = tri_embed(g, "wte", in.tokens);
    tri_id position = tri_embed(g, "wpe", in.positions);
    tri_id stream = tri_add(g, "embd.sum", token, position);
    stream = tri_dropout(g, "embd", stream, dropout, &in);
    tri_id branch = TRI_NONE;
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "h.%d", l);
        branch = block(g, dropout, &in, &stream, branch);
    }
    tri_graph_enter(g, (int)m->num_layers, "%s", "");
    tri_id x = tri_residual_layernorm(g, "ln_f", &stream, branch, norm_eps);
    tri_language_head(g, mode, batch, "wte.weight", x);
}

static void write_block(const tri_param_writer *w, const tri_model_config *m)
{
    const tri_init zero = {TRI_INIT_ZERO, 0}, normal = {TRI_INIT_NORMAL, m->init_std};
    /* Branches that end in the residual stream start smaller, so that its size does not grow with
     * the number of layers. */
    const tri_init residual = {TRI_INIT_NORMAL, m->init_std / sqrtf(2.0f * (float)m->num_layers)};
    tri_dim d = {TRI_DIM_D, m->dim}, f = {TRI_DIM_F, m->ffn_dim}, three = {TRI_DIM_QKV, 3};
    tri_dim h = {TRI_DIM_H, m->num_heads}, k = {TRI_DIM_K, m->dim / m->num_heads};
    tri_shape width = {.rank = 1, .dim = {d}}, hidden = {.rank = 1, .dim = {f}};
    tri_shape heads = {.rank = 2, .dim = {h, k}}, qkv = {.rank = 3, .dim = {three, h, k}};
    tri_write_norm(w, "ln_1", d, true);
    tri_write_linear(w, "attn.c_attn", qkv, width, normal, &zero);
    tri_write_linear(w, "attn.c_proj", width, heads, residual, &zero);
    tri_write_norm(w, "ln_2", d, true);
    tri_write_linear(w, "mlp.c_fc", hidden, width, normal, &zero);
    tri_write_linear(w, "mlp.c_proj", width, hidden, residual, &zero);
}

static void params(const tri_model_config *m, tri_param_table *table)
{
    tri_param_writer w = {.table = table, .scope = "", .layer = -1};
    tri_dim d = {TRI_DIM_D, m->dim};
    tri_write_embedding(&w, "wte", (tri_dim){TRI_DIM_V, m->vocab}, d, m->init_std);
    tri_write_embedding(&w, "wpe", (tri_dim){TRI_DIM_P, m->positions}, d, m->init_std / 2);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_writer_enter(&w, l, "h.%d.", l);
        write_block(&w, m);
    }
    tri_writer_enter(&w, (int)m->num_layers, "%s", "");
    tri_write_norm(&w, "ln_f", d, true);
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    TRI_TRY(tri_check_heads(m, err));
    return tri_check_positions(m, batch, err);
}

const tri_model_def tri_model_gpt2 = {
    .kind = "gpt2",
    .help = "GPT-2 and GPT-3: LayerNorm, learned positions, GELU, biases, tied head, dropout",
    .tasks = 1 << TRI_TASK_LM,
    .sequences = true,
    .generates = true,
    .check = check,
    .params = params,
    .emit = emit,
};
