/* The small parts of a tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder. What is
 * not known here is refused by name. */
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

/* ---- reading values ---- */

tr_status tri_json_bool(const tri_tokenizer *t, json_t *json, const char *key, bool otherwise,
                        bool *value, tr_error *err)
{
    json_t *found = json_object_get(json, key);
    *value = found && !json_is_null(found) ? json_is_true(found) : otherwise;
    if (found && !json_is_null(found) && !json_is_boolean(found))
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"%s\" must be true or false", t->name, key);
    return TR_OK;
}

tr_status tri_json_text(const tri_tokenizer *t, json_t *json, const char *key, const char **value,
                        size_t *num_bytes, tr_error *err)
{
    json_t *found = json_object_get(json, key);
    *value = NULL;
    *num_bytes = 0;
    if (!found || json_is_null(found))
        return TR_OK;
    if (!json_is_string(found))
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"%s\" must be a string", t->name, key);
    *value = json_string_value(found);
    *num_bytes = json_string_length(found);
    return TR_OK;
}

static tr_status read_int(const tri_tokenizer *t, json_t *json, const char *key, int *value,
                          tr_error *err)
{
    json_t *found = json_object_get(json, key);
    *value = 0;
    if (!found)
        return TR_OK;
    if (!json_is_integer(found) || json_integer_value(found) < 0 ||
        json_integer_value(found) > 1000000)
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"%s\" must be a whole number", t->name, key);
    *value = (int)json_integer_value(found);
    return TR_OK;
}

/* The "type" of a component; NULL type for one that is not there. */
static tr_status type_of(const tri_tokenizer *t, json_t *json, const char *what, int depth,
                         const char **type, tr_error *err)
{
    size_t num;
    *type = NULL;
    if (!json || json_is_null(json))
        return TR_OK;
    if (!json_is_object(json) || depth > MAX_DEPTH)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the %s must be an object with a \"type\"",
                        t->name, what);
    TRI_TRY(tri_json_text(t, json, "type", type, &num, err));
    if (!*type)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the %s has no \"type\"", t->name, what);
    return TR_OK;
}

typedef tr_status (*component_reader)(tri_tokenizer *t, json_t *json, int depth, tr_error *err);

static tr_status read_list(tri_tokenizer *t, json_t *json, const char *key, int depth,
                           component_reader read, tr_error *err)
{
    json_t *list = json_object_get(json, key), *item;
    size_t i;
    if (!json_is_array(list))
        return tri_fail(err, TR_ERROR_INPUT, "%s: a Sequence has no list \"%s\"", t->name, key);
    json_array_foreach(list, i, item) TRI_TRY(read(t, item, depth + 1, err));
    return TR_OK;
}

static tr_status unknown(const tri_tokenizer *t, const char *what, const char *type, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT, "%s: the %s \"%.60s\" is not supported", t->name, what,
                    type);
}

static tr_status no_memory(const tri_tokenizer *t, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
}

/* {"String": "..."} or {"Regex": "..."}. */
static tr_status read_pattern(const tri_tokenizer *t, json_t *json, tri_pattern **pattern,
                              const char **text, size_t *num_bytes, bool *is_regex, tr_error *err)
{
    json_t *object = json_object_get(json, "pattern");
    json_t *string = json_object_get(object, "String"), *regex = json_object_get(object, "Regex");
    json_t *chosen = string ? string : regex;
    if (!json_is_string(chosen))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: a \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}", t->name);
    *is_regex = chosen == regex;
    *text = json_string_value(chosen);
    *num_bytes = json_string_length(chosen);
    tr_status status = tri_pattern_create(*text, *num_bytes, *is_regex, pattern, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "%s", t->name);
}

/* ---- normalizers and decoders ---- */

static tr_status add_step(tri_tokenizer *t, tri_text_steps *steps, tri_text_step_kind kind,
                          const char *text, size_t num_bytes, tri_text_step **step, tr_error *err)
{
    if (steps->num == TRI_MAX_STEPS)
        return tri_fail(err, TR_ERROR_INPUT, "%s: has more than %d steps in one component", t->name,
                        TRI_MAX_STEPS);
    *step = &steps->step[steps->num];
    **step = (tri_text_step){.kind = kind};
    if (text) {
        (*step)->text = malloc(num_bytes + 1);
        if (!(*step)->text)
            return no_memory(t, err);
        memcpy((*step)->text, text, num_bytes);
        (*step)->text_bytes = num_bytes;
    }
    steps->num++;
    return TR_OK;
}

static tr_status add_replace(tri_tokenizer *t, tri_text_steps *steps, json_t *json, tr_error *err)
{
    const char *content, *text;
    size_t num, num_text;
    bool is_regex;
    tri_text_step *step = NULL;
    TRI_TRY(tri_json_text(t, json, "content", &content, &num, err));
    if (!content)
        return tri_fail(err, TR_ERROR_INPUT, "%s: a Replace has no \"content\"", t->name);
    TRI_TRY(add_step(t, steps, TRI_STEP_REPLACE, content, num, &step, err));
    return read_pattern(t, json, &step->pattern, &text, &num_text, &is_regex, err);
}

static tr_status add_bert(tri_tokenizer *t, json_t *json, tr_error *err)
{
    bool clean, cjk, lower, accents;
    tri_text_step *step = NULL;
    TRI_TRY(tri_json_bool(t, json, "clean_text", true, &clean, err));
    TRI_TRY(tri_json_bool(t, json, "handle_chinese_chars", true, &cjk, err));
    TRI_TRY(tri_json_bool(t, json, "lowercase", true, &lower, err));
    TRI_TRY(tri_json_bool(t, json, "strip_accents", lower, &accents, err));
    TRI_TRY(add_step(t, &t->normalizer, TRI_STEP_BERT, NULL, 0, &step, err));
    step->number = (clean ? TRI_BERT_CLEAN : 0) | (cjk ? TRI_BERT_CJK : 0) |
                   (lower ? TRI_BERT_LOWER : 0) | (accents ? TRI_BERT_ACCENTS : 0);
    return TR_OK;
}

static tr_status add_prepend(tri_tokenizer *t, json_t *json, tr_error *err)
{
    const char *text;
    size_t num;
    tri_text_step *step = NULL;
    TRI_TRY(tri_json_text(t, json, "prepend", &text, &num, err));
    if (!text)
        return tri_fail(err, TR_ERROR_INPUT, "%s: a Prepend has no \"prepend\"", t->name);
    return add_step(t, &t->normalizer, TRI_STEP_PREPEND, text, num, &step, err);
}

static tr_status add_strip(tri_tokenizer *t, json_t *json, tr_error *err)
{
    bool left, right;
    tri_text_step *step = NULL;
    TRI_TRY(tri_json_bool(t, json, "strip_left", true, &left, err));
    TRI_TRY(tri_json_bool(t, json, "strip_right", true, &right, err));
    TRI_TRY(add_step(t, &t->normalizer, TRI_STEP_STRIP, NULL, 0, &step, err));
    step->number = (left ? 1 : 0) | (right ? 2 : 0);
    return TR_OK;
}

tr_status tri_read_normalizer(tri_tokenizer *t, json_t *json, int depth, tr_error *err)
{
    static const struct {
        const char *type;
        tri_text_step_kind kind;
        int number;
    } simple[] = {
        {"NFC", TRI_STEP_FORM, TRI_FORM_NFC},   {"NFD", TRI_STEP_FORM, TRI_FORM_NFD},
        {"NFKC", TRI_STEP_FORM, TRI_FORM_NFKC}, {"NFKD", TRI_STEP_FORM, TRI_FORM_NFKD},
        {"Lowercase", TRI_STEP_LOWERCASE, 0},   {"StripAccents", TRI_STEP_STRIP_ACCENTS, 0},
        {"ByteLevel", TRI_STEP_LETTERS, 0},
    };
    const char *type;
    tri_text_step *step = NULL;
    TRI_TRY(type_of(t, json, "normalizer", depth, &type, err));
    if (!type)
        return TR_OK;
    if (strcmp(type, "Sequence") == 0)
        return read_list(t, json, "normalizers", depth, tri_read_normalizer, err);
    if (strcmp(type, "Replace") == 0)
        return add_replace(t, &t->normalizer, json, err);
    if (strcmp(type, "BertNormalizer") == 0)
        return add_bert(t, json, err);
    if (strcmp(type, "Prepend") == 0)
        return add_prepend(t, json, err);
    if (strcmp(type, "Strip") == 0)
        return add_strip(t, json, err);
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
        if (strcmp(type, simple[i].type) == 0) {
            TRI_TRY(add_step(t, &t->normalizer, simple[i].kind, NULL, 0, &step, err));
            step->number = simple[i].number;
            return TR_OK;
        }
    return unknown(t, "normalizer", type, err);
}

static tr_status add_text_decoder(tri_tokenizer *t, json_t *json, tri_text_step_kind kind,
                                  const char *key, const char *otherwise, tri_text_step **step,
                                  tr_error *err)
{
    const char *text;
    size_t num;
    TRI_TRY(tri_json_text(t, json, key, &text, &num, err));
    if (!text) {
        text = otherwise;
        num = strlen(otherwise);
    }
    if (num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"%s\" of a decoder is empty", t->name, key);
    return add_step(t, &t->decoder, kind, text, num, step, err);
}

tr_status tri_read_decoder(tri_tokenizer *t, json_t *json, int depth, tr_error *err)
{
    const char *type, *scheme;
    size_t num;
    bool clean;
    tri_text_step *step = NULL;
    TRI_TRY(type_of(t, json, "decoder", depth, &type, err));
    if (!type)
        return TR_OK;
    if (strcmp(type, "Sequence") == 0)
        return read_list(t, json, "decoders", depth, tri_read_decoder, err);
    if (strcmp(type, "ByteLevel") == 0)
        return add_step(t, &t->decoder, TRI_STEP_BYTE_LEVEL, NULL, 0, &step, err);
    if (strcmp(type, "ByteFallback") == 0)
        return add_step(t, &t->decoder, TRI_STEP_BYTE_FALLBACK, NULL, 0, &step, err);
    if (strcmp(type, "Fuse") == 0)
        return add_step(t, &t->decoder, TRI_STEP_FUSE, NULL, 0, &step, err);
    if (strcmp(type, "Replace") == 0)
        return add_replace(t, &t->decoder, json, err);
    if (strcmp(type, "Strip") == 0) {
        TRI_TRY(add_text_decoder(t, json, TRI_STEP_STRIP_TOKEN, "content", " ", &step, err));
        TRI_TRY(read_int(t, json, "start", &step->number, err));
        return read_int(t, json, "stop", &step->more, err);
    }
    if (strcmp(type, "WordPiece") == 0) {
        TRI_TRY(add_text_decoder(t, json, TRI_STEP_WORDPIECE, "prefix", "##", &step, err));
        TRI_TRY(tri_json_bool(t, json, "cleanup", true, &clean, err));
        step->number = clean;
        return TR_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        TRI_TRY(add_text_decoder(t, json, TRI_STEP_METASPACE, "replacement", "\xE2\x96\x81", &step,
                                 err));
        TRI_TRY(tri_json_text(t, json, "prepend_scheme", &scheme, &num, err));
        TRI_TRY(tri_json_bool(t, json, "add_prefix_space", true, &clean, err));
        step->number = scheme ? strcmp(scheme, "never") != 0 : clean;
        return TR_OK;
    }
    return unknown(t, "decoder", type, err);
}

/* ---- post-processors ---- */

static tr_status add_special(tri_tokenizer *t, bool after, json_int_t id, tr_error *err)
{
    int *num = after ? &t->num_suffix : &t->num_prefix;
    int32_t **list = after ? &t->suffix : &t->prefix;
    if (id < 0 || id >= INT32_MAX)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the post-processor names the id %lld", t->name,
                        (long long)id);
    int32_t *grown = realloc(*list, ((size_t)*num + 1) * sizeof *grown);
    if (!grown)
        return no_memory(t, err);
    *list = grown;
    grown[(*num)++] = (int32_t)id;
    return TR_OK;
}

/* {"SpecialToken": {"id": "[CLS]", ...}}: its ids stand in "special_tokens". */
static tr_status add_template_token(tri_tokenizer *t, json_t *json, json_t *token, bool after,
                                    tr_error *err)
{
    const char *name = json_string_value(json_object_get(token, "id"));
    json_t *tokens = json_object_get(json, "special_tokens");
    json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL, *id;
    size_t i;
    if (!json_is_array(ids))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the post-processor's template uses \"%.60s\", which is not among its "
                        "special_tokens",
                        t->name, name ? name : "?");
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id))
            return tri_fail(err, TR_ERROR_INPUT, "%s: a special token of the template has no ids",
                            t->name);
        TRI_TRY(add_special(t, after, json_integer_value(id), err));
    }
    return TR_OK;
}

static tr_status read_template(tri_tokenizer *t, json_t *json, tr_error *err)
{
    json_t *list = json_object_get(json, "single"), *item;
    size_t i;
    bool after = false;
    if (!json_is_array(list))
        return tri_fail(err, TR_ERROR_INPUT, "%s: TemplateProcessing has no list \"single\"",
                        t->name);
    json_array_foreach(list, i, item)
    {
        json_t *token = json_object_get(item, "SpecialToken");
        if (token)
            TRI_TRY(add_template_token(t, json, token, after, err));
        else if (json_object_get(item, "Sequence") && !after)
            after = true;
        else
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: the post-processor's template must hold special tokens and one "
                            "Sequence",
                            t->name);
    }
    return TR_OK;
}

/* "cls": ["[CLS]", 101]. */
static tr_status read_pair(tri_tokenizer *t, json_t *json, const char *key, bool after,
                           tr_error *err)
{
    json_t *id = json_array_get(json_object_get(json, key), 1);
    if (!json_is_integer(id))
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"%s\" of the post-processor must be [name, id]",
                        t->name, key);
    return add_special(t, after, json_integer_value(id), err);
}

tr_status tri_read_postprocessor(tri_tokenizer *t, json_t *json, int depth, tr_error *err)
{
    const char *type;
    TRI_TRY(type_of(t, json, "post-processor", depth, &type, err));
    if (!type || strcmp(type, "ByteLevel") == 0) /* that one moves offsets only */
        return TR_OK;
    if (strcmp(type, "Sequence") == 0)
        return read_list(t, json, "processors", depth, tri_read_postprocessor, err);
    if (strcmp(type, "TemplateProcessing") == 0) {
        TRI_TRY(read_template(t, json, err));
        return tri_read_pair_form(t, json, type, err);
    }
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        TRI_TRY(read_pair(t, json, "cls", false, err));
        TRI_TRY(read_pair(t, json, "sep", true, err));
        return tri_read_pair_form(t, json, type, err);
    }
    return unknown(t, "post-processor", type, err);
}
