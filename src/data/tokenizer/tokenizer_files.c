/* Tokenizers that are not a tokenizer.json: GPT-2's and BERT's files, plain bytes, characters; and
 * what stands beside any of them in a directory. */
#include "base/fs.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- special tokens ---- */

static const char *const role[TRI_NUM_SPECIAL] = {
    "bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"};

static int32_t find(const tri_tokenizer *t, const char *text)
{
    return tri_vocab_find(&t->spelling, text, strlen(text));
}

void tri_tokenizer_guess_specials(tri_tokenizer *t)
{
    static const char *const usual[TRI_NUM_SPECIAL][6] = {
        {"<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"},
        {"<|end_of_text|>", "</s>", "<eos>", "<|endoftext|>"},
        {"<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"},
        {"<unk>", "[UNK]"},
        {"[CLS]"},
        {"[SEP]"},
        {"[MASK]", "<mask>"},
    };
    for (int i = 0; i < TRI_NUM_SPECIAL; i++)
        for (int k = 0; k < 6 && usual[i][k] && t->special[i] < 0; k++)
            t->special[i] = find(t, usual[i][k]);
}

/* "bos_token": "<s>", or {"content": "<s>", ...}. */
static void take_roles(tri_tokenizer *t, json_t *config)
{
    for (int i = 0; i < TRI_NUM_SPECIAL; i++) {
        json_t *value = json_object_get(config, role[i]);
        json_t *content = json_object_get(value, "content");
        const char *text = json_string_value(content ? content : value);
        int32_t id = text ? find(t, text) : -1;
        if (id >= 0)
            t->special[i] = id;
    }
}

/* ---- files of a directory ---- */

/* NULL json when the file is not there. */
static tr_status load_json(const char *dir, const char *name, json_t **json, bool *nul_names,
                           tr_error *err)
{
    *json = NULL;
    char *path = tri_path_join(dir, name);
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    tr_status status = TR_OK;
    tri_mapping file = {0};
    if (tri_path_exists(path))
        status = tri_mapping_open(&file, path, err);
    if (status == TR_OK && file.data)
        status =
            tri_json_parse(path, (const char *)file.data, file.num_bytes, json, nul_names, err);
    tri_mapping_close(&file);
    free(path);
    return status;
}

/* Errors are about this file from now on. */
static tr_status rename_to(tri_tokenizer *t, const char *dir, const char *name, tr_error *err)
{
    char *path = tri_path_join(dir, name);
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    free(t->name);
    t->name = path;
    return TR_OK;
}

static const char *next_line(const char *p, const char *end, const char **line, size_t *num_bytes)
{
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    *line = p;
    stop = stop ? stop : end;
    *num_bytes = (size_t)(stop - p);
    if (*num_bytes > 0 && p[*num_bytes - 1] == '\r')
        (*num_bytes)--;
    return stop < end ? stop + 1 : end;
}

static tr_status read_merge_lines(tri_tokenizer *t, const char *text, size_t num_bytes,
                                  tr_error *err)
{
    const char *p = text, *end = text + num_bytes, *line;
    size_t num;
    for (size_t number = 1; p < end; number++) {
        p = next_line(p, end, &line, &num);
        if (num == 0 || (number == 1 && num > 8 && memcmp(line, "#version", 8) == 0))
            continue;
        const char *space = memchr(line, ' ', num);
        if (!space || memchr(space + 1, ' ', num - (size_t)(space + 1 - line)))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: line %zu must be two tokens with a space between", t->name,
                            number);
        TRI_TRY(tri_add_merge(t, line, (size_t)(space - line), space + 1,
                              num - (size_t)(space + 1 - line), "line", number, err));
    }
    if (t->bpe.num_merges == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: holds no merges", t->name);
    return TR_OK;
}

/* {"<|im_start|>": 151644, ...} and tokenizer_config.json's {"151644": {"content": ...}}. */
static tr_status collect_added(const tri_tokenizer *t, json_t *root, json_t *vocab, json_t *extra,
                               json_t *config, tr_error *err)
{
    const char *key;
    json_t *value, *list = json_object_get(root, "added_tokens");
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    bool ok = root != NULL;
    tri_json_begin();
    json_object_foreach(decoder, key, value)
    {
        json_t *copy = json_deep_copy(value);
        ok = ok && copy && json_object_set_new(copy, "id", json_integer(atoll(key))) == 0 &&
             json_array_append_new(list, copy) == 0;
    }
    if (json_array_size(list) == 0)
        json_object_foreach(extra, key, value) ok =
            ok && json_is_integer(value) &&
            tri_style_add_special(root, key, (int32_t)json_integer_value(value));
    json_t *end = json_object_get(vocab, "<|endoftext|>");
    if (json_array_size(list) == 0 && json_is_integer(end))
        ok = ok && tri_style_add_special(root, "<|endoftext|>", (int32_t)json_integer_value(end));
    if (!root || !tri_json_built())
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
    return ok ? TR_OK
              : tri_fail(err, TR_ERROR_INPUT, "%s: its added tokens cannot be read", t->name);
}

static tr_status read_vocab_and_merges(tri_tokenizer *t, const char *dir, const char *vocab_name,
                                       const char *merges_name, json_t *config, tr_error *err)
{
    json_t *vocab = NULL, *extra = NULL;
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    bool qwen = class && strncmp(class, "Qwen", 4) == 0;
    json_t *root = tri_style_root(qwen ? "qwen" : "gpt2");
    tri_mapping file = {0};
    t->byte_level = true;
    tr_status status = rename_to(t, dir, vocab_name, err);
    if (status == TR_OK)
        status = load_json(dir, vocab_name, &vocab, &t->nul_names, err);
    if (status == TR_OK)
        status = load_json(dir, "added_tokens.json", &extra, NULL, err);
    if (status == TR_OK)
        status = collect_added(t, root, vocab, extra, config, err);
    if (status == TR_OK)
        status = tri_read_vocabulary(t, vocab, json_object_get(root, "added_tokens"), err);
    if (status == TR_OK)
        status = rename_to(t, dir, merges_name, err);
    if (status == TR_OK)
        status = tri_mapping_open(&file, t->name, err);
    if (status == TR_OK)
        status = read_merge_lines(t, (const char *)file.data, file.num_bytes, err);
    tri_mapping_close(&file);
    json_decref(vocab);
    json_decref(extra);
    if (status != TR_OK) {
        json_decref(root);
        return status;
    }
    return tri_tokenizer_from_parts(t, root, err);
}

/* ---- BERT ---- */

static tr_status read_vocab_lines(tri_tokenizer *t, const char *text, size_t num_bytes,
                                  tr_error *err)
{
    const char *p = text, *end = text + num_bytes, *line;
    size_t num;
    while (p < end) {
        p = next_line(p, end, &line, &num);
        if (num == 0)
            return tri_fail(err, TR_ERROR_INPUT, "%s: line %d is empty", t->name,
                            t->spelling.num + 1);
        tri_vocab_add(&t->spelling, line, num);
    }
    int32_t repeated = tri_vocab_index(&t->spelling);
    if (t->spelling.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
    const char *again = tri_vocab_text(&t->spelling, repeated, &num);
    if (again)
        return tri_fail(err, TR_ERROR_INPUT, "%s: line %d repeats the token \"%.*s\"", t->name,
                        repeated + 1, num < 80 ? (int)num : 80, again);
    if (find(t, "[UNK]") < 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: has no token [UNK]", t->name);
    return TR_OK;
}

/* Options of tokenizer_config.json that BERT's normalizer has under another name. */
static void take_bert_options(json_t *root, json_t *config)
{
    json_t *normalizer = json_object_get(root, "normalizer");
    json_t *lower = json_object_get(config, "do_lower_case");
    json_t *accents = json_object_get(config, "strip_accents");
    json_t *cjk = json_object_get(config, "tokenize_chinese_chars");
    if (json_is_boolean(lower))
        json_object_set(normalizer, "lowercase", lower);
    if (json_is_boolean(accents))
        json_object_set(normalizer, "strip_accents", accents);
    if (json_is_boolean(cjk))
        json_object_set(normalizer, "handle_chinese_chars", cjk);
}

static tr_status read_bert(tri_tokenizer *t, const char *dir, json_t *config, tr_error *err)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    tri_mapping file;
    TRI_TRY(rename_to(t, dir, "vocab.txt", err));
    TRI_TRY(tri_mapping_open(&file, t->name, err));
    tr_status status = read_vocab_lines(t, (const char *)file.data, file.num_bytes, err);
    tri_mapping_close(&file);
    TRI_TRY(status);
    json_t *root = tri_style_root("bert");
    tri_json_begin();
    take_bert_options(root, config);
    for (int i = 0; i < 5; i++)
        if (find(t, special[i]) >= 0)
            tri_style_add_special(root, special[i], find(t, special[i]));
    int32_t cls = find(t, "[CLS]"), sep = find(t, "[SEP]");
    if (cls >= 0 && sep >= 0)
        json_object_set_new(root, "post_processor",
                            json_pack("{s:s,s:[s,i],s:[s,i]}", "type", "BertProcessing", "sep",
                                      "[SEP]", (int)sep, "cls", "[CLS]", (int)cls));
    if (!tri_json_built()) {
        json_decref(root);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
    }
    return tri_tokenizer_from_parts(t, root, err);
}

/* ---- directories ---- */

static tr_status open_found(tri_tokenizer *t, const char *dir, json_t *config, tr_error *err)
{
    if (tri_dir_has(dir, "tokenizer.json")) {
        tri_mapping file;
        TRI_TRY(rename_to(t, dir, "tokenizer.json", err));
        TRI_TRY(tri_mapping_open(&file, t->name, err));
        tr_status status = tri_tokenizer_read_json(t, (const char *)file.data, file.num_bytes, err);
        tri_mapping_close(&file);
        return status;
    }
    if (tri_dir_has(dir, "vocab.json"))
        return read_vocab_and_merges(t, dir, "vocab.json", "merges.txt", config, err);
    if (tri_dir_has(dir, "encoder.json"))
        return read_vocab_and_merges(t, dir, "encoder.json", "vocab.bpe", config, err);
    if (tri_dir_has(dir, "vocab.txt"))
        return read_bert(t, dir, config, err);
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: holds no tokenizer: neither tokenizer.json, nor vocab.json with "
                    "merges.txt, nor encoder.json with vocab.bpe, nor vocab.txt%s",
                    dir,
                    tri_dir_has(dir, "tokenizer.model")
                        ? "; its tokenizer.model must be converted to "
                          "tokenizer.json first"
                        : "");
}

bool tri_tokenizer_is_dir(const char *path)
{
    return tri_dir_has(path, "tokenizer.json") || tri_dir_has(path, "vocab.json") ||
           tri_dir_has(path, "encoder.json") || tri_dir_has(path, "vocab.txt");
}

tr_status tri_tokenizer_open_dir(tri_tokenizer *t, const char *dir, tr_error *err)
{
    json_t *config, *map = NULL;
    TRI_TRY(load_json(dir, "tokenizer_config.json", &config, NULL, err));
    tr_status status = load_json(dir, "special_tokens_map.json", &map, NULL, err);
    if (status == TR_OK)
        status = open_found(t, dir, config, err);
    if (status == TR_OK) {
        take_roles(t, map);
        take_roles(t, config);
    }
    json_decref(config);
    json_decref(map);
    return status;
}

/* ---- bytes and characters ---- */

tr_status tri_tokenizer_open_bytes(tri_tokenizer *t, tr_error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        int num = tri_utf8_put(tri_byte_to_char((unsigned char)byte), text);
        tri_vocab_add(&t->spelling, text, (size_t)num);
    }
    return tri_tokenizer_from_parts(t, tri_style_root("bytes"), err);
}

static tr_status gather_chars(const char *text, size_t num_bytes, const char *path, bool *seen,
                              tr_error *err)
{
    const char *p = text, *end = text + num_bytes;
    while (p < end) {
        uint32_t c = tri_utf8_next(&p, end);
        if (c >= TRI_BROKEN)
            return tri_fail(err, TR_ERROR_INPUT, "%s: byte %zu is not valid UTF-8", path,
                            (size_t)(p - text) - 1);
        seen[c] = true;
    }
    return TR_OK;
}

static tr_status from_alphabet(tri_tokenizer *t, const bool *seen, tr_error *err)
{
    for (uint32_t c = 0; c < TRI_NUM_CODE_POINTS; c++) {
        char one[4];
        int num = seen[c] ? tri_utf8_put(c, one) : 0;
        if (num > 0)
            tri_vocab_add(&t->spelling, one, (size_t)num);
    }
    if (t->spelling.num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: is empty, so there are no characters", t->name);
    return tri_tokenizer_from_parts(t, tri_style_root("chars"), err);
}

tr_status tri_tokenizer_open_chars(tri_tokenizer *t, const char *path, tr_error *err)
{
    tri_mapping file;
    bool *seen = calloc(TRI_NUM_CODE_POINTS, sizeof *seen);
    if (!seen)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    tr_status status = tri_mapping_open(&file, path, err);
    if (status == TR_OK) {
        status = gather_chars((const char *)file.data, file.num_bytes, path, seen, err);
        tri_mapping_close(&file);
    }
    if (status == TR_OK)
        status = from_alphabet(t, seen, err);
    free(seen);
    return status;
}

tr_status tri_tokenizer_of_chars(const bool *seen, tri_tokenizer **tokenizer, tr_error *err)
{
    TRI_TRY(tri_tokenizer_create("the text", tokenizer, err));
    tr_status status = from_alphabet(*tokenizer, seen, err);
    if (status != TR_OK) {
        tri_tokenizer_close(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

tr_status tri_tokenizer_save_dir(const tri_tokenizer *t, const char *dir, tr_error *err)
{
    char *json = tri_path_join(dir, "tokenizer.json");
    char *map = tri_path_join(dir, "special_tokens_map.json"), *text = NULL;
    tri_json_begin();
    json_t *roles = json_object();
    for (int i = 0; roles && i < TRI_NUM_SPECIAL; i++) {
        size_t num;
        const char *spelling = tri_vocab_text(&t->spelling, t->special[i], &num);
        if (t->special[i] >= 0 && spelling)
            json_object_set_new(roles, role[i], json_stringn(spelling, num));
    }
    text = tri_json_dump(roles, JSON_INDENT(2));
    tr_status status = json && map && text
                           ? tri_tokenizer_save(t, json, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    if (status == TR_OK)
        status = tri_file_replace(map, text, strlen(text), err);
    json_decref(roles);
    free(json);
    free(map);
    free(text);
    return status;
}
