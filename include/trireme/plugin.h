/* Models, update rules and schedules of the learning rate from outside the tree.
 *
 * A plug-in is a shared object with one symbol, `trireme_plugin`, a table of what it brings. It is
 * built against this header alone and linked with nothing of Trireme: what it may call is a table
 * of functions, tr_tools, which it is handed. So the same file works with the program and with any
 * program that has the library inside, archive or shared.
 *
 *     cc -std=c17 -shared -fPIC $(pkg-config --cflags trireme) my_model.c -o my_model.so
 *     trireme train recipe.yaml --plugin ./my_model.so --set model.kind=my_model
 *
 * Names that it brings must be new, its settings are settings like any other, and a model is
 * described as those of the tree are: divided over ranks, compiled, checked and saved by itself.
 * docs/plugins.md explains, examples/plugin has one of each. */
#ifndef TRIREME_PLUGIN_H
#define TRIREME_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of all that follows. A plug-in of another number is refused: build it again. */
#define TR_PLUGIN_ABI 1

/* A number of the graph, such as an activation. */
typedef uint32_t tr_value;
#define TR_NO_VALUE UINT32_MAX

/* What a dim counts. Products contract dims of equal name, and ranks divide dims by name: heads,
 * feed-forward width and vocabulary over tensor-parallel ranks, rows over data-parallel ones. */
typedef enum tr_dim_name {
    TR_DIM_WIDTH = 1,     /* of the residual stream, model.dim */
    TR_DIM_HEADS = 2,     /* of queries */
    TR_DIM_KV_HEADS = 3,  /* of keys and values */
    TR_DIM_HEAD = 4,      /* width of a head */
    TR_DIM_FFN = 5,       /* feed-forward width */
    TR_DIM_VOCAB = 6,     /* vocabulary */
    TR_DIM_POSITIONS = 7, /* a table of positions */
    TR_DIM_COUNT = 8      /* a plain count, never divided */
} tr_dim_name;

typedef struct tr_dim {
    tr_dim_name name;
    int64_t size;
} tr_dim;

enum { TR_MAX_DIMS = 3 };
typedef struct tr_dims {
    int32_t num;
    tr_dim dim[TR_MAX_DIMS];
} tr_dims;

typedef enum tr_act {
    TR_ACT_GELU = 1, /* the tanh form */
    TR_ACT_GELU_ERF = 2,
    TR_ACT_RELU = 3,
    TR_ACT_SILU = 4,
    TR_ACT_TANH = 5
} tr_act;

typedef enum tr_role { /* of a parameter */
                       TR_ROLE_EMBEDDING = 1,
                       TR_ROLE_MATRIX = 2,
                       TR_ROLE_BIAS = 3,
                       TR_ROLE_NORM = 4,
                       TR_ROLE_ROUTER = 5, /* of a router: always fp32 */
                       TR_ROLE_EXPERTS = 6 /* matrices of experts, [E, out, in] */
} tr_role;

/* What a model is described by; what it alone has is in the settings, by name. */
typedef struct tr_model {
    const tr_settings *settings;
    int64_t num_layers, dim, num_heads, num_kv_heads, head_dim, ffn_dim, vocab, positions;
    int64_t seq_len;
    double dropout, init_std;
} tr_model;

typedef struct tr_rope { /* as model.rope_theta and its relatives have it */
    double theta, factor, low, high, original;
} tr_rope;

/* A parameter to be updated. */
typedef struct tr_update {
    const tr_settings *settings;
    const char *name;
    tr_role role;
    int64_t rows, columns;         /* of the parameter seen as a matrix */
    double lr_scale, weight_decay; /* of its group */
} tr_update;

/* The learning rate of a run. */
typedef struct tr_lr {
    const tr_settings *settings;
    double lr;      /* the highest, optim.lr */
    int64_t steps;  /* of the whole run; 0: that is not known */
    int64_t warmup; /* steps of the warm-up */
} tr_lr;

typedef struct tr_params tr_params;   /* the table of parameters that is being written */
typedef struct tr_graph tr_graph;     /* the graph of a model */
typedef struct tr_updates tr_updates; /* the end of the graph, where parameters are updated */

/* What a plug-in may call. A name or a value that makes no sense is an error of the run that names
 * the plug-in; after the first, calls do nothing and give TR_NO_VALUE. */
typedef struct tr_tools {
    /* ---- settings, by their full names ---- */
    bool (*setting_bool)(const tr_settings *settings, const char *name);
    int64_t (*setting_int)(const tr_settings *settings, const char *name);
    double (*setting_float)(const tr_settings *settings, const char *name);
    const char *(*setting_string)(const tr_settings *settings, const char *name);

    /* ---- parameters. Layer -1 comes before the first, num_layers after the last ---- */
    void (*params_enter)(tr_params *params, int layer, const char *scope);
    /* "scope.name.weight" [out, in], normal with this deviation, and "scope.name.bias" of zeros. */
    void (*linear_params)(tr_params *params, const char *name, tr_dims out, tr_dims in, double std,
                          bool bias);
    /* "scope.name.weight" of ones, and "scope.name.bias" of zeros where it has a shift. */
    void (*norm_params)(tr_params *params, const char *name, tr_dim dim, bool shift);
    void (*embedding_params)(tr_params *params, const char *name, tr_dim rows, tr_dim width,
                             double std);

    /* ---- the graph of a model: parameters are found as "scope.name" ---- */
    void (*enter)(tr_graph *graph, int layer, const char *scope);
    tr_value (*tokens)(tr_graph *graph);    /* [rows, positions] */
    tr_value (*positions)(tr_graph *graph); /* where each stands in its text */
    tr_value (*embed)(tr_graph *graph, const char *name, tr_value ids);
    tr_value (*linear)(tr_graph *graph, const char *name, tr_value x);
    tr_value (*add)(tr_graph *graph, const char *name, tr_value a, tr_value b);
    tr_value (*activation)(tr_graph *graph, const char *name, tr_act act, tr_value x);
    tr_value (*swiglu)(tr_graph *graph, const char *name, tr_value gate, tr_value up);
    tr_value (*dropout)(tr_graph *graph, const char *name, tr_value x, double p); /* in training */
    /* norm(*stream + branch), and *stream becomes that sum; branch may be TR_NO_VALUE. */
    tr_value (*layernorm)(tr_graph *graph, const char *name, tr_value *stream, tr_value branch,
                          double eps);
    tr_value (*rmsnorm)(tr_graph *graph, const char *name, tr_value *stream, tr_value branch,
                        double eps);
    /* Over the width of each head: a norm on queries or keys. */
    tr_value (*head_norm)(tr_graph *graph, const char *name, tr_value x, double eps);
    tr_value (*rope)(tr_graph *graph, const char *name, tr_value x, const tr_rope *rope);
    /* Looks back: q [.., heads, head], k and v [.., kv heads, head]. window 0 is all positions. */
    tr_value (*attention)(tr_graph *graph, const char *name, tr_value q, tr_value k, tr_value v,
                          int64_t window, double dropout);
    /* The end of a model: logits by the named weight [vocab, width], which may be the table that
     * tokens are embedded with, and the loss. Once. */
    void (*head)(tr_graph *graph, const char *weight, tr_value x);

    /* ---- the update of a parameter ---- */
    tr_value (*moment)(tr_updates *updates, const char *name); /* of its shape, zero at first */
    /* moment = beta moment + the gradient as it is to be applied (a mean, clipped); what is
     * returned is the moment, or with nesterov gradient + beta moment. */
    tr_value (*momentum)(tr_updates *updates, tr_value moment, double beta, bool nesterov);
    tr_value (*unit_norm)(tr_updates *updates, const char *name, tr_value x, double eps);
    tr_value (*sum)(tr_updates *updates, const char *name, double a, tr_value x, double b,
                    tr_value y); /* a x + b y */
    /* parameter -= lr * lr_scale * (scale x + weight_decay parameter). Once. */
    void (*apply)(tr_updates *updates, tr_value x, double scale);
} tr_tools;

typedef enum tr_setting_type {
    TR_SETTING_BOOL = 1,
    TR_SETTING_INT = 2,
    TR_SETTING_FLOAT = 3,
    TR_SETTING_STRING = 4,
    TR_SETTING_CHOICE = 5
} tr_setting_type;

typedef struct tr_plugin_setting {
    const char *name; /* "model.key" of a model, "optim.key" of the others */
    tr_setting_type type;
    const char *fallback; /* the default, as a user would write it */
    double min, max;      /* INT and FLOAT */
    const char *choices;  /* CHOICE: "one, two" */
    const char *help;     /* one line, without a full stop */
} tr_plugin_setting;

/* The settings that something brings, those of others that it reads ("model.norm_eps
 * model.window"), and its own defaults ("model.norm_eps=1e-6"); all may be 0. */
typedef struct tr_plugin_own {
    const tr_plugin_setting *settings;
    uint32_t num_settings;
    const char *reads, *defaults;
} tr_plugin_own;

/* A model of sequences that predicts the next token. */
typedef struct tr_plugin_model {
    const char *kind; /* of model.kind */
    const char *help;
    tr_plugin_own own;
    bool kv_heads; /* keys and values may have fewer heads than queries */
    /* False, and one sentence on why: these sizes do not fit together. May be NULL. */
    bool (*check)(const tr_tools *tools, const tr_model *model, char *why, size_t why_size);
    /* Both may be called often, on several threads at once, and must do the same each time. */
    void (*params)(const tr_tools *tools, const tr_model *model, tr_params *params);
    void (*emit)(const tr_tools *tools, const tr_model *model, tr_graph *graph);
} tr_plugin_model;

typedef struct tr_plugin_rule {
    const char *kind; /* of optim.kind */
    const char *help;
    tr_plugin_own own;
    bool whole;    /* it looks at a tensor as a whole (unit_norm), so ZeRO must not cut it */
    bool matrices; /* it is for matrices alone: other parameters get adamw */
    void (*emit)(const tr_tools *tools, const tr_update *update, tr_updates *updates);
} tr_plugin_rule;

typedef struct tr_plugin_schedule {
    const char *kind; /* of optim.schedule */
    const char *help;
    tr_plugin_own own;
    /* The learning rate of a step, from 0, after the warm-up. */
    double (*rate)(const tr_tools *tools, const tr_lr *lr, int64_t step);
} tr_plugin_schedule;

typedef struct tr_plugin {
    uint32_t abi; /* TR_PLUGIN_ABI */
    const char *name, *version;
    const tr_plugin_model *models;
    uint32_t num_models;
    const tr_plugin_rule *rules;
    uint32_t num_rules;
    const tr_plugin_schedule *schedules;
    uint32_t num_schedules;
} tr_plugin;

/* The symbol. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const tr_plugin trireme_plugin;

#ifdef __cplusplus
}
#endif
#endif
