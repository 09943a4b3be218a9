/* The pre-tokenizer of a tokenizer.json. */
#include "data/tokenizer/tokenizer_parts.h"

#include <string.h>

static tr_status add_cut(tri_tokenizer *t, tri_word_cut cut, tri_word_cut **added, tr_error *err)
{
    tri_pretokenizer *p = &t->pretokenizer;
    if (p->num == TRI_MAX_CUTS)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the pre-tokenizer has more than %d steps",
                        t->name, TRI_MAX_CUTS);
    p->cut[p->num] = cut;
    *added = &p->cut[p->num++];
    return TR_OK;
}

static tr_status add_pattern(tri_tokenizer *t, const char *text, size_t num_bytes, bool is_regex,
                             tri_behaviour behaviour, bool invert, tr_error *err)
{
    tri_word_cut *cut = NULL;
    TRI_TRY(add_cut(
        t, (tri_word_cut){.kind = TRI_CUT_PATTERN, .behaviour = behaviour, .invert = invert}, &cut,
        err));
    /* The well-known patterns match every character, so all there is are matches: isolated, or
     * inverted and removed, comes to the same. */
    bool all = (behaviour == TRI_ISOLATED && !invert) || (behaviour == TRI_REMOVED && invert);
    cut->scan = is_regex && all ? tri_scan_find(text, num_bytes, &cut->scan_name) : NULL;
    if (cut->scan) {
        cut->kind = TRI_CUT_SCAN;
        return TR_OK;
    }
    tr_status status = tri_pattern_create(text, num_bytes, is_regex, &cut->pattern, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "%s", t->name);
}

static tr_status read_behaviour(tri_tokenizer *t, json_t *json, tri_behaviour otherwise,
                                tri_behaviour *behaviour, tr_error *err)
{
    static const char *const name[] = {"Removed", "Isolated", "MergedWithPrevious",
                                       "MergedWithNext", "Contiguous"};
    const char *text;
    size_t num;
    TRI_TRY(tri_json_text(t, json, "behavior", &text, &num, err));
    *behaviour = otherwise;
    if (!text)
        return TR_OK;
    for (int i = 0; i < 5; i++)
        if (strcmp(name[i], text) == 0) {
            *behaviour = (tri_behaviour)i;
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INPUT, "%s: the behavior \"%.60s\" is not known", t->name, text);
}

static tr_status add_split(tri_tokenizer *t, json_t *json, tr_error *err)
{
    json_t *pattern = json_object_get(json, "pattern");
    json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
    json_t *chosen = string ? string : regex;
    tri_behaviour behaviour;
    bool invert;
    if (!json_is_string(chosen))
        return tri_fail(err, TR_ERROR_INPUT, "%s: a Split has no \"pattern\"", t->name);
    TRI_TRY(read_behaviour(t, json, TRI_ISOLATED, &behaviour, err));
    TRI_TRY(tri_json_bool(t, json, "invert", false, &invert, err));
    return add_pattern(t, json_string_value(chosen), json_string_length(chosen), chosen == regex,
                       behaviour, invert, err);
}

static tr_status add_byte_level(tri_tokenizer *t, json_t *json, tr_error *err)
{
    bool prefix, use_regex;
    tri_word_cut *cut = NULL;
    TRI_TRY(tri_json_bool(t, json, "add_prefix_space", true, &prefix, err));
    TRI_TRY(tri_json_bool(t, json, "use_regex", true, &use_regex, err));
    if (prefix)
        TRI_TRY(add_cut(t, (tri_word_cut){.kind = TRI_CUT_PREFIX}, &cut, err));
    if (use_regex)
        TRI_TRY(add_pattern(t, tri_pattern_gpt2, strlen(tri_pattern_gpt2), true, TRI_ISOLATED,
                            false, err));
    return add_cut(t, (tri_word_cut){.kind = TRI_CUT_BYTES}, &cut, err);
}

/* Letters that only the model would see need not be written: it takes the bytes. Steps behind
 * ByteLevel, and a second ByteLevel, do see them. */
static void leave_bytes(tri_tokenizer *t)
{
    tri_pretokenizer *p = &t->pretokenizer;
    json_t *model = json_object_get(t->skeleton, "model");
    int num = json_is_true(json_object_get(model, "byte_fallback")); /* of letters, then */
    for (int i = 0; i < p->num; i++)
        num += p->cut[i].kind == TRI_CUT_BYTES;
    for (int i = 0; i < t->normalizer.num; i++)
        num += t->normalizer.step[i].kind == TRI_STEP_LETTERS;
    t->byte_level = num == 1 && t->model == TRI_MODEL_BPE && p->num > 0 &&
                    p->cut[p->num - 1].kind == TRI_CUT_BYTES;
    p->num -= t->byte_level;
}

static tr_status add_metaspace(tri_tokenizer *t, json_t *json, tr_error *err)
{
    const char *text, *scheme;
    size_t num, num_scheme;
    bool prefix, split;
    tri_word_cut *cut = NULL;
    TRI_TRY(tri_json_text(t, json, "replacement", &text, &num, err));
    TRI_TRY(tri_json_text(t, json, "prepend_scheme", &scheme, &num_scheme, err));
    TRI_TRY(tri_json_bool(t, json, "add_prefix_space", true, &prefix, err));
    TRI_TRY(tri_json_bool(t, json, "split", true, &split, err));
    if (!text || num == 0 || num > sizeof cut->text)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the \"replacement\" of Metaspace must be one "
                        "character",
                        t->name);
    TRI_TRY(add_cut(t, (tri_word_cut){.kind = TRI_CUT_METASPACE, .split = split}, &cut, err));
    memcpy(cut->text, text, num);
    cut->text_bytes = (int)num;
    cut->prepend = prefix ? TRI_PREPEND_ALWAYS : TRI_PREPEND_NEVER;
    if (!scheme)
        return TR_OK;
    if (strcmp(scheme, "always") == 0)
        cut->prepend = TRI_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        cut->prepend = TRI_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        cut->prepend = TRI_PREPEND_NEVER;
    else
        return tri_fail(err, TR_ERROR_INPUT, "%s: the prepend_scheme \"%.60s\" is not known",
                        t->name, scheme);
    return TR_OK;
}

static tr_status read_pretokenizer(tri_tokenizer *t, json_t *json, int depth, tr_error *err);

static tr_status read_sequence(tri_tokenizer *t, json_t *json, int depth, tr_error *err)
{
    json_t *list = json_object_get(json, "pretokenizers"), *item;
    size_t i;
    if (!json_is_array(list) || depth > 8)
        return tri_fail(err, TR_ERROR_INPUT, "%s: a Sequence has no list \"pretokenizers\"",
                        t->name);
    json_array_foreach(list, i, item) TRI_TRY(read_pretokenizer(t, item, depth + 1, err));
    return TR_OK;
}

static tr_status add_small(tri_tokenizer *t, json_t *json, const char *type, tr_error *err)
{
    tri_word_cut *cut = NULL;
    bool flag;
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_cut(t, (tri_word_cut){.kind = TRI_CUT_SPACES}, &cut, err);
    if (strcmp(type, "Whitespace") == 0)
        return add_cut(t, (tri_word_cut){.kind = TRI_CUT_WORDS}, &cut, err);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        TRI_TRY(add_cut(t, (tri_word_cut){.kind = TRI_CUT_SPACES}, &cut, err));
        return add_cut(t, (tri_word_cut){.kind = TRI_CUT_PUNCTUATION, .behaviour = TRI_ISOLATED},
                       &cut, err);
    }
    if (strcmp(type, "Punctuation") == 0) {
        TRI_TRY(add_cut(t, (tri_word_cut){.kind = TRI_CUT_PUNCTUATION}, &cut, err));
        return read_behaviour(t, json, TRI_ISOLATED, &cut->behaviour, err);
    }
    if (strcmp(type, "Digits") == 0) {
        TRI_TRY(tri_json_bool(t, json, "individual_digits", false, &flag, err));
        return add_cut(t, (tri_word_cut){.kind = TRI_CUT_DIGITS, .individual = flag}, &cut, err);
    }
    return tri_fail(err, TR_ERROR_INPUT, "%s: the pre-tokenizer \"%.60s\" is not supported",
                    t->name, type);
}

static tr_status read_pretokenizer(tri_tokenizer *t, json_t *json, int depth, tr_error *err)
{
    const char *type;
    size_t num;
    if (!json || json_is_null(json))
        return TR_OK;
    TRI_TRY(tri_json_text(t, json, "type", &type, &num, err));
    if (!type)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the pre-tokenizer has no \"type\"", t->name);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(t, json, depth, err);
    if (strcmp(type, "Split") == 0)
        return add_split(t, json, err);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(t, json, err);
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(t, json, err);
    return add_small(t, json, type, err);
}

tr_status tri_read_pretokenizer(tri_tokenizer *t, json_t *json, tr_error *err)
{
    TRI_TRY(read_pretokenizer(t, json, 0, err));
    leave_bytes(t);
    return TR_OK;
}
