/* Opening, closing and looking into a tokenizer. */
#include "base/fs.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tr_status tri_tokenizer_create(const char *name, tri_tokenizer **tokenizer, tr_error *err)
{
    tri_tokenizer *t = *tokenizer = calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", name);
    pthread_mutex_init(&t->lock, NULL);
    for (int i = 0; i < TRI_NUM_SPECIAL; i++)
        t->special[i] = -1;
    t->name = strdup(name);
    t->unicode = malloc(sizeof *t->unicode);
    if (!t->name || !t->unicode) {
        tri_tokenizer_close(t);
        *tokenizer = NULL;
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", name);
    }
    tri_unicode_init(t->unicode);
    return TR_OK;
}

void tri_tokenizer_close(tri_tokenizer *t)
{
    if (!t)
        return;
    tri_scratch_destroy_all(t->idle);
    pthread_mutex_destroy(&t->lock);
    tri_vocab_fini(&t->spelling);
    tri_vocab_fini(&t->bytes);
    tri_bpe_fini(&t->bpe);
    tri_wordpiece_fini(&t->wordpiece);
    tri_text_steps_fini(&t->normalizer);
    tri_text_steps_fini(&t->decoder);
    tri_pretokenizer_fini(&t->pretokenizer);
    tri_added_fini(&t->added);
    free(t->prefix);
    free(t->suffix);
    free(t->is_special);
    free(t->added_only);
    json_decref(t->skeleton);
    free(t->unicode);
    free(t->name);
    free(t);
}

static tr_status open_file(tri_tokenizer *t, const char *path, tr_error *err)
{
    tri_mapping file;
    TRI_TRY(tri_mapping_open(&file, path, err));
    tr_status status = tri_tokenizer_read_json(t, (const char *)file.data, file.num_bytes, err);
    tri_mapping_close(&file);
    return status;
}

static tr_status open_any(tri_tokenizer *t, const char *path, tr_error *err)
{
    if (strcmp(path, "bytes") == 0)
        return tri_tokenizer_open_bytes(t, err);
    if (strncmp(path, "chars:", 6) == 0)
        return tri_tokenizer_open_chars(t, path + 6, err);
    if (tri_path_is_dir(path))
        return tri_tokenizer_open_dir(t, path, err);
    if (!tri_path_exists(path))
        return tri_fail_missing(err, path,
                                "there is no such tokenizer: give a tokenizer.json, a directory "
                                "that holds one, or bytes");
    return open_file(t, path, err);
}

tr_status tri_tokenizer_open(const char *path, tri_tokenizer **tokenizer, tr_error *err)
{
    TRI_TRY(tri_tokenizer_create(path, tokenizer, err));
    tr_status status = open_any(*tokenizer, path, err);
    if (status != TR_OK) {
        tri_tokenizer_close(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

int32_t tri_tokenizer_vocab(const tri_tokenizer *t)
{
    return t->spelling.num;
}

const char *tri_tokenizer_token(const tri_tokenizer *t, int32_t id, size_t *num_bytes)
{
    return tri_vocab_text(t->byte_level ? &t->bytes : &t->spelling, id, num_bytes);
}

const char *tri_tokenizer_spelling(const tri_tokenizer *t, int32_t id, size_t *num_bytes)
{
    return tri_vocab_text(&t->spelling, id, num_bytes);
}

int32_t tri_tokenizer_id(const tri_tokenizer *t, const char *text, size_t num_bytes)
{
    return tri_vocab_find(&t->spelling, text, num_bytes);
}

int32_t tri_tokenizer_special(const tri_tokenizer *t, tri_special which)
{
    return t->special[which];
}

bool tri_tokenizer_is_special(const tri_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->spelling.num && t->is_special[id];
}

/* 50257 as "50,257". */
static const char *with_commas(int64_t number, char out[32])
{
    char digits[32];
    int num = snprintf(digits, sizeof digits, "%lld", (long long)number), to = 0;
    for (int i = 0; i < num; i++) {
        if (i > 0 && (num - i) % 3 == 0)
            out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = 0;
    return out;
}

char *tri_tokenizer_describe(const tri_tokenizer *t, char *text, size_t text_size)
{
    char tokens[32], merges[32], pattern[48] = "", holes[32] = "";
    const char *kind = t->model == TRI_MODEL_WORDPIECE ? "WordPiece"
                       : t->bpe.num_merges == 0        ? (t->byte_level ? "bytes" : "characters")
                       : t->byte_level                 ? "byte-level BPE"
                       : t->bpe.byte_fallback          ? "byte-fallback BPE"
                                                       : "BPE";
    for (int i = 0; i < t->pretokenizer.num; i++)
        if (t->pretokenizer.cut[i].scan_name)
            snprintf(pattern, sizeof pattern, ", %s pattern", t->pretokenizer.cut[i].scan_name);
        else if (t->pretokenizer.cut[i].kind == TRI_CUT_PATTERN && !*pattern)
            snprintf(pattern, sizeof pattern, ", a pattern of its own");
    with_commas(t->spelling.num - t->num_holes, tokens);
    if (t->num_holes > 0)
        snprintf(holes, sizeof holes, " (ids up to %d)", t->spelling.num - 1);
    if (t->bpe.num_merges > 0)
        snprintf(text, text_size, "%s, %s tokens%s, %s merges%s", kind, tokens, holes,
                 with_commas((int64_t)t->bpe.num_merges, merges), pattern);
    else
        snprintf(text, text_size, "%s, %s tokens%s", kind, tokens, holes);
    return text;
}
