/* The table of families. */
#include <stdio.h>
#include <string.h>

#include "ckpt/hf/hf_parts.h"

#define MASKS  "*.attn.bias *.attn.masked_bias"
#define ROTARY "*rotary_emb.inv_freq"

/* A bert for one task often lies in a file with the heads of others. */
#define BERT_HEADS "*position_ids cls.* classifier.* pooler.*"

static const tri_hf_family families[] = {
    {"gpt2", "gpt2", "GPT2LMHeadModel", "transformer.", "lm_head.", true, "lm_head.weight",
     "wte.weight", MASKS, 0, 0, 1024, 0},
    {"llama", "llama", "LlamaForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 0, 0, 2048, 0},
    {"qwen2", "llama", "Qwen2ForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 32, 0, 32768, 4096},
    {"qwen3", "llama", "Qwen3ForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 32, 128, 32768, 4096},
    {"mistral", "llama", "MistralForCausalLM", "model.", "lm_head.", false, "lm_head.weight",
     "embed_tokens.weight", ROTARY, 8, 0, 131072, 4096},
    {"bert", "bert", "BertForMaskedLM", "bert.", "cls. classifier.", false,
     "cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", BERT_HEADS, 0, 0, 512,
     0},
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

char *tri_hf_name(const tri_hf_family *family, const char *canonical, char *text, size_t text_size)
{
    const char *prefix = matches(canonical, family->heads) ? "" : family->prefix;
    snprintf(text, text_size, "%s%s", prefix, canonical);
    return text;
}

char *tri_hf_canonical(const tri_hf_family *family, const char *name, char *text, size_t text_size)
{
    size_t length = strlen(family->prefix);
    snprintf(text, text_size, "%s",
             strncmp(name, family->prefix, length) == 0 ? name + length : name);
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
