/* config.json for a model of ours: the keys of transformers 5, and beside them those that only
 * transformers 4 reads where the two differ (rope_theta and rope_scaling, torch_dtype). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf_parts.h"

static tr_status choose(const tri_model_config *m, const tri_hf_family **family, tr_error *err)
{
    const char *type = NULL;
    if (strcmp(m->kind, "gpt2") == 0)
        type = "gpt2";
    else if (strcmp(m->kind, "llama") == 0 && m->qk_norm && m->qkv_bias)
        return tri_fail(err, TR_ERROR_INPUT,
                        "no architecture of Hugging Face has both model.qk_norm and model.qkv_bias "
                        "as a llama of ours does; it cannot be exported");
    else if (strcmp(m->kind, "llama") == 0 && m->rope.part != 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.rope_part is %g, but heads of Llama, Mistral and Qwen turn whole in "
                        "Hugging Face; it cannot be exported",
                        m->rope.part);
    else if (strcmp(m->kind, "llama") == 0 && m->moe.num_experts > 0)
        TRI_TRY(tri_hf_moe_choose(m, &type, err));
    else if (strcmp(m->kind, "llama") == 0 && m->qk_norm && m->qk_norm_wide)
        return tri_fail(err, TR_ERROR_INPUT,
                        "of the architectures of Hugging Face that are written, only olmoe has "
                        "model.qk_norm_wide, and it has experts; this model cannot be exported");
    else if (strcmp(m->kind, "llama") == 0)
        type = m->qk_norm ? "qwen3" : m->qkv_bias ? "qwen2" : m->window > 0 ? "mistral" : "llama";
    else if (strcmp(m->kind, "bert") == 0)
        type = "bert";
    if (!type)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a model of kind %s cannot be exported to Hugging Face; bert, gpt2 and "
                        "llama can",
                        m->kind);
    *family = tri_hf_family_find(type);
    return TR_OK;
}

static json_t *gpt2_config(const tri_model_config *m)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:b, s:b}",
                     "activation_function", "gelu_new", "n_layer", (json_int_t)m->num_layers,
                     "n_embd", (json_int_t)m->dim, "n_head", (json_int_t)m->num_heads, "n_inner",
                     (json_int_t)m->ffn_dim, "n_positions", (json_int_t)m->positions, "vocab_size",
                     (json_int_t)m->vocab, "resid_pdrop", tri_hf_number(m->dropout), "embd_pdrop",
                     tri_hf_number(m->dropout), "attn_pdrop", tri_hf_number(m->dropout),
                     "initializer_range", tri_hf_number(m->init_std), "layer_norm_epsilon", 1e-5,
                     "scale_attn_weights", 1, "tie_word_embeddings", 1);
}

/* Only qwen has switches for the window, and says for each layer whether it has one. */
static int add_window(json_t *root, const tri_model_config *m, const char *type)
{
    json_t *window = m->window > 0 ? json_integer(m->window) : json_null();
    if (strcmp(type, "llama") == 0 || strcmp(type, "olmoe") == 0)
        return json_decref(window), 0;
    int failed = json_object_set_new(root, "sliding_window", window);
    if (type[0] != 'q')
        return failed;
    failed |= json_object_set_new(root, "use_sliding_window", json_boolean(m->window > 0));
    if (strcmp(type, "qwen3_moe") == 0)
        return failed;
    json_t *types = json_array();
    for (int64_t l = 0; l < m->num_layers; l++)
        failed |= json_array_append_new(
            types, json_string(m->window > 0 ? "sliding_attention" : "full_attention"));
    failed |= json_object_set_new(root, "layer_types", types);
    return failed | json_object_set_new(root, "max_window_layers",
                                        json_integer(m->window > 0 ? 0 : m->num_layers));
}

/* Some classes take the width of a head from the number of heads unless the key is there. */
static bool has_head_dim(const tri_model_config *m, const char *type)
{
    static const char *const from_heads[] = {"qwen2", "qwen2_moe", "olmoe"};
    for (size_t i = 0; i < sizeof from_heads / sizeof *from_heads; i++)
        if (strcmp(type, from_heads[i]) == 0)
            return m->head_dim * m->num_heads != m->dim;
    return true;
}

static bool has_attention_bias(const char *type)
{
    return strcmp(type, "llama") == 0 || strncmp(type, "qwen3", 5) == 0 ||
           strcmp(type, "olmoe") == 0;
}

static json_t *llama_config(const tri_model_config *m, const tri_hf_family *family)
{
    const char *type = family->model_type;
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:b}", "hidden_act", "silu",
        "num_hidden_layers", (json_int_t)m->num_layers, "hidden_size", (json_int_t)m->dim,
        "num_attention_heads", (json_int_t)m->num_heads, "num_key_value_heads",
        (json_int_t)m->num_kv_heads, "intermediate_size", (json_int_t)m->ffn_dim, "vocab_size",
        (json_int_t)m->vocab, "max_position_embeddings", (json_int_t)m->positions, "rms_norm_eps",
        tri_hf_number(m->norm_eps), "initializer_range", tri_hf_number(m->init_std),
        "tie_word_embeddings", m->tied_head);
    int failed = !root || tri_hf_add_rope(root, m) || add_window(root, m, type) ||
                 tri_hf_add_moe(root, m, family);
    if (has_head_dim(m, type))
        failed |= json_object_set_new(root, "head_dim", json_integer(m->head_dim));
    if (strcmp(type, "llama") == 0)
        failed |= json_object_set_new(root, "mlp_bias", json_false());
    if (has_attention_bias(type))
        failed |= json_object_set_new(root, "attention_bias", json_false());
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* The names of labels are not known here; these are the ones that transformers would make. */
static int add_labels(json_t *root, int64_t num)
{
    json_t *names = json_object(), *numbers = json_object();
    int failed = 0;
    for (int64_t i = 0; i < num; i++) {
        char number[24], name[32];
        snprintf(number, sizeof number, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        failed |= json_object_set_new(names, number, json_string(name));
        failed |= json_object_set_new(numbers, name, json_integer(i));
    }
    failed |= json_object_set_new(root, "id2label", names);
    failed |= json_object_set_new(root, "label2id", numbers);
    return failed |
           json_object_set_new(root, "problem_type", json_string("single_label_classification"));
}

static json_t *bert_config(const tri_model_config *m)
{
    const char *act = m->act == TRI_MODEL_ACT_RELU   ? "relu"
                      : m->act == TRI_MODEL_ACT_GELU ? "gelu_new"
                                                     : "gelu";
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:b}", "hidden_act", act,
        "position_embedding_type", "absolute", "num_hidden_layers", (json_int_t)m->num_layers,
        "hidden_size", (json_int_t)m->dim, "num_attention_heads", (json_int_t)m->num_heads,
        "intermediate_size", (json_int_t)m->ffn_dim, "vocab_size", (json_int_t)m->vocab,
        "max_position_embeddings", (json_int_t)m->positions, "type_vocab_size",
        (json_int_t)m->types, "layer_norm_eps", tri_hf_number(m->norm_eps), "initializer_range",
        tri_hf_number(m->init_std), "hidden_dropout_prob", tri_hf_number(m->dropout),
        "attention_probs_dropout_prob", tri_hf_number(m->dropout), "tie_word_embeddings", 1);
    if (root && m->task == TRI_TASK_CLASSIFY && add_labels(root, m->num_labels) != 0) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* Which tokens begin and end a text is the tokenizer's business: without these keys transformers
 * would take those of its own examples. */
static int add_common(json_t *root, const tri_hf_family *family, const char *architecture)
{
    static const char *const tokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    int failed = json_object_set_new(root, "architectures", json_pack("[s]", architecture));
    failed |= json_object_set_new(root, "model_type", json_string(family->model_type));
    failed |= json_object_set_new(root, "dtype", json_string("float32"));
    failed |= json_object_set_new(root, "torch_dtype", json_string("float32"));
    for (int i = 0; i < 3; i++)
        failed |= json_object_set_new(root, tokens[i], json_null());
    return failed;
}

tr_status tri_hf_config_make(const tri_model_config *model, const tri_hf_family **family,
                             json_t **root, tr_error *err)
{
    *root = NULL;
    TRI_TRY(choose(model, family, err));
    const char *kind = (*family)->kind, *architecture = (*family)->architecture;
    json_t *made;
    if (strcmp(kind, "bert") == 0) {
        architecture = tri_hf_class_for(model->task)->name;
        made = bert_config(model);
    } else if (strcmp(kind, "gpt2") == 0) {
        made = gpt2_config(model);
    } else {
        made = llama_config(model, *family);
    }
    if (!made || add_common(made, *family, architecture) != 0) {
        json_decref(made);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to write config.json");
    }
    *root = made;
    return TR_OK;
}
