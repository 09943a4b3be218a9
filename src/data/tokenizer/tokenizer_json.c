/* Reading tokenizer.json. */
#include "base/arena.h"
#include "base/python_json.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xE2\x96\x81";

static tr_status no_memory(const tri_tokenizer *t, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
}

tr_status tri_json_parse(const char *name, const char *text, size_t num_bytes, json_t **json,
                         bool *nul_names, tr_error *err)
{
    json_error_t error;
    if (num_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        num_bytes -= 3;
    }
    *json = tri_python_json_load(text, num_bytes, nul_names, &error);
    if (!*json && json_error_code(&error) == json_error_out_of_memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", name);
    if (!*json)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: line %d, column %d is not JSON: %s; the file is damaged or no "
                        "tokenizer: copy or download it again, or make one with `trireme data "
                        "tokenizer train`",
                        name, error.line, error.column, error.text);
    if (json_is_object(*json))
        return TR_OK;
    json_decref(*json);
    *json = NULL;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: must hold a JSON object, as a tokenizer.json does; name such a file, or "
                    "make one with `trireme data tokenizer train`",
                    name);
}

/* ---- merges ---- */

static tr_status unknown_token(const tri_tokenizer *t, const char *what, size_t where,
                               const char *text, size_t num_bytes, tr_error *err)
{
    int shown = num_bytes < 80 ? (int)num_bytes : 80;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: %s %zu names the token \"%.*s\", which is not in the vocabulary", t->name,
                    what, where, shown, text);
}

tr_status tri_add_merge(tri_tokenizer *t, const char *left, size_t num_left, const char *right,
                        size_t num_right, const char *what, size_t where, tr_error *err)
{
    tri_bpe *bpe = &t->bpe;
    char small[512], *both = small;
    int32_t a = tri_vocab_find(&t->spelling, left, num_left);
    int32_t b = tri_vocab_find(&t->spelling, right, num_right);
    if (a < 0)
        return unknown_token(t, what, where, left, num_left, err);
    if (b < 0)
        return unknown_token(t, what, where, right, num_right, err);
    if (num_left + num_right > sizeof small)
        both = malloc(num_left + num_right);
    tri_merge *grown = tri_array_grow(bpe->merge, bpe->num_merges, &bpe->capacity, sizeof *grown);
    if (grown)
        bpe->merge = grown;
    if (!both || !grown) {
        if (both != small)
            free(both);
        return no_memory(t, err);
    }
    memcpy(both, left, num_left);
    memcpy(both + num_left, right, num_right);
    int32_t into = tri_vocab_find(&t->spelling, both, num_left + num_right);
    tr_status status = TR_OK;
    if (into < 0)
        status = unknown_token(t, what, where, both, num_left + num_right, err);
    else
        grown[bpe->num_merges++] = (tri_merge){a, b, into};
    if (both != small)
        free(both);
    return status;
}

/* "a b", or ["a", "b"] which can also hold spaces. */
static tr_status read_merge(tri_tokenizer *t, json_t *item, size_t where, tr_error *err)
{
    if (json_is_string(item)) {
        const char *text = json_string_value(item);
        size_t num = json_string_length(item);
        const char *space = memchr(text, ' ', num);
        if (space && !memchr(space + 1, ' ', num - (size_t)(space + 1 - text)))
            return tri_add_merge(t, text, (size_t)(space - text), space + 1,
                                 num - (size_t)(space + 1 - text), "merge", where, err);
    } else if (json_is_array(item) && json_array_size(item) == 2) {
        json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
        if (json_is_string(left) && json_is_string(right))
            return tri_add_merge(t, json_string_value(left), json_string_length(left),
                                 json_string_value(right), json_string_length(right), "merge",
                                 where, err);
    }
    return tri_fail(err, TR_ERROR_INPUT, "%s: merge %zu must be two tokens with a space between",
                    t->name, where);
}

/* ---- models ---- */

static tr_status read_unk(tri_tokenizer *t, json_t *model, int32_t *unk, tr_error *err)
{
    const char *text;
    size_t num;
    *unk = -1;
    TRI_TRY(tri_json_text(t, model, "unk_token", &text, &num, err));
    if (!text)
        return TR_OK;
    *unk = tri_vocab_find(&t->spelling, text, num);
    if (*unk < 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the unk_token \"%.60s\" is not in the vocabulary",
                        t->name, text);
    return TR_OK;
}

static tr_status refuse_option(tri_tokenizer *t, json_t *model, const char *key, tr_error *err)
{
    json_t *value = json_object_get(model, key);
    if (!value || json_is_null(value) ||
        (json_is_string(value) && json_string_length(value) == 0) ||
        (json_is_number(value) && json_number_value(value) == 0))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s: the model option \"%s\" is not supported", t->name,
                    key);
}

/* Tokens that no merge makes cannot come out of encoding. A few are usual, many mean that the list
 * of merges was cut short. */
static tr_status check_merges(tri_tokenizer *t, tr_error *err)
{
    size_t num_long = 0, num_made = 0;
    bool *made = calloc((size_t)t->spelling.num + 1, sizeof *made);
    if (!made)
        return no_memory(t, err);
    for (size_t i = 0; i < t->bpe.num_merges; i++)
        made[t->bpe.merge[i].into] = true;
    for (size_t i = 0; i < t->added.num; i++)
        made[t->added.item[i].id] = true;
    for (int32_t id = 0; id < t->spelling.num; id++) {
        size_t num;
        const char *text = tri_vocab_text(&t->spelling, id, &num), *p = text;
        if (num == 0) /* one that is absent has no address to add to */
            continue;
        tri_utf8_next(&p, text + num);
        if (p == text + num || (num == 6 && memcmp(text, "<0x", 3) == 0))
            continue;
        num_long++;
        num_made += made[id];
    }
    free(made);
    if (num_long - num_made > 16 && 4 * (num_long - num_made) > num_long)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: merges are missing: %zu of the %zu tokens longer than one character "
                        "are made by no merge",
                        t->name, num_long - num_made, num_long);
    return TR_OK;
}

static void find_byte_tokens(tri_tokenizer *t)
{
    tri_bpe *bpe = &t->bpe;
    for (int byte = 0; byte < 256; byte++) {
        char text[8] = {(char)byte};
        size_t num = 1;
        if (!t->byte_level)
            num = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        bpe->byte_id[byte] = tri_vocab_find(bpe->vocab, text, num);
    }
}

/* Has any token that merges make a U+2581 behind another character? */
static bool metaspace_only_leads(const tri_tokenizer *t)
{
    for (size_t i = 0; i < t->bpe.num_merges; i++) {
        size_t num;
        const char *text = tri_vocab_text(&t->spelling, t->bpe.merge[i].into, &num);
        size_t at = 0;
        while (num - at >= 3 && memcmp(text + at, metaspace, 3) == 0)
            at += 3;
        if (tri_find(text + at, num - at, metaspace, 3))
            return false;
    }
    return tri_vocab_find(&t->spelling, metaspace, 3) >= 0;
}

static tr_status finish_bpe(tri_tokenizer *t, json_t *model, tr_error *err)
{
    tri_bpe *bpe = &t->bpe;
    t->model = TRI_MODEL_BPE;
    TRI_TRY(refuse_option(t, model, "dropout", err));
    TRI_TRY(refuse_option(t, model, "continuing_subword_prefix", err));
    TRI_TRY(refuse_option(t, model, "end_of_word_suffix", err));
    TRI_TRY(tri_json_bool(t, model, "byte_fallback", false, &bpe->byte_fallback, err));
    TRI_TRY(tri_json_bool(t, model, "fuse_unk", false, &bpe->fuse_unk, err));
    TRI_TRY(tri_json_bool(t, model, "ignore_merges", false, &bpe->ignore_merges, err));
    TRI_TRY(read_unk(t, model, &bpe->unk, err));
    bpe->byte_level = t->byte_level;
    bpe->vocab = t->byte_level ? &t->bytes : &t->spelling;
    find_byte_tokens(t);
    if (!bpe->ignore_merges)
        TRI_TRY(check_merges(t, err));
    bpe->cut_at_metaspace =
        !bpe->byte_level && !bpe->ignore_merges && bpe->num_merges > 0 && metaspace_only_leads(t);
    return tri_bpe_index(bpe) ? TR_OK : no_memory(t, err);
}

static tr_status finish_wordpiece(tri_tokenizer *t, json_t *model, tr_error *err)
{
    const char *prefix;
    size_t num;
    t->model = TRI_MODEL_WORDPIECE;
    TRI_TRY(tri_json_text(t, model, "continuing_subword_prefix", &prefix, &num, err));
    if (!prefix) {
        prefix = "##";
        num = 2;
    }
    TRI_TRY(read_unk(t, model, &t->wordpiece.unk, err));
    if (t->wordpiece.unk < 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: a WordPiece model needs an unk_token", t->name);
    json_t *max = json_object_get(model, "max_input_chars_per_word");
    if (max &&
        (!json_is_integer(max) || json_integer_value(max) < 1 || json_integer_value(max) > 1000000))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: \"max_input_chars_per_word\" must be a number from 1 to 1000000",
                        t->name);
    t->wordpiece.max_chars = max ? (int)json_integer_value(max) : 100;
    return tri_wordpiece_init(&t->wordpiece, &t->spelling, t->added_only, prefix, num)
               ? TR_OK
               : no_memory(t, err);
}

/* The ids that the post-processor adds must exist. */
static tr_status check_specials(const tri_tokenizer *t, tr_error *err)
{
    int num_single = t->num_prefix + t->num_suffix;
    for (int i = 0; i < num_single + t->num_pair; i++) {
        int32_t id = i < t->num_prefix ? t->prefix[i]
                     : i < num_single  ? t->suffix[i - t->num_prefix]
                                       : t->pair[i - num_single].id;
        if (id >= t->spelling.num)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: the post-processor adds the id %d, but ids end at %d", t->name, id,
                            t->spelling.num - 1);
        if (tri_vocab_is_hole(&t->spelling, id))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: the post-processor adds the id %d, but no token has it", t->name,
                            id);
    }
    return TR_OK;
}

/* Old files do not say it: their members do, in the order in which Hugging Face tokenizers tries.
 */
static const char *model_type(json_t *model)
{
    static const char *const wordpiece[] = {"unk_token", "continuing_subword_prefix",
                                            "max_input_chars_per_word", "vocab"};
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type)
        return type;
    if (json_object_get(model, "merges"))
        return "BPE";
    for (int i = 0; i < 4; i++)
        if (!json_object_get(model, wordpiece[i]))
            return "(none)";
    return "WordPiece";
}

static tr_status read_components(tri_tokenizer *t, json_t *root, tr_error *err)
{
    TRI_TRY(tri_read_normalizer(t, json_object_get(root, "normalizer"), 0, err));
    TRI_TRY(tri_read_pretokenizer(t, json_object_get(root, "pre_tokenizer"), err));
    TRI_TRY(tri_read_postprocessor(t, json_object_get(root, "post_processor"), 0, err));
    return tri_read_decoder(t, json_object_get(root, "decoder"), 0, err);
}

static tr_status finish(tri_tokenizer *t, json_t *root, tr_error *err)
{
    json_t *model = json_object_get(root, "model");
    TRI_TRY(tri_read_added(t, json_object_get(root, "added_tokens"), err));
    TRI_TRY(check_specials(t, err));
    TRI_TRY(strcmp(model_type(model), "BPE") == 0 ? finish_bpe(t, model, err)
                                                  : finish_wordpiece(t, model, err));
    tri_tokenizer_guess_specials(t);
    return TR_OK;
}

tr_status tri_tokenizer_from_parts(tri_tokenizer *t, json_t *root, tr_error *err)
{
    t->skeleton = root;
    if (!root)
        return no_memory(t, err);
    TRI_TRY(read_components(t, root, err));
    tri_bytes spare = {0};
    bool fill = t->byte_level && t->bytes.num == 0;
    for (int32_t id = 0; fill && id < t->spelling.num; id++) {
        size_t num;
        const char *text = tri_vocab_text(&t->spelling, id, &num);
        spare.num = 0;
        bool is_bytes = tri_spelling_to_bytes(text, num, &spare);
        tri_vocab_add(&t->bytes, is_bytes ? spare.data : text, is_bytes ? spare.num : num);
        if (!is_bytes)
            tri_vocab_hide(&t->bytes);
    }
    tri_vocab_index(&t->spelling);
    tri_vocab_index(&t->bytes);
    bool failed = spare.failed || t->spelling.failed || t->bytes.failed;
    tri_bytes_fini(&spare);
    if (failed)
        return no_memory(t, err);
    return finish(t, root, err);
}

tr_status tri_tokenizer_read_json(tri_tokenizer *t, const char *text, size_t num_bytes,
                                  tr_error *err)
{
    TRI_TRY(tri_json_parse(t->name, text, num_bytes, &t->skeleton, &t->nul_names, err));
    json_t *root = t->skeleton, *model = json_object_get(root, "model"), *item;
    size_t i;
    if (!json_is_object(model))
        return tri_fail(err, TR_ERROR_INPUT, "%s: has no \"model\"; is it a tokenizer.json?",
                        t->name);
    bool is_bpe = strcmp(model_type(model), "BPE") == 0;
    if (!is_bpe && strcmp(model_type(model), "WordPiece") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the model \"%.60s\" is not supported; BPE and WordPiece are", t->name,
                        model_type(model));
    t->model = is_bpe ? TRI_MODEL_BPE : TRI_MODEL_WORDPIECE;
    TRI_TRY(read_components(t, root, err));
    TRI_TRY(tri_read_vocabulary(t, json_object_get(model, "vocab"),
                                json_object_get(root, "added_tokens"), err));
    json_t *merges = json_object_get(model, "merges");
    if (is_bpe && !json_is_array(merges))
        return tri_fail(err, TR_ERROR_INPUT, "%s: the model has no list of \"merges\"", t->name);
    if (is_bpe)
        json_array_foreach(merges, i, item) TRI_TRY(read_merge(t, item, i, err));
    TRI_TRY(finish(t, root, err));
    json_object_del(model, "vocab"); /* they are in our own form now, and large */
    json_object_del(model, "merges");
    return TR_OK;
}
