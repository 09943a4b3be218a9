/* Llama and its relatives: RMS norm before each branch, rotary positions, SwiGLU, grouped-query
 * attention, no biases, a head of its own or a shared one. Options make it Qwen 2 (biases on q, k
 * and v), Qwen 3 (norms on each query and key) and Mistral (attention that looks back so far only).
 * Parameter names are those of the released models. */
#include "model/llama.h"
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

/* One block: attention and feed-forward, each added to the residual stream. router: it has experts,
 * and this is where their router goes. */
static tri_id block(tri_graph *g, const tri_model_config *m, const tri_batch_inputs *in,
                    const tri_rope_config *rope, bool train, tri_routing *router, tri_id *stream,
                    tri_id branch)
{
    tri_id x = tri_residual_rmsnorm(g, "input_layernorm", stream, branch, m->norm_eps);
    tri_id q = project(g, m, in, rope, "self_attn.q_proj", "self_attn.q_norm", x);
    tri_id k = project(g, m, in, rope, "self_attn.k_proj", "self_attn.k_norm", x);
    tri_id v = tri_linear(g, "self_attn.v_proj", x);
    tri_attention_config look = {.causal = true, .window = (int32_t)m->window};
    x = tri_attention(g, "self_attn", (tri_attention_inputs){q, k, v, in->docs}, look, in);
    x = tri_linear(g, "self_attn.o_proj", x);

    x = tri_residual_rmsnorm(g, "post_attention_layernorm", stream, x, m->norm_eps);
    if (router)
        return tri_moe_emit(g, &m->moe, train, in, x, router);
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
    tri_routing *routers = tri_arena_alloc(&g->arena, (size_t)m->num_layers * sizeof *routers);
    for (int l = 0; l < (int)m->num_layers && routers; l++) {
        bool experts = tri_moe_has(&m->moe, l);
        routers[l].logits = TRI_NONE;
        tri_graph_enter(g, l, "layers.%d", l);
        branch = block(g, m, &in, &rope, mode == TRI_MODE_TRAIN, experts ? &routers[l] : NULL,
                       &stream, branch);
    }
    tri_graph_enter(g, (int)m->num_layers, "%s", "");
    tri_id x = tri_residual_rmsnorm(g, "norm", &stream, branch, m->norm_eps);
    tri_language_head(g, mode, batch, m->tied_head ? "embed_tokens.weight" : "lm_head.weight", x);
    if (mode == TRI_MODE_TRAIN && m->moe.num_experts > 0 && routers)
        tri_moe_losses(g, &m->moe, routers, (int)m->num_layers, "layers.%d");
}

/* Gains of queries and keys: of each head alike, or of all together. */
static void write_qk_norm(const tri_param_writer *w, const tri_model_config *m, const char *name,
                          tri_shape heads)
{
    tri_dim k = {TRI_DIM_K, m->head_dim};
    tri_shape shape = m->qk_norm_wide ? heads : (tri_shape){.rank = 1, .dim = {k}};
    tri_write_param(w, name, ".weight",
                    (tri_param){.shape = shape,
                                .split = (uint8_t)shape.rank,
                                .init = {TRI_INIT_ONE, 0},
                                .role = TRI_ROLE_NORM});
}

static void write_block(const tri_param_writer *w, const tri_model_config *m, bool experts)
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
        write_qk_norm(w, m, "self_attn.q_norm", heads);
        write_qk_norm(w, m, "self_attn.k_norm", kv_heads);
    }
    tri_write_linear(w, "self_attn.o_proj", width, heads, normal, NULL);
    tri_write_norm(w, "post_attention_layernorm", d, false);
    if (experts) {
        tri_moe_write(w, &m->moe, m->dim, m->init_std);
        return;
    }
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
        write_block(&w, m, tri_moe_has(&m->moe, l));
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
    TRI_TRY(tri_moe_check(&m->moe, m->num_layers, err));
    return tri_check_positions(m, batch, err);
}

const tri_model_def tri_model_llama = {
    .kind = "llama",
    .help = "Llama, Qwen, Mistral: RMS norm, rotary positions, SwiGLU, grouped-query attention",
    .tasks = 1 << TRI_TASK_LM,
    .sequences = true,
    .generates = true,
    .key_heads = true,
    .own = {.rows = tri_llama_rows, .num_rows = TRI_NUM_LLAMA_ROWS},
    .read = tri_llama_read,
    .check = check,
    .params = params,
    .emit = emit,
};
