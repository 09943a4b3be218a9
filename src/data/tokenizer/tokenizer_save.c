/* Writing tokenizer.json: the small parts as they were read, vocabulary and merges from our own
 * tables. */
#include "base/checksum.h"
#include "base/fs.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_text(tri_bytes *out, const char *text)
{
    tri_bytes_add(out, text, strlen(text));
}

static void add_quoted(tri_bytes *out, const char *text, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (c == '"' || c == '\\') {
            snprintf(escape, sizeof escape, "\\%c", c);
            add_text(out, escape);
        } else if (c < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            add_text(out, escape);
        } else {
            tri_bytes_add(out, text + i, 1);
        }
    }
}

static void add_token(const tri_tokenizer *t, tri_bytes *out, int32_t id)
{
    size_t num;
    const char *text = tri_vocab_text(&t->spelling, id, &num);
    add_quoted(out, text, num);
}

static void add_vocab(const tri_tokenizer *t, tri_bytes *out)
{
    bool any = false;
    add_text(out, "    \"vocab\": {");
    for (int32_t id = 0; id < t->spelling.num; id++) {
        char tail[32];
        if ((t->added_only && t->added_only[id]) || tri_vocab_is_hole(&t->spelling, id))
            continue;
        add_text(out, any ? ",\n      \"" : "\n      \"");
        add_token(t, out, id);
        snprintf(tail, sizeof tail, "\": %d", id);
        add_text(out, tail);
        any = true;
    }
    add_text(out, "\n    }");
}

static bool has_space(const tri_tokenizer *t, int32_t id)
{
    size_t num;
    const char *text = tri_vocab_text(&t->spelling, id, &num);
    return memchr(text, ' ', num) != NULL;
}

/* As "a b", which every reader knows, unless a token holds a space itself. */
static void add_merges(const tri_tokenizer *t, tri_bytes *out)
{
    bool pairs = false;
    for (size_t i = 0; i < t->bpe.num_merges && !pairs; i++)
        pairs = has_space(t, t->bpe.merge[i].left) || has_space(t, t->bpe.merge[i].right);
    add_text(out, ",\n    \"merges\": [");
    for (size_t i = 0; i < t->bpe.num_merges; i++) {
        add_text(out, i ? ",\n      " : "\n      ");
        add_text(out, pairs ? "[\"" : "\"");
        add_token(t, out, t->bpe.merge[i].left);
        add_text(out, pairs ? "\", \"" : " ");
        add_token(t, out, t->bpe.merge[i].right);
        add_text(out, pairs ? "\"]" : "\"");
    }
    add_text(out, t->bpe.num_merges ? "\n    ]" : "]");
}

static bool add_member(tri_bytes *out, const char *indent, const char *key, json_t *value)
{
    tri_json_begin();
    char *text = tri_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return false;
    add_text(out, indent);
    add_text(out, "\"");
    add_text(out, key);
    add_text(out, "\": ");
    add_text(out, text);
    add_text(out, ",\n");
    free(text);
    return true;
}

static bool write_all(const tri_tokenizer *t, tri_bytes *out)
{
    static const char *const order[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder"};
    const char *key;
    json_t *value, *model = json_object_get(t->skeleton, "model");
    bool ok = true;
    add_text(out, "{\n");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        value = json_object_get(t->skeleton, order[i]);
        if (value)
            ok = ok && add_member(out, "  ", order[i], value);
    }
    add_text(out, "  \"model\": {\n");
    if (!json_object_get(model, "type"))
        add_text(out, t->model == TRI_MODEL_BPE ? "    \"type\": \"BPE\",\n"
                                                : "    \"type\": \"WordPiece\",\n");
    json_object_foreach(model, key,
                        value) if (strcmp(key, "vocab") != 0 && strcmp(key, "merges") != 0) ok =
        ok && add_member(out, "    ", key, value);
    add_vocab(t, out);
    if (t->model == TRI_MODEL_BPE)
        add_merges(t, out);
    add_text(out, "\n  }\n}\n");
    return ok && !out->failed;
}

tr_status tri_tokenizer_save(const tri_tokenizer *t, const char *path, tr_error *err)
{
    tri_bytes out = {0};
    tr_status status;
    if (write_all(t, &out))
        status = tri_file_replace(path, out.data, out.num, err);
    else
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    tri_bytes_fini(&out);
    return status;
}

tr_status tri_tokenizer_fingerprint(const tri_tokenizer *t, uint64_t *fingerprint, tr_error *err)
{
    tri_bytes out = {0};
    bool whole = write_all(t, &out);
    *fingerprint = whole ? tri_checksum_bytes(out.data, out.num) | 1 : 0;
    tri_bytes_fini(&out);
    return whole ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->name);
}
