#include "serve/vocabulary.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/python_json.h"
#include "ckpt/hf/hf.h"

enum { MOST_BYTE_TOKENS = 512 };

bool tri_vocabulary_ends(const tri_vocabulary *vocabulary, int32_t token)
{
    for (int i = 0; i < vocabulary->num_eos; i++)
        if (vocabulary->eos[i] == token)
            return true;
    return false;
}

static void add_eos(tri_vocabulary *vocabulary, int64_t token)
{
    if (token >= 0 && token < vocabulary->num_tokens && vocabulary->num_eos < TRI_MAX_EOS &&
        !tri_vocabulary_ends(vocabulary, (int32_t)token))
        vocabulary->eos[vocabulary->num_eos++] = (int32_t)token;
}

/* eos_token_id of a JSON file, a number or a list; a file that is not there has none. */
static tr_status read_eos(tri_vocabulary *vocabulary, const char *path, tr_error *err)
{
    tri_mapping file;
    json_error_t why;
    if (!tri_path_exists(path))
        return TR_OK;
    TRI_TRY(tri_mapping_open(&file, path, err));
    json_t *root = tri_python_json_load((const char *)file.data, file.num_bytes, NULL, &why);
    tri_mapping_close(&file);
    if (!root)
        return tri_fail(err,
                        json_error_code(&why) == json_error_out_of_memory ? TR_ERROR_RUNTIME
                                                                          : TR_ERROR_INPUT,
                        "%s: line %d is not JSON: %s; it says which tokens end a text: mend it, "
                        "copy it again, or remove it",
                        path, why.line, why.text);
    const json_t *eos = json_object_get(root, "eos_token_id"), *one;
    size_t i;
    bool understood = json_is_object(root) &&
                      (!eos || json_is_null(eos) || json_is_integer(eos) || json_is_array(eos));
    if (json_is_integer(eos))
        add_eos(vocabulary, json_integer_value(eos));
    json_array_foreach(eos, i, one)
    {
        understood = understood && json_is_integer(one);
        add_eos(vocabulary, json_is_integer(one) ? json_integer_value(one) : -1);
    }
    json_decref(root);
    return understood ? TR_OK
                      : tri_fail(err, TR_ERROR_INPUT,
                                 "%s: has no eos_token_id that is a number or a list of them; it "
                                 "says which tokens end a text: mend it, copy it again, or remove "
                                 "it",
                                 path);
}

static bool has_tokenizer(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json", "encoder.json",
                                        "vocab.txt"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = tri_dir_has(dir, names[i]);
    return found;
}

static tr_status open_in(const char *dir, const char *tokenizer, bool bytes,
                         tri_vocabulary *vocabulary, tr_error *err)
{
    static const char *const files[] = {"generation_config.json", "config.json", TRI_HF_KEPT};
    int64_t num = vocabulary->num_tokens;
    if (!tokenizer && has_tokenizer(dir))
        tokenizer = dir;
    if (tokenizer) {
        TRI_TRY(tri_tokenizer_open(tokenizer, &vocabulary->tokenizer, err));
    } else if (bytes || (num >= 256 && num <= MOST_BYTE_TOKENS)) {
        TRI_TRY(tri_tokenizer_open("bytes", &vocabulary->tokenizer, err));
    }
    tr_status status = TR_OK;
    for (int i = 0; i < 3 && status == TR_OK && vocabulary->num_eos == 0; i++) {
        char *path = tri_path_join(dir, files[i]);
        status = path ? read_eos(vocabulary, path, err)
                      : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
        free(path);
    }
    if (tokenizer && vocabulary->num_eos == 0)
        add_eos(vocabulary, tri_tokenizer_special(vocabulary->tokenizer, TRI_SPECIAL_EOS));
    return status;
}

tr_status tri_vocabulary_open(const char *path, const char *tokenizer, int64_t num_tokens,
                              bool bytes, tri_vocabulary *vocabulary, tr_error *err)
{
    *vocabulary = (tri_vocabulary){.num_tokens = num_tokens};
    char *dir = strdup(path);
    if (!dir)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (!tri_path_is_dir(dir)) {
        char *slash = strrchr(dir, '/');
        strcpy(slash ? slash : dir, slash ? "" : "."); /* a file: the directory it is in */
    }
    tr_status status = open_in(dir[0] ? dir : "/", tokenizer, bytes, vocabulary, err);
    free(dir);
    if (status != TR_OK)
        tri_vocabulary_close(vocabulary);
    return status;
}

void tri_vocabulary_close(tri_vocabulary *vocabulary)
{
    tri_tokenizer_close(vocabulary->tokenizer);
    *vocabulary = (tri_vocabulary){0};
}

tr_status tri_vocabulary_need(const tri_vocabulary *vocabulary, const char *path, tr_error *err)
{
    if (vocabulary->tokenizer)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s has no tokenizer, and the model's vocabulary of %lld is not one of bytes; "
                    "put its tokenizer.json beside the weights, or work with token numbers: "
                    "--prompt-ids \"1 2 3\" --ids",
                    path, (long long)vocabulary->num_tokens);
}

/* What a text can begin with when nothing is given. */
static int32_t first_token(const tri_vocabulary *vocabulary)
{
    static const tri_special order[] = {TRI_SPECIAL_BOS, TRI_SPECIAL_EOS};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int32_t token = tri_tokenizer_special(vocabulary->tokenizer, order[i]);
        if (token >= 0 && token < vocabulary->num_tokens)
            return token;
    }
    return -1;
}

tr_status tri_vocabulary_prompt(const tri_vocabulary *vocabulary, const char *text,
                                size_t num_bytes, tri_ids *ids, tr_error *err)
{
    size_t before = ids->num;
    TRI_TRY(tri_tokenizer_encode(vocabulary->tokenizer, NULL, text, num_bytes, TRI_ENCODE_SPECIAL,
                                 ids, err));
    if (ids->num == before) {
        int32_t first = first_token(vocabulary);
        if (first >= 0)
            tri_ids_add(ids, &first, 1);
        else
            TRI_TRY(tri_tokenizer_encode(vocabulary->tokenizer, NULL, "\n", 1, TRI_ENCODE_PLAIN,
                                         ids, err));
    }
    if (ids->failed || ids->num == before)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the tokens of a prompt");
    for (size_t i = before; i < ids->num; i++)
        if (ids->id[i] >= vocabulary->num_tokens)
            return tri_fail(err, TR_ERROR_INPUT,
                            "the prompt has the token %d, but model.vocab is %lld: the tokenizer "
                            "is not that of the model",
                            ids->id[i], (long long)vocabulary->num_tokens);
    return TR_OK;
}

tr_status tri_vocabulary_text(const tri_vocabulary *vocabulary, const int32_t *ids, size_t num_ids,
                              tri_bytes *text, tr_error *err)
{
    int32_t known = tri_tokenizer_vocab(vocabulary->tokenizer);
    for (size_t i = 0; i < num_ids;) {
        size_t end = i;
        while (end < num_ids && ids[end] >= 0 && ids[end] < known)
            end++;
        if (end > i)
            TRI_TRY(tri_tokenizer_decode(vocabulary->tokenizer, ids + i, end - i,
                                         TRI_DECODE_SKIP_SPECIAL, text, err));
        else
            tri_bytes_add_char(text, 0xFFFD);
        i = end > i ? end : i + 1;
    }
    return text->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the text") : TR_OK;
}
