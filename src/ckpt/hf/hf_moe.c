/* Experts in a config.json, read and written.
 *
 * All families here choose by softmax over all experts. Those of Mixtral then weigh by the chosen
 * divided by their sum; the others have a key for that, norm_topk_prob. The loss of balance counts
 * over all layers together, and transformers adds it to the loss of a training only if
 * output_router_logits says so: the same here. */
#include <stdio.h>
#include <string.h>

#include "ckpt/hf/hf_reader.h"

/* ---- in ---- */

enum { MOST_LAYERS = 1000 }; /* the list of those with experts has room for them in any pattern */

static bool is_among(const json_t *list, int64_t number)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == number)
            return true;
    return false;
}

/* "1..5,7": as model.expert_layers has it. Returns how many layers it names. */
static int64_t layers_text(const json_t *dense, int64_t step, int64_t num_layers, char *text,
                           size_t size)
{
    int64_t num = 0, first = -1;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t l = 0; l <= num_layers; l++) {
        bool has = l < num_layers && (l + 1) % step == 0 && !is_among(dense, l);
        num += has;
        if (has && first < 0)
            first = l;
        if (has || first < 0)
            continue;
        used +=
            (size_t)snprintf(text + used, size - used, l - first > 1 ? "%s%lld..%lld" : "%s%lld",
                             used ? "," : "", (long long)first, (long long)l - 1);
        first = -1;
    }
    if (num == num_layers)
        text[0] = '\0'; /* all */
    return num;
}

static tr_status read_layers(const tri_hf_reader *r, int64_t num_layers)
{
    const json_t *dense = tri_hf_value(r->root, "mlp_only_layers");
    char *text = r->out->list[2];
    int64_t step;
    bool good = !dense || json_is_array(dense);
    for (size_t i = 0; good && i < json_array_size(dense); i++)
        good = json_is_integer(json_array_get(dense, i));
    if (!good)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"mlp_only_layers\" is not a list of whole numbers", r->path);
    TRI_TRY(tri_hf_read_int(r, r->root, "decoder_sparse_step", 1, &step));
    if (num_layers > MOST_LAYERS)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"num_hidden_layers\" is %lld; up to %d are supported", r->path,
                        (long long)num_layers, MOST_LAYERS);
    if (layers_text(dense, step, num_layers, text, TRI_HF_LIST_BYTES) == 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"mlp_only_layers\" and \"decoder_sparse_step\" leave no layer with "
                        "experts; a model without any is of the model_type %s",
                        r->path, r->family->moe->shared ? "qwen2" : "qwen3");
    tri_hf_add(r, true, "model.expert_layers", "mlp_only_layers", "%s", "");
    r->out->setting[r->out->num_settings - 1].value = text;
    return TR_OK;
}

static tr_status read_sizes(const tri_hf_reader *r)
{
    const tri_hf_moe_keys *moe = r->family->moe;
    const char *key = moe->experts;
    if (moe->experts_too && !tri_hf_value(r->root, key) && tri_hf_value(r->root, moe->experts_too))
        key = moe->experts_too;
    const tri_hf_size_key sizes[] = {{key, "model.num_experts"},
                                     {"num_experts_per_tok", "model.experts_per_token"},
                                     {moe->width, "model.expert_dim"},
                                     {"shared_expert_intermediate_size", "model.shared_dim"}};
    TRI_TRY(tri_hf_add_sizes(r, sizes, moe->shared ? 4 : 3));
    if (!moe->shared)
        tri_hf_add_int(r, true, "model.shared_dim", "model_type", 0);
    tri_hf_add_bool(r, "model.shared_gate", "model_type", moe->shared);
    return TR_OK;
}

static tr_status read_router(const tri_hf_reader *r)
{
    const tri_hf_moe_keys *moe = r->family->moe;
    bool renorm = true, trained;
    double noise, balance;
    TRI_TRY(tri_hf_read_real(r, r->root, "router_jitter_noise", 0, &noise));
    if (noise > 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: \"router_jitter_noise\" is %g, which is not supported; it is for "
                        "training only, so that 0 loads the same weights",
                        r->path, noise);
    if (moe->renorm_key)
        TRI_TRY(tri_hf_read_bool(r, "norm_topk_prob", false, &renorm));
    TRI_TRY(tri_hf_read_bool(r, "output_router_logits", false, &trained));
    TRI_TRY(tri_hf_read_real(r, r->root, "router_aux_loss_coef", moe->aux_loss, &balance));
    tri_hf_add(r, true, "model.router_score", "model_type", "softmax");
    tri_hf_add_bool(r, "model.router_renorm", moe->renorm_key ? "norm_topk_prob" : "model_type",
                    renorm);
    tri_hf_add_real(r, "model.router_bias", "model_type", 0);
    tri_hf_add_int(r, true, "model.router_groups", "model_type", 1);
    tri_hf_add_real(r, "model.router_scale", "model_type", 1);
    tri_hf_add_real(r, "model.balance_loss", "router_aux_loss_coef", trained ? balance : 0);
    tri_hf_add(r, false, "model.balance_over", "model_type", "joint");
    return TR_OK;
}

tr_status tri_hf_read_moe(const tri_hf_reader *r, int64_t num_layers)
{
    if (!r->family->moe) {
        tri_hf_add_int(r, true, "model.num_experts", "model_type", 0);
        return TR_OK;
    }
    TRI_TRY(read_sizes(r));
    if (r->family->moe->layers)
        TRI_TRY(read_layers(r, num_layers));
    else
        tri_hf_add(r, true, "model.expert_layers", "model_type", "%s", "");
    return read_router(r);
}

/* ---- out ---- */

static bool is_all(const tri_model_config *m)
{
    for (int64_t l = 0; l < m->num_layers; l++)
        if (!tri_moe_has(&m->moe, l))
            return false;
    return true;
}

/* Softmax over the chosen is softmax over all, divided by the sum of the chosen. */
static bool is_renormed(const tri_moe_config *moe)
{
    return moe->renorm || moe->score == TRI_ROUTE_CHOSEN;
}

/* What none of the families has; or NULL. */
static const char *unknown_to_all(const tri_model_config *m)
{
    const tri_moe_config *moe = &m->moe;
    if (moe->score == TRI_ROUTE_SIGMOID)
        return "model.router_score=sigmoid";
    if (moe->bias_rate > 0)
        return "model.router_bias";
    if (moe->groups > 1)
        return "model.router_groups";
    if (moe->scale != 1)
        return "model.router_scale";
    if (moe->shared_dim > 0 && !moe->shared_gate)
        return "model.shared_dim without model.shared_gate";
    return moe->shared_dim > 0 && m->qk_norm ? "both model.shared_dim and model.qk_norm" : NULL;
}

tr_status tri_hf_moe_choose(const tri_model_config *m, const char **type, tr_error *err)
{
    const tri_moe_config *moe = &m->moe;
    const char *what = unknown_to_all(m);
    if (what)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "none of mixtral, qwen2_moe, qwen3_moe and olmoe of Hugging Face has %s, as "
            "this model does; it cannot be exported",
            what);
    bool wide = m->qk_norm && m->qk_norm_wide;
    *type = wide                  ? "olmoe"
            : m->qk_norm          ? "qwen3_moe"
            : moe->shared_dim > 0 ? "qwen2_moe"
                                  : "mixtral";
    bool is_mixtral = strcmp(*type, "mixtral") == 0;
    if ((wide || is_mixtral) && !is_all(m))
        what = "layers without experts (model.expert_layers)";
    else if (wide && m->window > 0)
        what = "a window (model.window)";
    else if (wide && m->head_dim * m->num_heads != m->dim)
        what = "a model.head_dim other than model.dim over model.num_heads";
    else if (is_mixtral && m->qkv_bias)
        what = "model.qkv_bias without model.shared_dim";
    else if (is_mixtral && !is_renormed(moe))
        what = "model.router_renorm=false";
    if (what)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this model would be %s's in Hugging Face, which does not have %s; it "
                        "cannot be exported",
                        *type, what);
    return TR_OK;
}

static int set_int(json_t *root, const char *key, int64_t value)
{
    return json_object_set_new(root, key, json_integer(value));
}

static int add_layers(json_t *root, const tri_model_config *m)
{
    json_t *dense = json_array();
    int failed = !dense;
    for (int64_t l = 0; l < m->num_layers; l++)
        if (!tri_moe_has(&m->moe, l))
            failed |= json_array_append_new(dense, json_integer(l));
    failed |= json_object_set_new(root, "mlp_only_layers", dense);
    return failed | set_int(root, "decoder_sparse_step", 1);
}

int tri_hf_add_moe(json_t *root, const tri_model_config *m, const tri_hf_family *family)
{
    const tri_hf_moe_keys *keys = family->moe;
    const tri_moe_config *moe = &m->moe;
    if (!keys)
        return 0;
    int failed = set_int(root, keys->experts, moe->num_experts);
    if (strcmp(family->model_type, "qwen3_moe") == 0) /* transformers 4 reads this one alone */
        failed |= set_int(root, keys->experts_too, moe->num_experts);
    failed |= set_int(root, "num_experts_per_tok", moe->choices);
    failed |= set_int(root, keys->width, moe->expert_dim);
    if (keys->layers)
        failed |= add_layers(root, m);
    if (keys->shared) {
        failed |= set_int(root, "shared_expert_intermediate_size", moe->shared_dim);
        failed |= json_object_set_new(root, "qkv_bias", json_boolean(m->qkv_bias));
    }
    if (keys->renorm_key)
        failed |= json_object_set_new(root, "norm_topk_prob", json_boolean(is_renormed(moe)));
    failed |= json_object_set_new(root, "output_router_logits", json_boolean(moe->balance > 0));
    return failed | json_object_set_new(root, "router_aux_loss_coef", tri_hf_number(moe->balance));
}
