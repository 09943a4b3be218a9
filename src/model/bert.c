/* BERT: a bidirectional encoder with learned positions and kinds of tokens, a norm after each sum,
 * biases, dropout, and the head of its task: masked tokens (every position, over the vocabulary;
 * the head shares the token table) or classification (the first position, over labels). Attention
 * always goes by document ids, since rows end in padding. Parameter names are those of the released
 * models without the leading "bert.". */
#include "model/sequence.h"
#include "model/writer.h"

typedef struct bert {
    const tri_model_config *m;
    const tri_batch_shape *batch;
    tri_mode mode;
    tri_graph *g;
    tri_batch_inputs in;
    tri_act act;
    float dropout;
} bert;

static tri_id embed(const bert *b)
{
    tri_graph *g = b->g;
    tri_shape bt = tri_shape_of(2, TRI_DIM_B, b->batch->rows, TRI_DIM_T, b->batch->seq_len);
    tri_id types = tri_graph_input(g, "types", TRI_I32, bt, true);
    tri_graph_enter(g, -1, "embeddings");
    tri_id word = tri_embed(g, "word_embeddings", b->in.tokens);
    tri_id type = tri_embed(g, "token_type_embeddings", types);
    tri_id position = tri_embed(g, "position_embeddings", b->in.positions);
    tri_id x = tri_add(g, "with_type", word, type);
    x = tri_residual_layernorm(g, "LayerNorm", &x, position, b->m->norm_eps);
    return tri_dropout(g, "drop", x, b->dropout, &b->in);
}

/* One block: attention and feed-forward, each normed after it has been added. */
static tri_id block(const bert *b, tri_id x)
{
    tri_graph *g = b->g;
    tri_id q = tri_linear(g, "attention.self.query", x);
    tri_id k = tri_linear(g, "attention.self.key", x);
    tri_id v = tri_linear(g, "attention.self.value", x);
    tri_attention_config look = {.causal = false, .dropout = b->dropout};
    tri_id y = tri_attention(g, "attention.self", (tri_attention_inputs){q, k, v, b->in.docs}, look,
                             &b->in);
    y = tri_linear(g, "attention.output.dense", y);
    y = tri_dropout(g, "attention.output.drop", y, b->dropout, &b->in);
    x = tri_residual_layernorm(g, "attention.output.LayerNorm", &x, y, b->m->norm_eps);

    y = tri_linear(g, "intermediate.dense", x);
    y = tri_activation(g, "intermediate.act", b->act, y);
    y = tri_linear(g, "output.dense", y);
    y = tri_dropout(g, "output.drop", y, b->dropout, &b->in);
    return tri_residual_layernorm(g, "output.LayerNorm", &x, y, b->m->norm_eps);
}

/* What each position could have been: over the vocabulary, by the token table. */
static void masked_head(const bert *b, tri_id x)
{
    tri_graph *g = b->g;
    if (b->mode == TRI_MODE_PREDICT) {
        tri_shape rows = tri_shape_of(1, TRI_DIM_B, b->batch->rows);
        x = tri_select_row(g, "wanted", x, tri_graph_input(g, "index", TRI_I32, rows, true), NULL);
    }
    x = tri_linear(g, "cls.predictions.transform.dense", x);
    x = tri_activation(g, "cls.predictions.transform.act", b->act, x);
    x = tri_residual_layernorm(g, "cls.predictions.transform.LayerNorm", &x, TRI_NONE,
                               b->m->norm_eps);
    x = tri_linear_tied(g, "logits.product", "embeddings.word_embeddings.weight", x);
    x = tri_bias(g, "logits", "cls.predictions.bias", x);
    tri_shape bt = tri_shape_of(2, TRI_DIM_B, b->batch->rows, TRI_DIM_T, b->batch->seq_len);
    tri_finish_logits(g, b->mode, x, bt);
}

/* What the row is: over the labels, by what its first position has gathered. */
static void label_head(const bert *b, tri_id x)
{
    tri_graph *g = b->g;
    tri_shape rows = tri_shape_of(1, TRI_DIM_B, b->batch->rows);
    tri_id first = tri_graph_input(g, "first", TRI_I32, rows, true);
    x = tri_select_row(g, "pooler.first", x, first, &b->in);
    x = tri_linear(g, "pooler.dense", x);
    x = tri_activation(g, "pooler.act", TRI_ACT_TANH, x);
    x = tri_dropout(g, "classifier.drop", x, b->dropout, &b->in);
    x = tri_linear_named(g, "logits", "classifier", x);
    tri_finish_logits(g, b->mode, x, rows);
}

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    static const tri_act acts[] = {[TRI_MODEL_ACT_RELU] = TRI_ACT_RELU,
                                   [TRI_MODEL_ACT_GELU] = TRI_ACT_GELU,
                                   [TRI_MODEL_ACT_GELU_ERF] = TRI_ACT_GELU_ERF};
    bert b = {.m = m,
              .batch = batch,
              .mode = mode,
              .g = g,
              .in = tri_sequence_inputs(g, batch),
              .act = acts[m->act],
              .dropout = mode == TRI_MODE_TRAIN ? m->dropout : 0};
    tri_id x = embed(&b);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_graph_enter(g, l, "encoder.layer.%d", l);
        x = block(&b, x);
    }
    tri_graph_enter(g, (int)m->num_layers, "%s", "");
    if (m->task == TRI_TASK_CLASSIFY)
        label_head(&b, x);
    else
        masked_head(&b, x);
}

static void write_block(const tri_param_writer *w, const tri_model_config *m)
{
    const tri_init zero = {TRI_INIT_ZERO, 0}, normal = {TRI_INIT_NORMAL, m->init_std};
    tri_dim d = {TRI_DIM_D, m->dim}, f = {TRI_DIM_F, m->ffn_dim};
    tri_dim h = {TRI_DIM_H, m->num_heads}, g = {TRI_DIM_G, m->num_heads};
    tri_dim k = {TRI_DIM_K, m->dim / m->num_heads};
    tri_shape width = {.rank = 1, .dim = {d}}, hidden = {.rank = 1, .dim = {f}};
    tri_shape heads = {.rank = 2, .dim = {h, k}}, kv_heads = {.rank = 2, .dim = {g, k}};
    tri_write_linear(w, "attention.self.query", heads, width, normal, &zero);
    tri_write_linear(w, "attention.self.key", kv_heads, width, normal, &zero);
    tri_write_linear(w, "attention.self.value", kv_heads, width, normal, &zero);
    tri_write_linear(w, "attention.output.dense", width, heads, normal, &zero);
    tri_write_norm(w, "attention.output.LayerNorm", d, true);
    tri_write_linear(w, "intermediate.dense", hidden, width, normal, &zero);
    tri_write_linear(w, "output.dense", width, hidden, normal, &zero);
    tri_write_norm(w, "output.LayerNorm", d, true);
}

static void params(const tri_model_config *m, tri_param_table *table)
{
    const tri_init zero = {TRI_INIT_ZERO, 0}, normal = {TRI_INIT_NORMAL, m->init_std};
    tri_param_writer w = {.table = table, .scope = "embeddings.", .layer = -1};
    tri_dim d = {TRI_DIM_D, m->dim}, v = {TRI_DIM_V, m->vocab};
    tri_shape width = {.rank = 1, .dim = {d}}, vocab = {.rank = 1, .dim = {v}};
    tri_write_embedding(&w, "word_embeddings", v, d, m->init_std);
    tri_write_embedding(&w, "position_embeddings", (tri_dim){TRI_DIM_P, m->positions}, d,
                        m->init_std);
    tri_write_embedding(&w, "token_type_embeddings", (tri_dim){TRI_DIM_N, m->types}, d,
                        m->init_std);
    tri_write_norm(&w, "LayerNorm", d, true);
    for (int l = 0; l < (int)m->num_layers; l++) {
        tri_writer_enter(&w, l, "encoder.layer.%d.", l);
        write_block(&w, m);
    }
    tri_writer_enter(&w, (int)m->num_layers, "%s", "");
    if (m->task == TRI_TASK_CLASSIFY) {
        tri_write_linear(&w, "pooler.dense", width, width, normal, &zero);
        tri_write_linear(&w, "classifier", tri_shape_of(1, TRI_DIM_N, m->num_labels), width, normal,
                         &zero);
        return;
    }
    tri_write_linear(&w, "cls.predictions.transform.dense", width, width, normal, &zero);
    tri_write_norm(&w, "cls.predictions.transform.LayerNorm", d, true);
    tri_write_bias(&w, "cls.predictions.bias", vocab);
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    TRI_TRY(tri_check_heads(m, err));
    if (m->act == TRI_MODEL_ACT_NONE)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.act is none, but a bert needs one; gelu_erf is what the released "
                        "models have");
    return tri_check_positions(m, batch, err);
}

static const tri_setting own[] = {
    TRI_INT_ROW("model.types", "2", 1, 1000000,
                "Kinds of tokens, such as first and second sentence (bert)",
                "type_vocab_size segments token_types"),
};

static void read(const tr_settings *s, tri_model_config *m)
{
    m->types = tr_settings_int(s, "model.types");
    m->norm_eps = (float)tr_settings_float(s, "model.norm_eps");
    m->act = tri_model_act_from(s);
}

const tri_model_def tri_model_bert = {
    .kind = "bert",
    .help = "BERT: bidirectional, LayerNorm after each sum, masked tokens or classification",
    .tasks = 1 << TRI_TASK_MLM | 1 << TRI_TASK_CLASSIFY,
    .sequences = true,
    .documents = true,
    .own = {.rows = own,
            .num_rows = sizeof own / sizeof *own,
            .reads = "model.act model.norm_eps",
            .defaults = "model.task=mlm model.act=gelu_erf model.norm_eps=1e-12"},
    .read = read,
    .check = check,
    .params = params,
    .emit = emit,
};
