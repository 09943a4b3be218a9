/* Models: a description becomes a table of parameters and, for a mode, a graph.
 *
 * A model knows nothing of ranks, devices or schedules. To add one: a file with a few functions and
 * the settings that it alone has, and a row in model.c. */
#ifndef TRI_MODEL_MODEL_H
#define TRI_MODEL_MODEL_H

#include "base/settings/row.h"
#include "graph/emit.h"
#include "model/moe.h"
#include "model/rope.h"
#include "trireme/settings.h"

typedef enum tri_mode {
    TRI_MODE_TRAIN,   /* loss, dropout on; autodiff and the update follow */
    TRI_MODE_EVAL,    /* loss only */
    TRI_MODE_PREDICT, /* logits of one position per row */
    /* Generation: attention sees a cache of earlier positions, to which the batch is added. */
    TRI_MODE_PREFILL, /* a block of positions per row; logits of one of them */
    TRI_MODE_DECODE,  /* one position per row, and its logits */
} tri_mode;

/* What a model of sequences is trained for. */
typedef enum tri_task {
    TRI_TASK_LM,      /* the next token, at every position */
    TRI_TASK_MLM,     /* the tokens that were masked, at their positions */
    TRI_TASK_CLASSIFY /* one label for the row */
} tri_task;

typedef enum tri_model_act {
    TRI_MODEL_ACT_NONE,
    TRI_MODEL_ACT_RELU,
    TRI_MODEL_ACT_GELU, /* the tanh form */
    TRI_MODEL_ACT_GELU_ERF
} tri_model_act;

struct tri_model_def;

typedef struct tri_model_config {
    const char *kind;
    const struct tri_model_def *def; /* from outside the tree; NULL: that of the kind */
    const tr_settings *settings;     /* where such a one finds its own */
    int64_t num_layers, dim, num_heads, ffn_dim, vocab, positions;
    tri_task task;
    float dropout;
    float init_std;
    int64_t num_kv_heads, head_dim, window; /* llama */
    float norm_eps;                         /* llama, bert */
    bool qkv_bias, qk_norm, tied_head;      /* llama */
    bool qk_norm_wide;                      /* llama: over all heads together */
    tri_rope_setting rope;                  /* llama */
    tri_moe_config moe;                     /* llama */
    int64_t types;                          /* bert: kinds of tokens */
    int64_t num_labels;                     /* bert, to classify */
    tri_model_act act;                      /* mlp, bert */
    bool bias;                              /* mlp */
    tri_out_loss loss;                      /* mlp */
} tri_model_config;

/* One micro-batch. */
typedef struct tri_batch_shape {
    int64_t rows, seq_len;
    bool mask_documents;   /* it comes with document ids, and attention stays within a document */
    bool placed;           /* tokens of a row are divided over ranks, and come with their places */
    bool by_place;         /* attention goes by places, since tokens lie in any order */
    tri_cache_shape cache; /* prefill and decode */
} tri_batch_shape;

typedef struct tri_model_def {
    const char *kind;
    const char *help;
    unsigned tasks; /* bit t: it can be trained for task t */
    bool sequences; /* batches are token sequences; otherwise vectors x and targets */
    bool generates; /* attention looks back only, so that texts can be continued */
    bool key_heads; /* keys and values may have fewer heads than queries */
    bool documents; /* batches always come with document ids: they say what is padding */
    tri_owned own;
    /* Its own members of the description; the others are filled in. NULL: it has none. */
    void (*read)(const tr_settings *settings, tri_model_config *config);
    tr_status (*check)(const tri_model_config *config, const tri_batch_shape *batch, tr_error *err);
    void (*params)(const tri_model_config *config, tri_param_table *table);
    void (*emit)(const tri_model_config *config, tri_mode mode, const tri_batch_shape *batch,
                 tri_graph *graph);
} tri_model_def;

tri_model_act tri_model_act_from(const tr_settings *settings); /* model.act, mlp.c */

extern const tri_model_def tri_model_bert, tri_model_gpt2, tri_model_llama, tri_model_mlp;

extern const tri_setting tri_model_kind_row; /* model.kind */
const tri_model_def *tri_model_at(size_t i); /* or NULL past the end */
/* Of the tree, or NULL: a plug-in's is found by tri_model_of alone. */
const tri_model_def *tri_model_find(const char *kind);
const tri_model_def *tri_model_of(const tri_model_config *config);
/* Whether it can continue a text: it predicts the next token, and looks back only. */
bool tri_model_generates(const tri_model_config *config);
/* Checks the description, then fills an empty table. */
tr_status tri_model_params(const tri_model_config *config, const tri_batch_shape *batch,
                           tri_param_table *table, tr_error *err);
/* Places of a row that may have a target: one where the row has a label, else every position. */
int64_t tri_model_row_targets(const tri_model_config *config, int64_t seq_len);
tr_status tri_model_emit(const tri_model_config *config, tri_mode mode,
                         const tri_batch_shape *batch, tri_graph *graph, tr_error *err);

/* Well-known sizes. */
typedef struct tri_preset {
    const char *name;
    const char *kind;
    int64_t num_layers, dim, num_heads, ffn_dim, vocab, positions;
    /* llama, and norm_eps of bert; 0 or false: the setting's default */
    int64_t num_kv_heads, head_dim, window;
    double rope_theta;
    float norm_eps;
    bool qkv_bias, qk_norm, qk_norm_wide, tied_head;
    tri_moe_config moe; /* experts in every layer; what is not in here has its default */
} tri_preset;

const tri_preset *tri_preset_find(const char *name); /* or NULL */
const tri_preset *tri_preset_at(size_t i);           /* or NULL past the end */

#endif
