/* Llama and its relatives: RMS norm before each branch, rotary positions, SwiGLU, grouped-query
 * attention, no biases, a head of its own or a shared one. Options make it Qwen 2 (biases on q, k
 * and v), Qwen 3 (norms on each query and key) and Mistral (attention that looks back so far only).
 * Parameter names are those of the released models. */
#include "model/sequence.h"
#include "model/writer.h"

/* Queries or keys: projected, normed where the model does, turned to their positions. */
static tri_id project(tri_graph *g, const tri_model_config *m, const tri_batch_inputs *in,
                      const char *name, const char *norm, tri_id x)
{
    x = tri_linear(g, name, x);
    if (m->qk_norm)
        x = tri_rmsnorm(g, norm, x, m->norm_eps);
    return tri_rope(g, name, x, in->positions, &m->rope);
}

/* One block: attention and feed-forward, each added to the residual stream. */
static tri_id block(tri_graph *g, const tri_model_config *m, const tri_batch_inputs *in,
                    tri_id *stream, tri_id branch)
{
    tri_id x = tri_residual_rmsnorm(g, "input_layernorm", stream, branch, m->norm_eps);
    tri_id q = project(g, m, in, "self_attn.q_proj", "self_attn.q_norm", x);
    tri_id k = project(g, m, in, "self_attn.k_proj", "self_attn.k_norm", x);
    tri_id v = tri_linear(g, "self_attn.v_proj", x);
    tri_attention_config look = {.causal = true, .window = (int32_t)m->window};
    x = tri_attention(g, "self_attn", (tri_attention_inputs){q, k, v, in->docs}, look, in);
    x = tri_linear(g, "self_attn.o_proj", x);

    x = tri_residual_rmsnorm(g, "post_attention_layernorm", stream, x, m->norm_eps);
    tri_id gate = tri_linear(g, "mlp.gate_proj", x);
    tri_id up = tri_linear(g, "mlp.up_proj", x);
    return tri_linear(g, "mlp.down_proj", tri_swiglu(g, "mlp.act", gate, up));
}

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    tri_batch_inputs in = tri_sequence_inputs(g, batch);
    tri_graph_enter(g, -1, "%s", "");
    tri_id stream = tri_embed(g, "embed_tokens", in.tokens), branch = TRI_NONE;
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "layers.%d", l);
        branch = block(g, m, &in, &stream, branch);
    }
    tri_graph_enter(g, (int)m->num_layers, "%s", "");
    tri_id x = tri_residual_rmsnorm(g, "norm", &stream, branch, m->norm_eps);
    tri_language_head(g, mode, batch, m->tied_head ? "embed_tokens.weight" : "lm_head.weight", x);
}

static void write_block(const tri_param_writer *w, const tri_model_config *m)
{
    const tri_init zero = {TRI_INIT_ZERO, 0}, normal = {TRI_INIT_NORMAL, m->init_std};
    const tri_init *bias = m->qkv_bias ? &zero : NULL;
    tri_dim d = {TRI_DIM_D, m->dim}, f = {TRI_DIM_F, m->ffn_dim}, k = {TRI_DIM_K, m->head_dim};
    tri_dim h = {TRI_DIM_H, m->num_heads}, g = {TRI_DIM_G, m->num_kv_heads};
    tri_shape width = {.rank = 1, .dim = {d}}, hidden = {.rank = 1, .dim = {f}};
    tri_shape heads = {.rank = 2, .dim = {h, k}}, kv_heads = {.rank = 2, .dim = {g, k}};
    tri_write_norm(w, "input_layernorm", d, false);
    tri_write_linear(w, "self_attn.q_proj", heads, width, normal, bias);
    tri_write_linear(w, "self_attn.k_proj", kv_heads, width, normal, bias);
    tri_write_linear(w, "self_attn.v_proj", kv_heads, width, normal, bias);
    if (m->qk_norm) {
        tri_write_norm(w, "self_attn.q_norm", k, false);
        tri_write_norm(w, "self_attn.k_norm", k, false);
    }
    tri_write_linear(w, "self_attn.o_proj", width, heads, normal, NULL);
    tri_write_norm(w, "post_attention_layernorm", d, false);
    tri_write_linear(w, "mlp.gate_proj", hidden, width, normal, NULL);
    tri_write_linear(w, "mlp.up_proj", hidden, width, normal, NULL);
    tri_write_linear(w, "mlp.down_proj", width, hidden, normal, NULL);
}

static void params(const tri_model_config *m, tri_param_table *table)
{
    tri_param_writer w = {.table = table, .scope = "", .layer = -1};
    tri_dim d = {TRI_DIM_D, m->dim}, v = {TRI_DIM_V, m->vocab};
    tri_write_embedding(&w, "embed_tokens", v, d, m->init_std);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_writer_enter(&w, l, "layers.%d.", l);
        write_block(&w, m);
    }
    tri_writer_enter(&w, (int)m->num_layers, "%s", "");
    tri_write_norm(&w, "norm", d, false);
    if (!m->tied_head)
        tri_write_embedding(&w, "lm_head", v, d, m->init_std);
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    if (m->head_dim * m->num_heads != m->dim && m->head_dim == m->dim / m->num_heads)
        TRI_TRY(tri_check_heads(m, err));
    if (m->head_dim % 2 != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.head_dim is %lld; rotary positions turn pairs, so it must be even",
                        (long long)m->head_dim);
    if (m->num_heads % m->num_kv_heads != 0) {
        int64_t kv = m->num_kv_heads;
        while (m->num_heads % kv != 0)
            kv--;
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.num_kv_heads is %lld, which does not divide model.num_heads %lld; "
                        "the nearest that does is %lld",
                        (long long)m->num_kv_heads, (long long)m->num_heads, (long long)kv);
    }
    if (m->dropout > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.dropout is %g, but llama models have none; set it to 0",
                        (double)m->dropout);
    return tri_check_positions(m, batch, err);
}

static const tri_setting own[] = {
    TRI_FLOAT_ROW(
        "model.norm_eps", "1e-5", 0, 1,
        "Added to the variance in norms (llama, bert; a bert takes 1e-12 when none is given)",
        "layer_norm_eps layernorm_epsilon eps"),
    TRI_BOOL_ROW("model.tied_head", "false",
                 "The head shares the token table (llama; gpt2 always does)",
                 "tie_embeddings weight_tying"),
    TRI_BOOL_ROW("model.qkv_bias", "false", "Biases on query, key and value (llama; as in Qwen 2)",
                 "use_qkv_bias"),
    TRI_BOOL_ROW("model.qk_norm", "false", "Norms on each query and key (llama; as in Qwen 3)",
                 "use_qk_norm"),
    TRI_INT_ROW(
        "model.window", "0", 0, TRI_BILLION,
        "Positions that attention looks back, itself included (llama; as in Mistral); 0 is all",
        "local_attention"),
    TRI_FLOAT_ROW("model.rope_theta", "10000", 1, 1e12, "Base of the rotary frequencies (llama)",
                  "rope_base rotary_emb_base theta"),
    TRI_FLOAT_ROW("model.rope_factor", "0", 0, 1000,
                  "Stretches low rotary frequencies, as Llama 3.1 does; 0 is off", "rope_scaling"),
    TRI_FLOAT_ROW("model.rope_low", "1", 0, 1000, "Llama 3.1's low_freq_factor", "low_freq_factor"),
    TRI_FLOAT_ROW("model.rope_high", "4", 0, 1000, "Llama 3.1's high_freq_factor",
                  "high_freq_factor"),
    TRI_INT_ROW("model.rope_original", "8192", 1, TRI_BILLION,
                "Positions before the stretching (Llama 3.1's original_max_position_embeddings)",
                "original_max_position_embeddings"),
};

static void read(const tr_settings *s, tri_model_config *m)
{
    m->norm_eps = (float)tr_settings_float(s, "model.norm_eps");
    m->tied_head = tr_settings_bool(s, "model.tied_head");
    m->qkv_bias = tr_settings_bool(s, "model.qkv_bias");
    m->qk_norm = tr_settings_bool(s, "model.qk_norm");
    m->window = tr_settings_int(s, "model.window");
    m->rope = (tri_rope_config){.theta = (float)tr_settings_float(s, "model.rope_theta"),
                                .factor = (float)tr_settings_float(s, "model.rope_factor"),
                                .low_freq_factor = (float)tr_settings_float(s, "model.rope_low"),
                                .high_freq_factor = (float)tr_settings_float(s, "model.rope_high"),
                                .original_max_position =
                                    (float)tr_settings_int(s, "model.rope_original")};
}

const tri_model_def tri_model_llama = {
    .kind = "llama",
    .help = "Llama, Qwen, Mistral: RMS norm, rotary positions, SwiGLU, grouped-query attention",
    .tasks = 1 << TRI_TASK_LM,
    .sequences = true,
    .generates = true,
    .key_heads = true,
    .own = {.rows = own, .num_rows = sizeof own / sizeof *own},
    .read = read,
    .check = check,
    .params = params,
    .emit = emit,
};
