/* config.json of transformers, versions 4 and 5, to settings.
 *
 * A key that is left out has the value that the config class of transformers gives it, so that a
 * file means here what it means there; the sizes themselves must be given. Whatever would change
 * the numbers and is not implemented is refused: a model that loads computes the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/python_json.h"
#include "ckpt/hf/hf_reader.h"

bool tri_hf_is_dir(const char *path)
{
    return path[0] && tri_path_is_dir(path) && tri_dir_has(path, "config.json") &&
           !tri_dir_has(path, "config.yaml");
}

tr_status tri_hf_json_read(const char *dir, const char *name, json_t **root, char **path,
                           tr_error *err)
{
    *root = NULL;
    *path = tri_path_join(dir, name);
    if (!*path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    tri_mapping mapping;
    TRI_TRY(tri_mapping_open(&mapping, *path, err));
    json_error_t why;
    *root = tri_python_json_load((const char *)mapping.data, mapping.num_bytes, NULL, &why);
    tri_mapping_close(&mapping);
    if (!*root && json_error_code(&why) == json_error_out_of_memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", *path);
    if (!*root)
        return tri_fail(err, TR_ERROR_INPUT, "%s: line %d: not valid JSON: %s", *path, why.line,
                        why.text);
    return json_is_object(*root) ? TR_OK
                                 : tri_fail(err, TR_ERROR_INPUT, "%s: is not a JSON object", *path);
}

/* ---- gpt2 ---- */

static tr_status read_gpt2(const tri_hf_reader *r)
{
    static const tri_hf_size_key sizes[] = {{"n_layer", "model.num_layers"},
                                            {"n_embd", "model.dim"},
                                            {"n_head", "model.num_heads"},
                                            {"vocab_size", "model.vocab"}};
    int64_t positions, dim, ffn;
    double eps;
    TRI_TRY(tri_hf_add_sizes(r, sizes, 4));
    TRI_TRY(tri_hf_read_int(r, r->root, "n_positions", r->family->positions, &positions));
    TRI_TRY(tri_hf_read_int(r, r->root, "n_embd", TRI_HF_NEEDED, &dim));
    TRI_TRY(tri_hf_read_int(r, r->root, "n_inner", 4 * dim, &ffn));
    TRI_TRY(tri_hf_demand_text(r, "activation_function", "gelu_new"));
    TRI_TRY(tri_hf_demand(r, "scale_attn_weights", true, true));
    TRI_TRY(tri_hf_demand(r, "scale_attn_by_inverse_layer_idx", false, false));
    TRI_TRY(tri_hf_demand(r, "add_cross_attention", false, false));
    TRI_TRY(tri_hf_demand(r, "tie_word_embeddings", true, true));
    TRI_TRY(tri_hf_read_real(r, r->root, "layer_norm_epsilon", 1e-5, &eps));
    if ((float)eps != 1e-5f)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"layer_norm_epsilon\" is %g; for gpt2 only 1e-05 is supported",
                        r->path, eps);
    tri_hf_add_int(r, true, "model.ffn_dim", "n_inner", ffn);
    tri_hf_add_int(r, true, "model.positions", "n_positions", positions);
    return tri_hf_add_init(r);
}

/* ---- llama and its relatives ---- */

/* The layers with a window where layer_types does not say it. Those of qwen have one from
 * max_window_layers on; of qwen2_moe every other one before it. */
static tr_status count_default_windows(const tri_hf_reader *r, int64_t layers, int64_t *num)
{
    const json_t *value = tri_hf_value(r->root, "max_window_layers");
    int64_t first = value ? json_integer_value(value) : 28;
    if ((value && !json_is_integer(value)) || first < 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"max_window_layers\" is not a whole number >= 0", r->path);
    first = first < layers ? first : layers;
    *num = strcmp(r->family->model_type, "qwen2_moe") == 0 ? (first + 1) / 2 : layers - first;
    return TR_OK;
}

/* How many of the layers have a window. Of mistral, mixtral and qwen3_moe it is all. */
static tr_status count_windows(const tri_hf_reader *r, int64_t layers, int64_t *num)
{
    const json_t *types = tri_hf_value(r->root, "layer_types");
    const char *family = r->family->model_type;
    *num = layers;
    if (family[0] != 'q' || strcmp(family, "qwen3_moe") == 0)
        return TR_OK;
    if (!types)
        return count_default_windows(r, layers, num);
    *num = 0;
    if (!json_is_array(types) || (int64_t)json_array_size(types) != layers)
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"layer_types\" is not a list of %lld types",
                        r->path, (long long)layers);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool window = type && strcmp(type, "sliding_attention") == 0;
        if (!window && (!type || strcmp(type, "full_attention") != 0))
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: layer type \"%.60s\" is not supported; known types: "
                            "full_attention, sliding_attention",
                            r->path, type ? type : "?");
        *num += window;
    }
    return TR_OK;
}

static tr_status read_window(const tri_hf_reader *r, int64_t layers)
{
    int64_t window = 0, num, fallback = r->family->window > 0 ? r->family->window : 0;
    bool used = r->family->window != 0; /* llama has none, whatever its file says */
    if (used && r->family->model_type[0] == 'q')
        TRI_TRY(tri_hf_read_bool(r, "use_sliding_window", false, &used));
    if (used && !json_is_null(json_object_get(r->root, "sliding_window"))) {
        TRI_TRY(tri_hf_read_int(r, r->root, "sliding_window", fallback, &window));
        TRI_TRY(count_windows(r, layers, &num));
        if (num > 0 && num < layers)
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: %lld of %lld layers have a sliding window; all or none is "
                            "supported",
                            r->path, (long long)num, (long long)layers);
        if (num == 0)
            window = 0;
    }
    tri_hf_add_int(r, false, "model.window", "sliding_window", window);
    return TR_OK;
}

/* What the families have or have not beside query, key and value. */
static tr_status read_qkv(const tri_hf_reader *r)
{
    const char *type = r->family->model_type;
    bool wide = strcmp(type, "olmoe") == 0, bias = strcmp(type, "qwen2") == 0;
    bool norm = wide || strncmp(type, "qwen3", 5) == 0;
    const char *key = "model_type";
    if (strcmp(type, "qwen2_moe") == 0)
        TRI_TRY(tri_hf_read_bool(r, key = "qkv_bias", true, &bias));
    if (wide && tri_hf_value(r->root, "clip_qkv"))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: has a \"clip_qkv\"; only models without it (null) are supported",
                        r->path);
    tri_hf_add_bool(r, "model.qkv_bias", key, bias);
    tri_hf_add_bool(r, "model.qk_norm", "model_type", norm);
    tri_hf_add_bool(r, "model.qk_norm_wide", "model_type", wide);
    return TR_OK;
}

static tr_status read_heads(const tri_hf_reader *r)
{
    int64_t dim, heads, kv_heads, head_dim;
    TRI_TRY(tri_hf_read_int(r, r->root, "hidden_size", TRI_HF_NEEDED, &dim));
    TRI_TRY(tri_hf_read_int(r, r->root, "num_attention_heads", TRI_HF_NEEDED, &heads));
    bool null_kv = json_is_null(json_object_get(r->root, "num_key_value_heads"));
    bool null_dim = json_is_null(json_object_get(r->root, "head_dim"));
    TRI_TRY(tri_hf_read_int(r, r->root, "num_key_value_heads", null_kv ? 0 : r->family->kv_heads,
                            &kv_heads));
    TRI_TRY(tri_hf_read_int(r, r->root, "head_dim", null_dim ? 0 : r->family->head_dim, &head_dim));
    if (head_dim == 0 && dim % heads != 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"num_attention_heads\" %lld does not divide \"hidden_size\" %lld, "
                        "and there is no \"head_dim\"",
                        r->path, (long long)heads, (long long)dim);
    tri_hf_add_int(r, true, "model.num_kv_heads", "num_key_value_heads",
                   kv_heads ? kv_heads : heads);
    tri_hf_add_int(r, true, "model.head_dim", "head_dim", head_dim ? head_dim : dim / heads);
    return TR_OK;
}

static tr_status read_llama(const tri_hf_reader *r)
{
    static const tri_hf_size_key sizes[] = {{"num_hidden_layers", "model.num_layers"},
                                            {"hidden_size", "model.dim"},
                                            {"num_attention_heads", "model.num_heads"},
                                            {"intermediate_size", "model.ffn_dim"},
                                            {"vocab_size", "model.vocab"}};
    int64_t positions, layers;
    double eps;
    bool tied;
    TRI_TRY(tri_hf_add_sizes(r, sizes, 5));
    TRI_TRY(read_heads(r));
    TRI_TRY(tri_hf_demand_text(r, "hidden_act", "silu"));
    TRI_TRY(tri_hf_demand(r, "attention_bias", false, false));
    TRI_TRY(tri_hf_demand(r, "mlp_bias", false, false));
    TRI_TRY(tri_hf_read_int(r, r->root, "num_hidden_layers", TRI_HF_NEEDED, &layers));
    TRI_TRY(
        tri_hf_read_int(r, r->root, "max_position_embeddings", r->family->positions, &positions));
    TRI_TRY(tri_hf_read_rope(r, &positions));
    tri_hf_add_int(r, false, "model.positions", "max_position_embeddings", positions);
    TRI_TRY(tri_hf_read_real(r, r->root, "rms_norm_eps",
                             r->family->norm_eps > 0 ? r->family->norm_eps : 1e-6, &eps));
    tri_hf_add_real(r, "model.norm_eps", "rms_norm_eps", eps);
    TRI_TRY(tri_hf_read_bool(r, "tie_word_embeddings", false, &tied));
    tri_hf_add_bool(r, "model.tied_head", "tie_word_embeddings", tied);
    TRI_TRY(read_qkv(r));
    TRI_TRY(tri_hf_read_moe(r, layers));
    TRI_TRY(read_window(r, layers));
    return tri_hf_add_init(r);
}

/* ---- bert ---- */

/* Their gelu is the exact one; ours of that name is the tanh form. */
static tr_status read_bert_act(const tri_hf_reader *r)
{
    static const char *const known[][2] = {{"gelu", "gelu_erf"},
                                           {"gelu_new", "gelu"},
                                           {"gelu_pytorch_tanh", "gelu"},
                                           {"relu", "relu"}};
    const char *act;
    TRI_TRY(tri_hf_read_text(r, r->root, "hidden_act", "gelu", &act));
    for (int i = 0; i < 4; i++)
        if (strcmp(act, known[i][0]) == 0) {
            tri_hf_add(r, false, "model.act", "hidden_act", "%s", known[i][1]);
            return TR_OK;
        }
    return tri_fail(r->err, TR_ERROR_INPUT,
                    "%s: \"hidden_act\" is \"%.60s\"; for bert gelu, gelu_new, gelu_pytorch_tanh "
                    "and relu are supported",
                    r->path, act);
}

/* The labels are counted by their names. One label would be a regression. */
static tr_status read_labels(const tri_hf_reader *r)
{
    const json_t *names = tri_hf_value(r->root, "id2label");
    const char *type;
    int64_t num = 2;
    TRI_TRY(tri_hf_read_text(r, r->root, "problem_type", "single_label_classification", &type));
    TRI_TRY(tri_hf_read_int(r, r->root, "num_labels", 2, &num));
    if (names && !json_is_object(names))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"id2label\" is not a JSON object", r->path);
    if (names)
        num = (int64_t)json_object_size(names);
    if (num < 2 || strcmp(type, "single_label_classification") != 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: a \"problem_type\" of %.60s with %lld labels is not supported; only "
                        "one label out of two or more for each row is",
                        r->path, type, (long long)num);
    tri_hf_add_int(r, true, "model.num_labels", "id2label", num);
    return TR_OK;
}

/* What the file was made for; another task may be given, whose head then begins anew. */
static tr_status read_bert_task(const tri_hf_reader *r)
{
    const tri_hf_class *class;
    TRI_TRY(tri_hf_class_read(r->family, r->root, r->path, &class, r->err));
    tri_task task = class ? class->task : TRI_TASK_MLM;
    tri_hf_add(r, false, "model.task", "architectures", "%s",
               task == TRI_TASK_CLASSIFY ? "classify" : "mlm");
    return task == TRI_TASK_CLASSIFY ? read_labels(r) : TR_OK;
}

static tr_status read_bert(const tri_hf_reader *r)
{
    static const tri_hf_size_key sizes[] = {{"num_hidden_layers", "model.num_layers"},
                                            {"hidden_size", "model.dim"},
                                            {"num_attention_heads", "model.num_heads"},
                                            {"intermediate_size", "model.ffn_dim"},
                                            {"vocab_size", "model.vocab"}};
    int64_t positions, types;
    double eps;
    TRI_TRY(tri_hf_add_sizes(r, sizes, 5));
    TRI_TRY(tri_hf_demand(r, "is_decoder", false, false));
    TRI_TRY(tri_hf_demand(r, "add_cross_attention", false, false));
    TRI_TRY(tri_hf_demand_text(r, "position_embedding_type", "absolute"));
    TRI_TRY(
        tri_hf_read_int(r, r->root, "max_position_embeddings", r->family->positions, &positions));
    tri_hf_add_int(r, true, "model.positions", "max_position_embeddings", positions);
    TRI_TRY(tri_hf_read_real(r, r->root, "layer_norm_eps", 1e-12, &eps));
    tri_hf_add_real(r, "model.norm_eps", "layer_norm_eps", eps);
    TRI_TRY(tri_hf_read_int(r, r->root, "type_vocab_size", 2, &types));
    tri_hf_add_int(r, true, "model.types", "type_vocab_size", types);
    TRI_TRY(read_bert_act(r));
    TRI_TRY(tri_hf_demand(r, "tie_word_embeddings", true, true));
    TRI_TRY(read_bert_task(r));
    return tri_hf_add_init(r);
}

/* ---- */

tr_status tri_hf_family_read(const json_t *root, const char *path, const tri_hf_family **family,
                             tr_error *err)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    char names[256];
    tri_hf_family_names(names, sizeof names);
    if (!type)
        return tri_fail(err, TR_ERROR_INPUT, "%s: has no \"model_type\"; known ones: %s", path,
                        names);
    *family = tri_hf_family_find(type);
    if (!*family)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: model_type \"%.60s\" is not known; known ones: %s", path, type, names);
    if (!tri_model_find((*family)->kind))
        return tri_fail(err, TR_ERROR_INPUT, "%s: there is no model.kind %s yet", path,
                        (*family)->kind);
    return TR_OK;
}

static tr_status read_config(const json_t *root, const char *path, tri_hf_config *config,
                             tr_error *err)
{
    tri_hf_reader r = {.path = path, .root = root, .out = config, .err = err};
    TRI_TRY(tri_hf_family_read(root, path, &r.family, err));
    config->model_type = r.family->model_type;
    tri_hf_add(&r, true, "model.kind", "model_type", "%s", r.family->kind);
    if (tri_hf_value(root, "quantization_config"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: has a \"quantization_config\"; only weights in F32, F16 and BF16 are "
                        "read",
                        path);
    if (strcmp(r.family->kind, "gpt2") == 0)
        return read_gpt2(&r);
    return strcmp(r.family->kind, "bert") == 0 ? read_bert(&r) : read_llama(&r);
}

tr_status tri_hf_config_read(const char *dir, tri_hf_config *config, tr_error *err)
{
    *config = (tri_hf_config){0};
    json_t *root;
    char *path;
    tr_status status = tri_advise(err, tri_hf_json_read(dir, "config.json", &root, &path, err),
                                  "download the model again");
    if (status == TR_OK)
        status = read_config(root, path, config, err);
    json_decref(root);
    free(path);
    return status;
}
