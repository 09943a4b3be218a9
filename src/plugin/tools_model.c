/* What a plug-in may call while it describes a model. Nothing that comes from there is believed:
 * names, values and dims are looked at, and the first that makes no sense is the model's error. */
#include <string.h>

#include "model/sequence.h"
#include "model/writer.h"
#include "plugin/plugin.h"

static const tri_outside_model *model_of(const tri_model_config *m)
{
    return (const tri_outside_model *)m->def;
}

static tr_model describe(const tri_model_config *m, int64_t seq_len)
{
    return (tr_model){.settings = m->settings,
                      .num_layers = m->num_layers,
                      .dim = m->dim,
                      .num_heads = m->num_heads,
                      .num_kv_heads = m->num_kv_heads,
                      .head_dim = m->head_dim,
                      .ffn_dim = m->ffn_dim,
                      .vocab = m->vocab,
                      .positions = m->positions,
                      .seq_len = seq_len,
                      .dropout = (double)m->dropout,
                      .init_std = (double)m->init_std};
}

/* ---- parameters ---- */

struct tr_params {
    tri_param_writer writer;
    int64_t num_layers;
    tr_error err; /* the first that was wrong */
};

static bool is_wrong(tr_params *p, bool wrong, const char *name, const char *what)
{
    if (wrong && p->err.status == TR_OK)
        tri_fail(&p->err, TR_ERROR_INPUT, "parameter %.80s: %s", name ? name : "without a name",
                 what);
    return p->err.status != TR_OK;
}

static void params_enter(tr_params *p, int layer, const char *scope)
{
    if (is_wrong(p, !scope || layer < -1 || layer > p->num_layers, scope,
                 "a scope has a layer from -1 to the number of layers"))
        return;
    tri_writer_enter(&p->writer, layer, "%s%s", scope, *scope ? "." : "");
}

static bool is_new(tr_params *p, const char *name)
{
    bool named = name && *name && strlen(name) < 200;
    char full[500] = "";
    if (named)
        snprintf(full, sizeof full, "%.250s%s.weight", p->writer.scope, name);
    bool is_there = named && tri_param_find(p->writer.table, full) != TRI_NONE;
    return !is_wrong(p, !named, NULL, "it needs one") &&
           !is_wrong(p, is_there, full, "there is one of that name");
}

static bool take_dim(tr_params *p, const char *name, tr_dim dim, tri_dim *out)
{
    static const tri_dim_name names[] = {
        [TR_DIM_WIDTH] = TRI_DIM_D,     [TR_DIM_HEADS] = TRI_DIM_H, [TR_DIM_KV_HEADS] = TRI_DIM_G,
        [TR_DIM_HEAD] = TRI_DIM_K,      [TR_DIM_FFN] = TRI_DIM_F,   [TR_DIM_VOCAB] = TRI_DIM_V,
        [TR_DIM_POSITIONS] = TRI_DIM_P, [TR_DIM_COUNT] = TRI_DIM_N,
    };
    bool known = dim.name >= TR_DIM_WIDTH && dim.name <= TR_DIM_COUNT;
    if (is_wrong(p, !known || dim.size < 1 || dim.size > INT64_C(1) << 40, name,
                 "a dim has a name of tr_dim_name and a size of at least 1"))
        return false;
    *out = (tri_dim){names[dim.name], dim.size};
    return true;
}

static bool take_dims(tr_params *p, const char *name, tr_dims dims, tri_shape *out)
{
    if (is_wrong(p, dims.num < 1 || dims.num > TR_MAX_DIMS, name, "it has 1 to 3 dims a side"))
        return false;
    *out = (tri_shape){.rank = dims.num};
    for (int i = 0; i < dims.num; i++)
        if (!take_dim(p, name, dims.dim[i], &out->dim[i]))
            return false;
    return true;
}

static void linear_params(tr_params *p, const char *name, tr_dims out, tr_dims in, double std,
                          bool bias)
{
    const tri_init zero = {TRI_INIT_ZERO, 0}, normal = {TRI_INIT_NORMAL, (float)std};
    tri_shape to, from;
    if (is_new(p, name) && take_dims(p, name, out, &to) && take_dims(p, name, in, &from))
        tri_write_linear(&p->writer, name, to, from, normal, bias ? &zero : NULL);
}

static void norm_params(tr_params *p, const char *name, tr_dim dim, bool shift)
{
    tri_dim of;
    if (is_new(p, name) && take_dim(p, name, dim, &of))
        tri_write_norm(&p->writer, name, of, shift);
}

static void embedding_params(tr_params *p, const char *name, tr_dim rows, tr_dim width, double std)
{
    tri_dim r, w;
    if (is_new(p, name) && take_dim(p, name, rows, &r) && take_dim(p, name, width, &w))
        tri_write_embedding(&p->writer, name, r, w, (float)std);
}

static tr_status write_params(const tri_model_config *m, int64_t seq_len, tri_param_table *table,
                              tr_error *err)
{
    const tri_outside_model *model = model_of(m);
    tr_model description = describe(m, seq_len);
    tr_params p = {.writer = {.table = table, .scope = "", .layer = -1},
                   .num_layers = m->num_layers};
    model->row->params(&tri_plugin_tools, &description, &p);
    if (p.err.status == TR_OK && table->count == 0)
        tri_fail(&p.err, TR_ERROR_INPUT, "there are no parameters");
    if (p.err.status == TR_OK)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "model.kind %s of a plug-in: %s", m->kind, p.err.message);
}

static void params(const tri_model_config *m, tri_param_table *table)
{
    (void)write_params(m, 0, table, NULL); /* check has tried it */
}

static tr_status check(const tri_model_config *m, const tri_batch_shape *batch, tr_error *err)
{
    const tri_outside_model *model = model_of(m);
    tr_model description = describe(m, batch->seq_len);
    char why[300] = "these sizes do not fit together";
    TRI_TRY(tri_check_positions(m, batch, err));
    if (model->row->check && !model->row->check(&tri_plugin_tools, &description, why, sizeof why)) {
        why[sizeof why - 1] = 0;
        return tri_fail(err, TR_ERROR_INPUT, "model.kind is %s: %s", m->kind, why);
    }
    tri_param_table table;
    tri_param_table_init(&table);
    tr_status status = write_params(m, batch->seq_len, &table, err);
    tri_param_table_fini(&table);
    return status;
}

/* ---- the graph ---- */

struct tr_graph {
    tri_graph *g;
    tri_batch_inputs in;
    const tri_batch_shape *batch;
    tri_mode mode;
    bool has_head;
};

/* Whether a call makes sense: its name, and up to three values, TR_NO_VALUE among them only after a
 * failure. */
static bool is_call(tr_graph *graph, const char *name, tr_value a, tr_value b, tr_value c)
{
    tri_graph *g = graph->g;
    const tr_value most = (tr_value)g->num_values;
    if (!name || !*name || strlen(name) > 200)
        tri_graph_fail(g, "the plug-in's model gives an operator no name");
    else if (a >= most || b >= most || c >= most)
        tri_graph_fail(g, "the plug-in's model gives %s a value that there is not", name);
    return g->status == TR_OK;
}

static void enter(tr_graph *graph, int layer, const char *scope)
{
    if (!scope || layer < -1 || layer > graph->g->num_layers)
        tri_graph_fail(graph->g, "the plug-in's model enters layer %d of %d", layer,
                       graph->g->num_layers);
    else
        tri_graph_enter(graph->g, layer, "%s", scope);
}

static tr_value tokens(tr_graph *graph)
{
    return graph->in.tokens;
}

static tr_value positions(tr_graph *graph)
{
    return graph->in.positions;
}

static tr_value embed(tr_graph *graph, const char *name, tr_value ids)
{
    bool integers = ids == graph->in.tokens || ids == graph->in.positions;
    if (!integers)
        tri_graph_fail(graph->g, "the plug-in's model embeds what is neither tokens nor positions");
    return is_call(graph, name, ids, 0, 0) ? tri_embed(graph->g, name, ids) : TR_NO_VALUE;
}

static tr_value linear(tr_graph *graph, const char *name, tr_value x)
{
    return is_call(graph, name, x, 0, 0) ? tri_linear(graph->g, name, x) : TR_NO_VALUE;
}

static tr_value add(tr_graph *graph, const char *name, tr_value a, tr_value b)
{
    return is_call(graph, name, a, b, 0) ? tri_add(graph->g, name, a, b) : TR_NO_VALUE;
}

static tr_value activation(tr_graph *graph, const char *name, tr_act act, tr_value x)
{
    static const tri_act acts[] = {
        [TR_ACT_GELU] = TRI_ACT_GELU, [TR_ACT_GELU_ERF] = TRI_ACT_GELU_ERF,
        [TR_ACT_RELU] = TRI_ACT_RELU, [TR_ACT_SILU] = TRI_ACT_SILU,
        [TR_ACT_TANH] = TRI_ACT_TANH,
    };
    if (act < TR_ACT_GELU || act > TR_ACT_TANH)
        tri_graph_fail(graph->g, "the plug-in's model has an activation %d, which is none", act);
    return is_call(graph, name, x, 0, 0) ? tri_activation(graph->g, name, acts[act], x)
                                         : TR_NO_VALUE;
}

static tr_value swiglu(tr_graph *graph, const char *name, tr_value gate, tr_value up)
{
    return is_call(graph, name, gate, up, 0) ? tri_swiglu(graph->g, name, gate, up) : TR_NO_VALUE;
}

static tr_value dropout(tr_graph *graph, const char *name, tr_value x, double p)
{
    if (!(p >= 0 && p < 1))
        tri_graph_fail(graph->g, "the plug-in's model drops with a probability of %g", p);
    float used = graph->mode == TRI_MODE_TRAIN ? (float)p : 0;
    return is_call(graph, name, x, 0, 0) ? tri_dropout(graph->g, name, x, used, &graph->in)
                                         : TR_NO_VALUE;
}

static bool is_stream(tr_graph *graph, const char *name, const tr_value *stream, tr_value branch)
{
    return is_call(graph, name, stream ? *stream : TR_NO_VALUE, branch == TR_NO_VALUE ? 0 : branch,
                   0);
}

static tr_value layernorm(tr_graph *graph, const char *name, tr_value *stream, tr_value branch,
                          double eps)
{
    return is_stream(graph, name, stream, branch)
               ? tri_residual_layernorm(graph->g, name, stream, branch, (float)eps)
               : TR_NO_VALUE;
}

static tr_value rmsnorm(tr_graph *graph, const char *name, tr_value *stream, tr_value branch,
                        double eps)
{
    return is_stream(graph, name, stream, branch)
               ? tri_residual_rmsnorm(graph->g, name, stream, branch, (float)eps)
               : TR_NO_VALUE;
}

static tr_value head_norm(tr_graph *graph, const char *name, tr_value x, double eps)
{
    return is_call(graph, name, x, 0, 0) ? tri_rmsnorm(graph->g, name, x, (float)eps) : TR_NO_VALUE;
}

static tr_value rope(tr_graph *graph, const char *name, tr_value x, const tr_rope *how)
{
    if (!how)
        tri_graph_fail(graph->g, "the plug-in's model has rope without a tr_rope");
    if (!is_call(graph, name, x, 0, 0))
        return TR_NO_VALUE;
    tri_rope_config config = {.theta = (float)how->theta,
                              .factor = (float)how->factor,
                              .low_freq_factor = (float)how->low,
                              .high_freq_factor = (float)how->high,
                              .original_max_position = (float)how->original};
    return tri_rope(graph->g, name, x, graph->in.positions, &config);
}

static tr_value attention(tr_graph *graph, const char *name, tr_value q, tr_value k, tr_value v,
                          int64_t window, double p)
{
    if (window < 0 || window > INT32_MAX || !(p >= 0 && p < 1))
        tri_graph_fail(graph->g, "the plug-in's attention has a window of %lld and drops %g",
                       (long long)window, p);
    if (!is_call(graph, name, q, k, v))
        return TR_NO_VALUE;
    tri_attention_config look = {.causal = true,
                                 .window = (int32_t)window,
                                 .dropout = graph->mode == TRI_MODE_TRAIN ? (float)p : 0};
    return tri_attention(graph->g, name, (tri_attention_inputs){q, k, v, graph->in.docs}, look,
                         &graph->in);
}

static void head(tr_graph *graph, const char *weight, tr_value x)
{
    if (graph->has_head)
        tri_graph_fail(graph->g, "the plug-in's model has two heads");
    graph->has_head = true;
    if (is_call(graph, weight, x, 0, 0))
        tri_language_head(graph->g, graph->mode, graph->batch, weight, x);
}

static void emit(const tri_model_config *m, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *g)
{
    tr_graph graph = {.g = g, .in = tri_sequence_inputs(g, batch), .batch = batch, .mode = mode};
    tr_model description = describe(m, batch->seq_len);
    tri_graph_enter(g, -1, "%s", "");
    if (g->status == TR_OK)
        model_of(m)->row->emit(&tri_plugin_tools, &description, &graph);
    if (!graph.has_head)
        tri_graph_fail(g, "model.kind %s of a plug-in ends without tr_tools.head", m->kind);
}

const tr_tools tri_plugin_tools = {
    .setting_bool = tr_settings_bool,
    .setting_int = tr_settings_int,
    .setting_float = tr_settings_float,
    .setting_string = tr_settings_string,
    .params_enter = params_enter,
    .linear_params = linear_params,
    .norm_params = norm_params,
    .embedding_params = embedding_params,
    .enter = enter,
    .tokens = tokens,
    .positions = positions,
    .embed = embed,
    .linear = linear,
    .add = add,
    .activation = activation,
    .swiglu = swiglu,
    .dropout = dropout,
    .layernorm = layernorm,
    .rmsnorm = rmsnorm,
    .head_norm = head_norm,
    .rope = rope,
    .attention = attention,
    .head = head,
    .moment = tri_tool_moment,
    .momentum = tri_tool_momentum,
    .unit_norm = tri_tool_unit_norm,
    .sum = tri_tool_sum,
    .apply = tri_tool_apply,
};

void tri_outside_model_def(tri_outside_model *model, tri_owned own)
{
    model->def = (tri_model_def){.kind = model->row->kind,
                                 .help = model->row->help,
                                 .tasks = 1 << TRI_TASK_LM,
                                 .sequences = true,
                                 .generates = true,
                                 .key_heads = model->row->kv_heads,
                                 .own = own,
                                 .check = check,
                                 .params = params,
                                 .emit = emit};
}
