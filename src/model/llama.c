/* Llama and its relatives: RMS norm before each branch, rotary positions, SwiGLU, grouped-query
 * attention, no biases, a head of its own or a shared one. Options make it Qwen 2 (biases on q, k
 * and v), Qwen 3 (norms on each query and key) and Mistral (attention that looks back so far only).
 * Parameter names are those of the released models. */
#include "model/sequence.h"
#include "model/writer.h"

/* Queries or keys: projected, normed where the model does, turned to their positions. */
static tri_id project(tri_graph *g, const tri_model_config *m, const tri_batch_inputs *in,
                      const tri_rope_config *rope, const char *name, const char *norm, tri_id x)
{
    x = tri_linear(g, name, x);
    if (m->qk_norm)
        x = tri_rmsnorm(g, norm, x, m->norm_eps);
    return tri_rope(g, name, x, in->positions, rope);
}

/* One block: attention and feed-forward, each added to the residual stream. */
static tri_id block(tri_graph *g, const tri_model_config *m, const tri_batch_inputs *in,
                    const tri_rope_config *rope, tri_id *stream, tri_id branch)
{
    tri_id x = tri_residual_rmsnorm(g, "input_layernorm", stream, branch, m->norm_eps);
    tri_id q = project(g, m, in, rope, "self_attn.q_proj", "self_attn.q_norm", x);
    tri_id k = project(g, m, in, rope, "self_attn.k_proj", "self_attn.k_norm", x);
    tri_id v = tri_linear(g, "self_attn.v_proj", x);
    tri_attention_config look = {.causal = true, .window = (int32_t)m->window};
    x = tri_attention(g, "self_attn", (tri_attention_inputs){q, k, v, in->docs}, look, in);
    x = tri_linear(g, "self_attn.o_proj", x);

    x = tri_residual_rmsnorm(g, "post_attention_layernorm", stream, x, m->norm_eps);
    tri_id gate = tri_linear(g, "mlp.gate_proj", x);
    tri_id up = tri_linear(g, "mlp.up_proj", x);
    return tri_linear(g, "mlp.down_proj", tri_swiglu(g, "mlp.act", gate, up));
}

/* The longest text of a program: what the cache has room for, or the batch's rows. */
static tr_status resolve_rope(const tri_model_config *m, const tri_batch_shape *batch,
                              tri_rope_config *rope, tr_error *err)
{
    int64_t length = batch->cache.len > batch->seq_len ? batch->cache.len : batch->seq_len;
    return tri_rope_resolve(&m->rope, m->head_dim, length, rope, err);
}

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    tri_batch_inputs in = tri_sequence_inputs(g, batch);
    tri_rope_config rope;
    tr_error err;
    if (resolve_rope(m, batch, &rope, &err) != TR_OK) {
        tri_graph_fail(g, "%s", err.message);
        return;
    }
    tri_graph_enter(g, -1, "%s", "");
    tri_id stream = tri_embed(g, "embed_tokens", in.tokens), branch = TRI_NONE;
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "layers.%d", l);
        branch = block(g, m, &in, &rope, &stream, branch);
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
    tri_rope_config rope;
    TRI_TRY(resolve_rope(m, batch, &rope, err));
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
    TRI_FLOAT_ROW("model.rope_part", "1", 0, 1, "Part of each head that turns (llama)",
                  "partial_rotary_factor rotary_pct rotary_percent"),
    TRI_FLOAT_ROW("model.rope_factor", "0", 0, 1000,
                  "How much longer than before texts may be: stretches rotary frequencies, as "
                  "model.rope_scaling says; 0 is off",
                  "rope_scaling_factor"),
    TRI_CHOICE_ROW(
        "model.rope_scaling", "llama3", "llama3, linear, dynamic, yarn, longrope",
        "How model.rope_factor stretches: llama3 low frequencies; linear all; dynamic the "
        "base, by the length of texts; yarn along a ramp; longrope by two lists",
        "rope_type"),
    TRI_INT_ROW("model.rope_original", "8192", 1, TRI_BILLION,
                "Positions before the stretching (original_max_position_embeddings)",
                "original_max_position_embeddings"),
    TRI_FLOAT_ROW("model.rope_low", "1", 0, 1000, "Llama 3.1's low_freq_factor", "low_freq_factor"),
    TRI_FLOAT_ROW("model.rope_high", "4", 0, 1000, "Llama 3.1's high_freq_factor",
                  "high_freq_factor"),
    TRI_FLOAT_ROW("model.rope_slow", "1", 0, 1000, "YaRN's beta_slow", "beta_slow"),
    TRI_FLOAT_ROW("model.rope_fast", "32", 0, 1000, "YaRN's beta_fast", "beta_fast"),
    TRI_BOOL_ROW("model.rope_truncate", "true", "YaRN's ramp begins and ends at whole pairs",
                 "truncate"),
    TRI_FLOAT_ROW("model.rope_magnitude", "0", 0, 1000,
                  "What yarn and longrope scale turned queries and keys by (attention_factor); 0: "
                  "what their authors say",
                  "attention_factor"),
    TRI_STRING_ROW("model.rope_short", "",
                   "Longrope: what divides the frequency of each pair, with commas between, for "
                   "texts of up to model.rope_original",
                   "short_factor"),
    TRI_STRING_ROW("model.rope_long", "", "Longrope: the same for longer texts", "long_factor"),
};

static tri_rope_setting read_rope(const tr_settings *s)
{
    static const tri_rope_kind kinds[] = {TRI_ROPE_AS_LLAMA3, TRI_ROPE_AS_LINEAR,
                                          TRI_ROPE_AS_DYNAMIC, TRI_ROPE_AS_YARN,
                                          TRI_ROPE_AS_LONGROPE};
    return (tri_rope_setting){.kind = kinds[tr_settings_choice(s, "model.rope_scaling")],
                              .theta = tr_settings_float(s, "model.rope_theta"),
                              .factor = tr_settings_float(s, "model.rope_factor"),
                              .low = tr_settings_float(s, "model.rope_low"),
                              .high = tr_settings_float(s, "model.rope_high"),
                              .slow = tr_settings_float(s, "model.rope_slow"),
                              .fast = tr_settings_float(s, "model.rope_fast"),
                              .truncate = tr_settings_bool(s, "model.rope_truncate"),
                              .original = tr_settings_int(s, "model.rope_original"),
                              .magnitude = tr_settings_float(s, "model.rope_magnitude"),
                              .part = tr_settings_float(s, "model.rope_part"),
                              .short_list = tr_settings_string(s, "model.rope_short"),
                              .long_list = tr_settings_string(s, "model.rope_long")};
}

static void read(const tr_settings *s, tri_model_config *m)
{
    m->norm_eps = (float)tr_settings_float(s, "model.norm_eps");
    m->tied_head = tr_settings_bool(s, "model.tied_head");
    m->qkv_bias = tr_settings_bool(s, "model.qkv_bias");
    m->qk_norm = tr_settings_bool(s, "model.qk_norm");
    m->window = tr_settings_int(s, "model.window");
    m->rope = read_rope(s);
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
