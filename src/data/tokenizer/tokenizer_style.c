/* The tokenizer.json that each style has, without vocabulary and merges: tokenizers that come from
 * other files or from training are put together from these. */
#include "base/json.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <string.h>

#define BYTE_LEVEL(prefix, regex)                                                                  \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix                                         \
    ",\"trim_offsets\":true,\"use_regex\":" regex "}"
#define BPE_MODEL                                                                                  \
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"                             \
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"           \
    "\"byte_fallback\":false,\"ignore_merges\":false}"
#define HEAD "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"

static const char gpt2[] = HEAD "\"normalizer\":null,\"pre_tokenizer\":" BYTE_LEVEL(
    "false", "true") ",\"post_processor\":null,\"decoder\":" BYTE_LEVEL("true",
                                                                        "true") "," BPE_MODEL "}";

static const char bytes[] = HEAD "\"normalizer\":null,\"pre_tokenizer\":" BYTE_LEVEL(
    "false", "false") ",\"post_processor\":null,\"decoder\":" BYTE_LEVEL("true",
                                                                         "true") "," BPE_MODEL "}";

static const char chars[] =
    HEAD "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
         "\"decoder\":{\"type\":\"Fuse\"}," BPE_MODEL "}";

/* Llama 3 and Qwen: the pattern is put in below. */
static const char split[] = HEAD
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL(
        "false", "false") "]},\"post_processor\":null,\"decoder\":" BYTE_LEVEL("true",
                                                                               "true") "," BPE_MODEL
                                                                                       "}";

static const char bert[] =
    HEAD "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
         "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},"
         "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":null,"
         "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
         "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
         "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100}}";

static void set_pattern(json_t *root, const char *pattern)
{
    json_t *list = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_object_get(json_array_get(list, 0), "pattern"), "Regex",
                        json_string(pattern));
}

json_t *tri_style_root(const char *style)
{
    static const struct {
        const char *name, *text, *pattern;
    } known[] = {
        {"gpt2", gpt2, NULL},   {"bytes", bytes, NULL},
        {"chars", chars, NULL}, {"llama3", split, tri_pattern_llama3},
        {"bert", bert, NULL},   {"qwen", split, tri_pattern_qwen},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(style, known[i].name) != 0)
            continue;
        tri_json_begin();
        json_t *root = json_loads(known[i].text, 0, NULL);
        if (known[i].pattern)
            set_pattern(root, known[i].pattern);
        if (strcmp(style, "qwen") == 0)
            json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
        if (tri_json_built())
            return root;
        json_decref(root);
        return NULL;
    }
    return NULL;
}

bool tri_style_add_special(json_t *root, const char *content, int32_t id)
{
    json_t *token =
        json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (int)id, "content", content, "single_word",
                  0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    return token && json_array_append_new(json_object_get(root, "added_tokens"), token) == 0;
}
