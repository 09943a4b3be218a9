/* What a post-processor makes of two texts. */
#include "data/tokenizer/tokenizer_parts.h"

#include <string.h>

static tr_status add(tri_tokenizer *t, tri_post_item item, tr_error *err)
{
    if (t->num_pair == TRI_MAX_POST_ITEMS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the post-processor's template for pairs has more than %d tokens",
                        t->name, TRI_MAX_POST_ITEMS);
    t->pair[t->num_pair++] = item;
    return TR_OK;
}

/* The ids of a special token of a template; that they are there and whole numbers has been checked
 * for the form for one text only. */
static tr_status add_token(tri_tokenizer *t, json_t *json, json_t *token, int32_t type,
                           tr_error *err)
{
    const char *name = json_string_value(json_object_get(token, "id"));
    json_t *tokens = json_object_get(json, "special_tokens"), *id;
    json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    size_t i;
    if (!json_is_array(ids))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the post-processor's template for pairs uses \"%.60s\", which is not "
                        "among its special_tokens",
                        t->name, name ? name : "?");
    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= INT32_MAX)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: a special token of the template for pairs has no ids", t->name);
        TRI_TRY(add(t, (tri_post_item){.id = (int32_t)value, .type = type}, err));
    }
    return TR_OK;
}

static tr_status read_item(tri_tokenizer *t, json_t *json, json_t *item, int *parts, tr_error *err)
{
    json_t *token = json_object_get(item, "SpecialToken");
    json_t *text = json_object_get(item, "Sequence");
    int32_t type = json_integer_value(json_object_get(token ? token : text, "type_id")) == 1;
    if (token)
        return add_token(t, json, token, type, err);
    const char *which = json_string_value(json_object_get(text, "id"));
    if (!which || strcmp(which, *parts == 0 ? "A" : "B") != 0 || *parts == 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the post-processor's template for pairs must hold special tokens, "
                        "Sequence A and after it Sequence B",
                        t->name);
    return add(t, (tri_post_item){.id = -1, .part = (*parts)++, .type = type}, err);
}

static tr_status read_template(tri_tokenizer *t, json_t *json, tr_error *err)
{
    json_t *list = json_object_get(json, "pair"), *item;
    size_t i;
    int parts = 0;
    if (!list || json_is_null(list) || json_array_size(list) == 0)
        return TR_OK;
    json_array_foreach(list, i, item) TRI_TRY(read_item(t, json, item, &parts, err));
    return parts == 2
               ? TR_OK
               : tri_fail(err, TR_ERROR_INPUT,
                          "%s: the post-processor's template for pairs has no Sequence B", t->name);
}

tr_status tri_read_pair_form(tri_tokenizer *t, json_t *json, const char *type, tr_error *err)
{
    t->num_pair = 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, json, err);
    /* [CLS] A [SEP] B [SEP] with types 0 and 1; RoBERTa's has two in the middle, and one type. */
    bool roberta = strcmp(type, "RobertaProcessing") == 0;
    tri_post_item cls = {.id = t->prefix[t->num_prefix - 1]};
    tri_post_item sep = {.id = t->suffix[t->num_suffix - 1]};
    int n = 0;
    t->pair[n++] = cls;
    t->pair[n++] = (tri_post_item){.id = -1, .part = 0};
    t->pair[n++] = sep;
    if (roberta)
        t->pair[n++] = sep;
    t->pair[n++] = (tri_post_item){.id = -1, .part = 1, .type = !roberta};
    sep.type = !roberta;
    t->pair[n++] = sep;
    t->num_pair = n;
    return TR_OK;
}

int tri_tokenizer_post(const tri_tokenizer *t, bool pair, tri_post_item items[TRI_MAX_POST_ITEMS])
{
    if (pair && t->num_pair > 0) {
        memcpy(items, t->pair, (size_t)t->num_pair * sizeof *items);
        return t->num_pair;
    }
    int num = 0;
    for (int i = 0; i < t->num_prefix && num < TRI_MAX_POST_ITEMS - 2; i++)
        items[num++] = (tri_post_item){.id = t->prefix[i]};
    items[num++] = (tri_post_item){.id = -1};
    if (pair)
        items[num++] = (tri_post_item){.id = -1, .part = 1, .type = 1};
    for (int i = 0; i < t->num_suffix && num < TRI_MAX_POST_ITEMS; i++)
        items[num++] = (tri_post_item){.id = t->suffix[i], .type = pair};
    return num;
}
