/* The vocabulary of a tokenizer.json: an id has one token, or none. Files have holes where tokens
 * were taken out or room was left for others: nothing encodes to such an id, it decodes to nothing,
 * and the vocabulary ends behind the largest id that has a token. */
#include "base/arena.h"
#include "base/python_json.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_IDS = 1 << 24,
    /* A model has a row for every id, so ids far beyond the number of tokens are a mistake. */
    MOST_HOLES = 1 << 16,
    MOST_SPARSE = 4
};

typedef struct vocabulary_entry {
    const char *text; /* points into the JSON */
    size_t num_bytes;
    bool in_model;
} vocabulary_entry;

typedef struct entries {
    vocabulary_entry *item;
    size_t num, capacity;
    size_t num_tokens; /* that there are, for what can be believed of an id */
    json_t *kept;      /* names with U+0000 in them */
} entries;

static tr_status no_memory(const tri_tokenizer *t, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
}

static tr_status place(const tri_tokenizer *t, entries *e, const char *text, size_t num_bytes,
                       json_t *id, bool in_model, tr_error *err)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MAX_IDS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the id of the token \"%.80s\" must be a whole number from 0 to %d",
                        t->name, text, MAX_IDS - 1);
    size_t at = (size_t)json_integer_value(id);
    if (at >= MOST_SPARSE * e->num_tokens + MOST_HOLES)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "%s: the token \"%.80s\" has the id %zu, but there are %zu tokens in all: a "
            "model would be mostly rows without a token; is the file damaged?",
            t->name, text, at, e->num_tokens);
    if (at >= e->capacity) {
        size_t capacity = at + at / 2 + 1024;
        vocabulary_entry *grown = realloc(e->item, capacity * sizeof *grown);
        if (!grown)
            return no_memory(t, err);
        memset(grown + e->capacity, 0, (capacity - e->capacity) * sizeof *grown);
        e->item = grown;
        e->capacity = capacity;
    }
    vocabulary_entry *there = &e->item[at];
    bool same =
        there->text && there->num_bytes == num_bytes && memcmp(there->text, text, num_bytes) == 0;
    if (there->text && (in_model || !same))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the tokens \"%.80s\" and \"%.80s\" have the same id %zu", t->name,
                        there->text, text, at);
    if (!there->text)
        *there = (vocabulary_entry){text, num_bytes, in_model};
    e->num = at >= e->num ? at + 1 : e->num;
    return TR_OK;
}

/* A name as it was in the file: jansson has none with U+0000. */
static tr_status as_written(const tri_tokenizer *t, entries *e, const char **name,
                            size_t *num_bytes, tr_error *err)
{
    const size_t length = strlen(TRI_JSON_NUL);
    if (!t->nul_names || !tri_find(*name, *num_bytes, TRI_JSON_NUL, length))
        return TR_OK;
    tri_bytes text = {0};
    for (size_t i = 0; i < *num_bytes;) {
        bool nul = *num_bytes - i >= length && memcmp(*name + i, TRI_JSON_NUL, length) == 0;
        tri_bytes_add(&text, nul ? "" : *name + i, 1);
        i += nul ? length : 1;
    }
    json_t *kept = text.failed ? NULL : json_stringn(text.data, text.num);
    tri_bytes_fini(&text);
    e->kept = e->kept ? e->kept : json_array();
    if (!kept || json_array_append_new(e->kept, kept) != 0)
        return no_memory(t, err);
    *name = json_string_value(kept);
    *num_bytes = json_string_length(kept);
    return TR_OK;
}

static tr_status place_all(const tri_tokenizer *t, entries *e, json_t *vocab, json_t *added,
                           tr_error *err)
{
    const char *key;
    size_t num_bytes, i;
    json_t *id, *item;
    if (!json_is_object(vocab))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the vocabulary must be an object of tokens and ids", t->name);
    json_object_keylen_foreach(vocab, key, num_bytes, id)
    {
        const char *name = key; /* key and its length belong to the loop */
        size_t num_name = num_bytes;
        TRI_TRY(as_written(t, e, &name, &num_name, err));
        TRI_TRY(place(t, e, name, num_name, id, true, err));
    }
    json_array_foreach(added, i, item)
    {
        json_t *content = json_object_get(item, "content");
        if (!json_is_string(content) || json_string_length(content) == 0)
            return tri_fail(err, TR_ERROR_INPUT, "%s: added token %zu has no \"content\"", t->name,
                            i);
        TRI_TRY(place(t, e, json_string_value(content), json_string_length(content),
                      json_object_get(item, "id"), false, err));
    }
    return TR_OK;
}

/* In a byte-level tokenizer a spelling stands for bytes; one that was only added, for itself. */
static void add_bytes(tri_tokenizer *t, const char *text, size_t num_bytes, bool in_model,
                      tri_bytes *spare)
{
    spare->num = 0;
    if (in_model && tri_spelling_to_bytes(text, num_bytes, spare)) {
        tri_vocab_add(&t->bytes, spare->num ? spare->data : "", spare->num);
        return;
    }
    tri_vocab_add(&t->bytes, text, num_bytes);
    tri_vocab_hide(&t->bytes);
}

static tr_status fill(tri_tokenizer *t, const entries *e, tr_error *err)
{
    tri_bytes spare = {0};
    t->added_only = calloc(e->num + 1, sizeof *t->added_only);
    if (!t->added_only)
        return no_memory(t, err);
    for (size_t i = 0; i < e->num; i++) {
        const vocabulary_entry *item = &e->item[i];
        tri_vocab_add(&t->spelling, item->text, item->num_bytes);
        t->added_only[i] = !item->in_model;
        t->num_holes += !item->text;
        if (t->byte_level && !item->text)
            tri_vocab_add(&t->bytes, NULL, 0);
        else if (t->byte_level)
            add_bytes(t, item->text, item->num_bytes, item->in_model, &spare);
    }
    int32_t repeated = tri_vocab_index(&t->spelling);
    tri_vocab_index(&t->bytes);
    bool failed = spare.failed || t->spelling.failed || t->bytes.failed;
    tri_bytes_fini(&spare);
    if (failed)
        return no_memory(t, err);
    size_t num;
    if (repeated >= 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the token \"%.*s\" is there twice", t->name, 80,
                        tri_vocab_text(&t->spelling, repeated, &num));
    if (e->num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the vocabulary is empty", t->name);
    return TR_OK;
}

tr_status tri_read_vocabulary(tri_tokenizer *t, json_t *vocab, json_t *added, tr_error *err)
{
    entries e = {.num_tokens = json_object_size(vocab) + json_array_size(added)};
    tr_status status = place_all(t, &e, vocab, added, err);
    if (status == TR_OK)
        status = fill(t, &e, err);
    free(e.item);
    json_decref(e.kept);
    return status;
}

/* ---- added tokens ---- */

static tr_status read_one(tri_tokenizer *t, json_t *json, tr_error *err)
{
    tri_added_list *list = &t->added;
    tri_added *grown = tri_array_grow(list->item, list->num, &list->capacity, sizeof *grown);
    if (!grown)
        return no_memory(t, err);
    list->item = grown;
    tri_added *token = &grown[list->num];
    json_t *content = json_object_get(json, "content");
    json_t *id = json_object_get(json, "id");
    *token = (tri_added){.num_bytes = json_string_length(content)};
    if (!json_is_string(content) || token->num_bytes == 0 || !json_is_integer(id) ||
        json_integer_value(id) < 0 || json_integer_value(id) >= t->spelling.num)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: added token %zu must have a \"content\" and an \"id\" of the "
                        "vocabulary",
                        t->name, list->num);
    token->id = (int32_t)json_integer_value(id);
    TRI_TRY(tri_json_bool(t, json, "special", false, &token->special, err));
    TRI_TRY(tri_json_bool(t, json, "lstrip", false, &token->lstrip, err));
    TRI_TRY(tri_json_bool(t, json, "rstrip", false, &token->rstrip, err));
    TRI_TRY(tri_json_bool(t, json, "single_word", false, &token->single_word, err));
    TRI_TRY(tri_json_bool(t, json, "normalized", !token->special, &token->normalized, err));
    token->content = malloc(token->num_bytes);
    if (!token->content)
        return no_memory(t, err);
    memcpy(token->content, json_string_value(content), token->num_bytes);
    list->num++;
    if (token->special)
        t->is_special[token->id] = true;
    return TR_OK;
}

/* A token that is looked for after normalization is looked for in its normalized form. */
static void add_to_trie(tri_tokenizer *t, int32_t which, tri_bytes buffer[2], tri_matcher *matcher)
{
    tri_added *token = &t->added.item[which];
    if (!token->normalized) {
        tri_trie_add(&t->added.raw, token->content, token->num_bytes, which);
        return;
    }
    const char *text = token->content;
    size_t num_bytes = token->num_bytes;
    tri_normalize(&t->normalizer, t->unicode, &text, &num_bytes, true, true, buffer, matcher);
    tri_trie_add(&t->added.normalized, text, num_bytes, which);
    if (num_bytes == token->num_bytes && memcmp(text, token->content, num_bytes) == 0)
        return;
    token->shown = malloc(num_bytes + 1);
    token->shown_bytes = num_bytes;
    t->added.any_shown = true;
    if (token->shown)
        memcpy(token->shown, text, num_bytes);
    else
        t->added.normalized.failed = true;
}

tr_status tri_read_added(tri_tokenizer *t, json_t *added, tr_error *err)
{
    size_t i;
    json_t *item;
    t->is_special = calloc((size_t)t->spelling.num + 1, sizeof *t->is_special);
    if (!t->is_special)
        return no_memory(t, err);
    if (added && !json_is_null(added) && !json_is_array(added))
        return tri_fail(err, TR_ERROR_INPUT, "%s: \"added_tokens\" must be a list", t->name);
    json_array_foreach(added, i, item) TRI_TRY(read_one(t, item, err));
    tri_bytes buffer[2] = {{0}};
    tri_matcher matcher = {0};
    t->added.cuttable = t->added.blocks = true;
    tri_matcher_begin(&matcher, 0);
    for (size_t k = 0; k < t->added.num; k++) {
        const tri_added *token = &t->added.item[k];
        add_to_trie(t, (int32_t)k, buffer, &matcher);
        /* What is looked for in pieces must not lie across their border. Those found before
         * normalization are out of the way when one text is cut, but not when a caller cuts it into
         * blocks. */
        if (token->normalized && (token->lstrip || token->rstrip || token->single_word ||
                                  memchr(token->content, ' ', token->num_bytes)))
            t->added.cuttable = false;
        char last = token->content[token->num_bytes - 1];
        bool letter = (last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z');
        if ((token->rstrip && letter) || memchr(token->content, ' ', token->num_bytes))
            t->added.blocks = false;
    }
    bool failed = buffer[0].failed || buffer[1].failed || t->added.raw.failed ||
                  t->added.normalized.failed || matcher.failed;
    const tri_pattern *gave_up = matcher.gave_up;
    tri_bytes_fini(&buffer[0]);
    tri_bytes_fini(&buffer[1]);
    tri_matcher_fini(&matcher);
    if (gave_up)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the pattern \"%.200s\" takes too long on its own added tokens",
                        t->name, tri_pattern_text(gave_up));
    return failed ? no_memory(t, err) : TR_OK;
}
