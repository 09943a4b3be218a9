/* A plug-in with one of each: a model, an update rule and a schedule of the learning rate.
 *
 * Build it with `make` here, where Trireme is installed, and use it:
 *
 *     trireme train tiny --plugin ./parallel.so --set model.kind=parallel --set optim.kind=nsgd \
 *         --set optim.schedule=rsqrt --set optim.lr=0.02
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trireme/plugin.h"

/* ---- the model: attention and feed-forward side by side, from one norm, as in GPT-J and PaLM ----
 */

static void params(const tr_tools *t, const tr_model *m, tr_params *p)
{
    char scope[32];
    tr_dim width = {TR_DIM_WIDTH, m->dim}, vocab = {TR_DIM_VOCAB, m->vocab};
    tr_dims d = {1, {width}}, f = {1, {{TR_DIM_FFN, m->ffn_dim}}};
    tr_dims q = {2, {{TR_DIM_HEADS, m->num_heads}, {TR_DIM_HEAD, m->head_dim}}};
    tr_dims kv = {2, {{TR_DIM_KV_HEADS, m->num_kv_heads}, {TR_DIM_HEAD, m->head_dim}}};
    /* Branches that end in the residual stream start smaller, so that its size does not grow. */
    double std = m->init_std, residual = std / sqrt(2.0 * (double)m->num_layers);
    t->params_enter(p, -1, "");
    t->embedding_params(p, "embed", vocab, width, std);
    for (int l = 0; l < (int)m->num_layers; l++) {
        snprintf(scope, sizeof scope, "layers.%d", l);
        t->params_enter(p, l, scope);
        t->norm_params(p, "norm", width, false);
        t->linear_params(p, "q", q, d, std, false);
        t->linear_params(p, "k", kv, d, std, false);
        t->linear_params(p, "v", kv, d, std, false);
        t->linear_params(p, "o", d, q, residual, false);
        t->linear_params(p, "up", f, d, std, false);
        t->linear_params(p, "down", d, f, residual, false);
    }
    t->params_enter(p, (int)m->num_layers, "");
    t->norm_params(p, "norm", width, false);
}

static tr_act act_of(const char *name)
{
    return strcmp(name, "relu") == 0   ? TR_ACT_RELU
           : strcmp(name, "gelu") == 0 ? TR_ACT_GELU
                                       : TR_ACT_SILU;
}

static void emit(const tr_tools *t, const tr_model *m, tr_graph *g)
{
    char scope[32];
    double eps = t->setting_float(m->settings, "model.norm_eps");
    tr_rope rope = {.theta = t->setting_float(m->settings, "model.rope_theta")};
    tr_act act = act_of(t->setting_string(m->settings, "model.parallel_act"));
    tr_value stream = t->embed(g, "embed", t->tokens(g)), branch = TR_NO_VALUE;
    for (int l = 0; l < (int)m->num_layers; l++) {
        snprintf(scope, sizeof scope, "layers.%d", l);
        t->enter(g, l, scope);
        tr_value x = t->rmsnorm(g, "norm", &stream, branch, eps);
        tr_value q = t->rope(g, "q", t->linear(g, "q", x), &rope);
        tr_value k = t->rope(g, "k", t->linear(g, "k", x), &rope);
        tr_value v = t->linear(g, "v", x);
        tr_value looked = t->linear(g, "o", t->attention(g, "attn", q, k, v, 0, 0));
        tr_value up = t->activation(g, "act", act, t->linear(g, "up", x));
        tr_value thought = t->linear(g, "down", up);
        branch = t->add(g, "branch", looked, thought);
    }
    t->enter(g, (int)m->num_layers, "");
    t->head(g, "embed.weight", t->rmsnorm(g, "norm", &stream, branch, eps));
}

static bool check(const tr_tools *t, const tr_model *m, char *why, size_t why_size)
{
    (void)t;
    if (m->head_dim % 2 == 0 && m->num_heads % m->num_kv_heads == 0)
        return true;
    snprintf(why, why_size,
             "model.head_dim (%lld) must be even, and model.num_kv_heads (%lld) divide "
             "model.num_heads (%lld)",
             (long long)m->head_dim, (long long)m->num_kv_heads, (long long)m->num_heads);
    return false;
}

static const tr_plugin_setting model_settings[] = {
    {.name = "model.parallel_act",
     .type = TR_SETTING_CHOICE,
     .fallback = "silu",
     .choices = "silu, gelu, relu",
     .help = "Activation of the feed-forward branch (parallel)"},
};

static const tr_plugin_model models[] = {{
    .kind = "parallel",
    .help = "attention and feed-forward side by side, rotary positions, tied head",
    .own = {.settings = model_settings,
            .num_settings = 1,
            .reads = "model.norm_eps model.rope_theta",
            .defaults = "model.norm_eps=1e-6"},
    .kv_heads = true,
    .check = check,
    .params = params,
    .emit = emit,
}};

/* ---- the rule: momentum, each tensor's step of one length (normalised gradient descent) ---- */

static void emit_nsgd(const tr_tools *t, const tr_update *u, tr_updates *g)
{
    double beta = t->setting_float(u->settings, "optim.momentum");
    tr_value x = t->momentum(g, t->moment(g, "momentum"), beta, false);
    /* As long as a step in which every element moves by a fifth of the learning rate. */
    t->apply(g, t->unit_norm(g, "unit", x, 1e-7), 0.2 * sqrt((double)u->rows * (double)u->columns));
}

static const tr_plugin_rule rules[] = {{
    .kind = "nsgd",
    .help = "momentum with steps of one length for each tensor",
    .own = {.reads = "optim.momentum"},
    .whole = true,
    .emit = emit_nsgd,
}};

/* ---- the schedule: one over the root of the step, as in the first Transformer ---- */

static double rsqrt_rate(const tr_tools *t, const tr_lr *lr, int64_t step)
{
    double from = (double)t->setting_int(lr->settings, "optim.rsqrt_steps");
    return lr->lr / sqrt(1 + (double)(step - lr->warmup) / from);
}

static const tr_plugin_setting schedule_settings[] = {
    {.name = "optim.rsqrt_steps",
     .type = TR_SETTING_INT,
     .fallback = "100",
     .min = 1,
     .max = 1e9,
     .help = "Steps after which the learning rate has fallen by a root of two (rsqrt)"},
};

static const tr_plugin_schedule schedules[] = {{
    .kind = "rsqrt",
    .help = "falls with one over the root of the step",
    .own = {.settings = schedule_settings, .num_settings = 1},
    .rate = rsqrt_rate,
}};

const tr_plugin trireme_plugin = {
    .abi = TR_PLUGIN_ABI,
    .name = "parallel",
    .version = "1",
    .models = models,
    .num_models = 1,
    .rules = rules,
    .num_rules = 1,
    .schedules = schedules,
    .num_schedules = 1,
};
