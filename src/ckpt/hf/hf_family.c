/* The table of families. */
#include <stdio.h>
#include <string.h>

#include "ckpt/hf/hf_parts.h"

#define MASKS  "*.attn.bias *.attn.masked_bias"
#define ROTARY "*rotary_emb.inv_freq"

/* A bert for one task often lies in a file with the heads of others. */
#define BERT_HEADS "*position_ids cls.* classifier.* pooler.*"

static const tri_hf_moe_keys mixtral_keys = {
    .experts = "num_local_experts",
    .experts_too = "num_experts",
    .width = "intermediate_size",
    .aux_loss = 0.001,
};
static const tri_hf_moe_keys qwen2_moe_keys = {
    .experts = "num_experts",
    .width = "moe_intermediate_size",
    .layers = true,
    .shared = true,
    .renorm_key = true,
    .aux_loss = 0.001,
};
/* num_experts is what transformers 4 writes, and the hub has; num_local_experts version 5. */
static const tri_hf_moe_keys qwen3_moe_keys = {
    .experts = "num_local_experts",
    .experts_too = "num_experts",
    .width = "moe_intermediate_size",
    .layers = true,
    .renorm_key = true,
    .aux_loss = 0.001,
};
static const tri_hf_moe_keys olmoe_keys = {
    .experts = "num_experts",
    .experts_too = "num_local_experts",
    .width = "intermediate_size",
    .renorm_key = true,
    .aux_loss = 0.01,
};

/* Mistral's own names, of a family whose layers all have experts. */
static const tri_hf_rename mixtral_names[] = {
    {".mlp.gate.", ".block_sparse_moe.gate."},
    {".mlp.experts.", ".block_sparse_moe.experts."},
    {".gate_proj.", ".w1."},
    {".down_proj.", ".w2."},
    {".up_proj.", ".w3."},
    {NULL, NULL},
};

static const tri_hf_family families[] = {
    {"gpt2", "gpt2", "GPT2LMHeadModel", "transformer.", "lm_head.", true, "lm_head.weight",
     "wte.weight", MASKS, 0, 0, 1024, .window = 0},
    {"llama", "llama", "LlamaForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 0, 0, 2048, .window = 0},
    {"qwen2", "llama", "Qwen2ForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 32, 0, 32768, .window = 4096},
    {"qwen3", "llama", "Qwen3ForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 32, 128, 32768, .window = 4096},
    {"mistral", "llama", "MistralForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 8, 0, 131072, .window = 4096},
    {"mixtral", "llama", "MixtralForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 8, 0, 131072, .window = TRI_HF_MAY_HAVE_WINDOW,
     .norm_eps = 1e-5, .rope_theta = 1e6, .moe = &mixtral_keys, .renames = mixtral_names},
    {"qwen2_moe", "llama", "Qwen2MoeForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 16, 0, 32768, .window = 4096, .moe = &qwen2_moe_keys},
    {"qwen3_moe", "llama", "Qwen3MoeForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 4, 0, 32768, .window = 4096, .moe = &qwen3_moe_keys},
    {"olmoe", "llama", "OlmoeForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 0, 0, 4096, .window = 0, .norm_eps = 1e-5, .moe = &olmoe_keys},
    {"bert", "bert", "BertForMaskedLM", "bert.", "cls. classifier.", false,
     "cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", BERT_HEADS, 0, 0, 512,
     .window = 0},
};
/* What a file of the class must hold. BertModel's pooler is there or not, as it was made. */
static const tri_hf_class bert_classes[] = {
    {"BertForMaskedLM", TRI_TASK_MLM, "cls."},
    {"BertForPreTraining", TRI_TASK_MLM, "cls. pooler."},
    {"BertForSequenceClassification", TRI_TASK_CLASSIFY, "classifier. pooler."},
};
enum { NUM_BERT_CLASSES = sizeof bert_classes / sizeof *bert_classes };

enum { NUM_FAMILIES = sizeof families / sizeof *families };

const tri_hf_family *tri_hf_family_find(const char *model_type)
{
    for (int i = 0; i < NUM_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

char *tri_hf_family_names(char *text, size_t text_size)
{
    text[0] = '\0';
    for (int i = 0; i < NUM_FAMILIES; i++) {
        size_t length = strlen(text);
        snprintf(text + length, text_size - length, "%s%s", i ? ", " : "", families[i].model_type);
    }
    return text;
}

/* Does name begin, or end, with one of the words of a list? A word "*x" is an end. */
static bool matches(const char *name, const char *list)
{
    size_t length = strlen(name);
    for (list += strspn(list, " "); *list; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        bool is_end = list[0] == '*';
        const char *word = list + is_end;
        size_t size = n - is_end - (!is_end && list[n - 1] == '*');
        if (length >= size && memcmp(is_end ? name + length - size : name, word, size) == 0)
            return true;
        list += n;
    }
    return false;
}

/* The first of a part of a text becomes another, where it is there and the text has room. */
static void replace(char *text, size_t text_size, const char *from, const char *to)
{
    char *at = strstr(text, from);
    if (!at || strlen(text) + strlen(to) >= text_size)
        return;
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
}

char *tri_hf_name(const tri_hf_family *family, const char *canonical, char *text, size_t text_size)
{
    const char *prefix = matches(canonical, family->heads) ? "" : family->prefix;
    snprintf(text, text_size, "%s%s", prefix, canonical);
    for (const tri_hf_rename *r = family->renames; r && r->ours; r++)
        replace(text, text_size, r->ours, r->theirs);
    return text;
}

char *tri_hf_canonical(const tri_hf_family *family, const char *name, char *text, size_t text_size)
{
    size_t length = strlen(family->prefix);
    snprintf(text, text_size, "%s",
             strncmp(name, family->prefix, length) == 0 ? name + length : name);
    for (const tri_hf_rename *r = family->renames; r && r->ours; r++)
        replace(text, text_size, r->theirs, r->ours);
    /* The first BERT files came from TensorFlow, with its names for the parts of a norm. */
    char *end = strstr(text, "LayerNorm.gamma");
    if (end)
        snprintf(end, text_size - (size_t)(end - text), "LayerNorm.weight");
    if ((end = strstr(text, "LayerNorm.beta")) != NULL)
        snprintf(end, text_size - (size_t)(end - text), "LayerNorm.bias");
    return text;
}

bool tri_hf_ignored(const tri_hf_family *family, const char *canonical)
{
    return matches(canonical, family->ignored);
}

int tri_hf_dims(const tri_hf_family *family, const tri_param *param, int64_t dim[2])
{
    if (tri_hf_num_experts(param) > 0) {
        dim[0] = param->shape.dim[1].size;
        dim[1] = param->shape.dim[2].size;
        return 2;
    }
    if (param->role == TRI_ROLE_BIAS || param->role == TRI_ROLE_NORM) {
        dim[0] = tri_shape_count(&param->shape);
        dim[1] = 1;
        return 1;
    }
    bool transposed = family->conv1d && param->role == TRI_ROLE_MATRIX;
    dim[transposed] = tri_shape_span(&param->shape, 0, param->split);
    dim[!transposed] = tri_shape_span(&param->shape, param->split, param->shape.rank);
    return 2;
}

/* ---- classes of a family ---- */

static bool is_bert(const tri_hf_family *family)
{
    return strcmp(family->kind, "bert") == 0;
}

tr_status tri_hf_class_read(const tri_hf_family *family, const json_t *root, const char *path,
                            const tri_hf_class **found, tr_error *err)
{
    const json_t *list = json_object_get(root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    *found = NULL;
    if (!is_bert(family) || !name || strcmp(name, "BertModel") == 0)
        return TR_OK;
    for (int i = 0; i < NUM_BERT_CLASSES; i++)
        if (strcmp(bert_classes[i].name, name) == 0)
            *found = &bert_classes[i];
    if (*found)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: architecture \"%.60s\" is not known; known ones of bert: BertModel, %s, "
                    "%s, %s",
                    path, name, bert_classes[0].name, bert_classes[1].name, bert_classes[2].name);
}

const tri_hf_class *tri_hf_class_for(tri_task task)
{
    return &bert_classes[task == TRI_TASK_CLASSIFY ? 2 : 0];
}

const char *tri_hf_head_of(const tri_hf_family *family, const char *canonical)
{
    static const char *const heads[] = {"cls.", "classifier.", "pooler."};
    for (int i = 0; is_bert(family) && i < 3; i++)
        if (strncmp(canonical, heads[i], strlen(heads[i])) == 0)
            return heads[i];
    return NULL;
}
