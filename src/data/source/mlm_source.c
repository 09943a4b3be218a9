/* Text with tokens to find again (data.task=mlm), as BERT learns.
 *
 * Documents are cut into pieces that fill a row together with the special tokens that the
 * tokenizer's post-processor puts around a text ([CLS] ... [SEP]). Of the tokens of a row that are
 * not special, data.mask_fraction are chosen, rounded, but at least one. Of these 80 % become
 * [MASK], 10 % a random token, 10 % stay; all of them are targets, and nothing else is.
 *
 * Tokens that were prepared (data/prepare/prepared.h) are cut into windows by their own source, and
 * the special tokens are put around these.
 *
 * What is chosen is a pure function of (seed, sample): another choice in every epoch. That of rows
 * held out depends on the row alone, so that all evaluations, of any run, ask the same. */
#include "base/rng.h"
#include "base/text.h"
#include "data/prepare/prepared.h"
#include "data/source/example_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mlm {
    tri_example_set set;    /* of text */
    tri_data_source tokens; /* or prepared tokens; state NULL: none */
    int64_t seq_len;
    uint64_t seed;
    const tri_data_config *config; /* while opening */
    tri_post_item form[TRI_MAX_POST_ITEMS];
    int num_form, num_special;
    tri_ids document;  /* that is being read */
    int32_t mask;      /* the token */
    double fraction;   /* that is chosen */
    bool *is_special;  /* by id */
    int32_t *ordinary; /* the ids that are not special */
    uint32_t num_ordinary;
    int64_t num_documents, num_tokens;
} mlm;

static void mlm_destroy(void *state)
{
    mlm *m = state;
    if (!m)
        return;
    if (m->tokens.state)
        m->tokens.destroy(m->tokens.state);
    tri_example_set_fini(&m->set);
    tri_ids_fini(&m->document);
    free(m->is_special);
    free(m->ordinary);
    free(m);
}

/* ---- opening ---- */

static tr_status add_piece(mlm *m, const int32_t *ids, size_t num, tr_error *err)
{
    for (int i = 0; i < m->num_form; i++)
        tri_ids_add(&m->set.ids, m->form[i].id >= 0 ? &m->form[i].id : ids,
                    m->form[i].id >= 0 ? 1 : num);
    int32_t places = (int32_t)num + m->num_special;
    return tri_example_set_add(&m->set, &(tri_example){.num = places, .places = places}, err);
}

/* A piece without an ordinary token would have no target. */
static bool has_ordinary(const mlm *m, const int32_t *ids, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (!m->is_special[ids[i]])
            return true;
    return false;
}

static tr_status add_document(mlm *m, const char *text, size_t num_bytes, tr_error *err)
{
    m->document.num = 0;
    TRI_TRY(tri_tokenizer_encode(m->set.tokenizer, NULL, text, num_bytes, TRI_ENCODE_PLAIN,
                                 &m->document, err));
    size_t most = (size_t)(m->seq_len - m->num_special);
    for (size_t at = 0; at < m->document.num; at += most) {
        size_t left = m->document.num - at, num = left < most ? left : most;
        if (has_ordinary(m, m->document.id + at, num))
            TRI_TRY(add_piece(m, m->document.id + at, num, err));
    }
    m->num_documents++;
    m->num_tokens += (int64_t)m->document.num;
    return TR_OK;
}

static tr_status read_entry(void *context, const tri_entry *entry, tr_error *err)
{
    mlm *m = context;
    const char *text;
    size_t num_bytes;
    TRI_TRY(tri_entry_text(entry, m->config->field, "data.field", false, &text, &num_bytes, err));
    tr_status status = add_document(m, text, num_bytes, err);
    return status == TR_OK ? TR_OK : tri_entry_prefix(entry, status, err);
}

/* JSONL has a document in each entry, any other file is one. */
static tr_status read_file(void *context, const char *path, tr_error *err)
{
    mlm *m = context;
    m->set.num_files++;
    if (tri_is_jsonl_name(path))
        return tri_entries_each(path, read_entry, m, NULL, err);
    tri_bytes text;
    TRI_TRY(tri_file_text(path, &text, err));
    tr_status status = add_document(m, text.num ? text.data : "", text.num, err);
    tri_bytes_fini(&text);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "%s", path);
}

/* vocab may be more than the tokenizer has: prepared tokens may know of others. */
static tr_status list_tokens(mlm *m, const tri_tokenizer *tokenizer, int64_t vocab, tr_error *err)
{
    int32_t known = tri_tokenizer_vocab(tokenizer);
    m->is_special = calloc((size_t)vocab, sizeof *m->is_special);
    m->ordinary = malloc((size_t)known * sizeof *m->ordinary);
    if (!m->is_special || !m->ordinary)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", m->config->source);
    for (int which = 0; which < TRI_NUM_SPECIAL; which++) {
        int32_t id = tri_tokenizer_special(tokenizer, (tri_special)which);
        if (id >= 0 && id < known)
            m->is_special[id] = true;
    }
    for (int32_t id = 0; id < known; id++) {
        m->is_special[id] = m->is_special[id] || tri_tokenizer_is_special(tokenizer, id);
        size_t num_bytes;
        if (!m->is_special[id] && tri_tokenizer_spelling(tokenizer, id, &num_bytes))
            m->ordinary[m->num_ordinary++] = id;
    }
    return TR_OK;
}

/* What the tokenizer says of masks and special tokens. */
static tr_status read_tokenizer(mlm *m, const tri_tokenizer *tokenizer, const char *name,
                                tr_error *err)
{
    m->mask = tri_tokenizer_special(tokenizer, TRI_SPECIAL_MASK);
    if (m->mask < 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.tokenizer \"%s\" has no mask token, which data.task=mlm needs; use "
                        "one that has [MASK] or <mask>, such as BERT's, or name it as mask_token "
                        "in its tokenizer_config.json",
                        name);
    m->num_form = tri_tokenizer_post(tokenizer, false, m->form);
    for (int i = 0; i < m->num_form; i++)
        m->num_special += m->form[i].id >= 0;
    if (m->seq_len <= m->num_special)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.seq_len is %lld, but the tokenizer adds %d special tokens to a text; "
                        "raise it",
                        (long long)m->seq_len, m->num_special);
    return TR_OK;
}

static tr_status open_text(mlm *m, tr_error *err)
{
    const char *name = m->config->tokenizer;
    TRI_TRY(tri_example_set_init(&m->set, m->config, err));
    TRI_TRY(read_tokenizer(m, m->set.tokenizer, name && name[0] ? name : "bytes", err));
    TRI_TRY(list_tokens(m, m->set.tokenizer, m->set.vocab, err));
    TRI_TRY(tri_files_each(m->config->source, false, read_file, m, err));
    if (m->set.num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: is empty; data.source must name a file with text",
                        m->config->source);
    return tri_example_set_rows(&m->set, m->config, err);
}

/* Prepared tokens: their source makes the windows, shorter by the special tokens. */
static tr_status open_tokens(mlm *m, tr_error *err)
{
    tri_tokenizer *tokenizer;
    if (m->config->pack || m->config->mask_documents)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: prepared tokens are masked in whole windows; with data.task=mlm set "
                        "data.pack and data.mask_documents to false",
                        m->config->source);
    TRI_TRY(tri_data_tokenizer(m->config, &tokenizer, err));
    if (!tokenizer)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the tokens come without their tokenizer, so nobody knows the mask "
                        "token; set data.tokenizer",
                        m->config->source);
    tr_status status = read_tokenizer(m, tokenizer, m->config->source, err);
    if (status == TR_OK) {
        tri_data_config plain = *m->config;
        plain.task = TRI_DATA_LM;
        plain.seq_len -= m->num_special;
        status = tri_single_source_create(&plain, &m->tokens, err);
    }
    int64_t known = tri_tokenizer_vocab(tokenizer), vocab = m->tokens.vocab_needed;
    if (status == TR_OK)
        status = list_tokens(m, tokenizer, vocab > known ? vocab : known, err);
    tri_tokenizer_close(tokenizer);
    return status;
}

/* ---- rows ---- */

/* Chooses exactly the number wanted, in one pass: each token with the share of those that are still
 * to be chosen among those that are still to come. */
static void mask_row(const mlm *m, uint64_t seed, uint64_t number, uint32_t stream, int64_t length,
                     const tri_row *row)
{
    int64_t left = 0;
    for (int64_t i = 0; i < length; i++)
        left += !m->is_special[row->tokens[i]];
    int64_t wanted = (int64_t)(m->fraction * (double)left + 0.5);
    wanted = wanted < 1 && left > 0 ? 1 : wanted;
    for (int64_t i = 0; i < length && wanted > 0; i++) {
        int32_t token = row->tokens[i];
        uint32_t word[4];
        if (m->is_special[token])
            continue;
        tri_philox(seed, number, (uint32_t)i, stream, word);
        if ((uint64_t)word[0] * (uint64_t)left-- >> 32 >= (uint64_t)wanted)
            continue;
        wanted--;
        row->targets[i] = token;
        uint32_t tenth = (uint32_t)((uint64_t)word[1] * 10 >> 32);
        if (tenth < 8)
            row->tokens[i] = m->mask;
        else if (tenth == 8)
            row->tokens[i] = m->ordinary[(uint64_t)word[2] * m->num_ordinary >> 32];
    }
}

/* Puts the special tokens around a window of prepared tokens; returns the length. */
static int64_t token_row(const mlm *m, tri_split split, uint64_t sample, const tri_row *row)
{
    int64_t at = 0, length = m->seq_len - m->num_special;
    for (int i = 0; i < m->num_form; i++) {
        if (m->form[i].id >= 0) {
            row->tokens[at++] = m->form[i].id;
            continue;
        }
        tri_row window = {.tokens = row->tokens + at, .targets = row->targets + at};
        window.num_targets = length;
        m->tokens.row(m->tokens.state, split, sample, &window);
        at += length;
    }
    for (int64_t i = 0; i < at; i++)
        row->targets[i] = -1; /* not those of the window */
    return at;
}

/* Copies the pieces of a row; returns their length. */
static int64_t piece_row(const mlm *m, tri_split split, uint64_t window, const tri_row *row)
{
    size_t num;
    const uint32_t *list = tri_example_set_row(&m->set, split, window, &num);
    int64_t at = 0;
    for (size_t k = 0; k < num; k++) {
        const tri_example *e = &m->set.item[list[k]];
        memcpy(row->tokens + at, m->set.ids.id + e->begin, (size_t)e->num * sizeof *row->tokens);
        tri_pack_places(row, at, e->num, (int32_t)k);
        at += e->num;
    }
    tri_pack_padding(row, at, m->seq_len);
    return at;
}

static uint64_t mlm_window(const void *state, tri_split split, uint64_t sample)
{
    const mlm *m = state;
    return m->tokens.state ? m->tokens.window(m->tokens.state, split, sample)
                           : tri_example_set_window(&m->set, split, sample);
}

static void mlm_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const mlm *m = state;
    uint64_t window = mlm_window(m, split, sample);
    int64_t length =
        m->tokens.state ? token_row(m, split, sample, row) : piece_row(m, split, window, row);
    if (split == TRI_SPLIT_EVAL)
        mask_row(m, 0, window, tri_stream("data", "mlm-eval"), length, row);
    else
        mask_row(m, m->seed, sample, tri_stream("data", "mlm-train"), length, row);
}

static int64_t mlm_num_windows(const void *state, tri_split split)
{
    const mlm *m = state;
    return m->tokens.state ? m->tokens.num_windows(m->tokens.state, split)
                           : (int64_t)m->set.num_rows[split];
}

static tr_status mlm_problem(const void *state, tr_error *err)
{
    const mlm *m = state;
    return m->tokens.problem ? m->tokens.problem(m->tokens.state, err) : TR_OK;
}

static void mlm_describe(const void *state, char *text, size_t text_size)
{
    const mlm *m = state;
    char rows[160], tokens[32], documents[32];
    if (m->tokens.state) {
        m->tokens.describe(m->tokens.state, text, text_size);
        size_t length = strlen(text);
        snprintf(text + length, text_size - length, ", %.0f%% to be found", 100 * m->fraction);
        return;
    }
    snprintf(text, text_size, "%s tokens in %s document%s, %.0f%% to be found%s",
             tri_text_grouped(m->num_tokens, tokens), tri_text_grouped(m->num_documents, documents),
             m->num_documents == 1 ? "" : "s", 100 * m->fraction,
             tri_example_set_describe(&m->set, rows, sizeof rows));
}

tr_status tri_mlm_source_create(const tri_data_config *config, tri_data_source *source,
                                tr_error *err)
{
    mlm *m = calloc(1, sizeof *m);
    if (!m)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    m->config = config;
    m->fraction = config->mask_fraction;
    m->seq_len = config->seq_len;
    m->seed = config->seed;
    tr_status status = tri_prepared_is(config->source) ? open_tokens(m, err) : open_text(m, err);
    if (status != TR_OK) {
        mlm_destroy(m);
        return status;
    }
    tri_ids_fini(&m->document);
    m->config = NULL;
    m->set.source = NULL;
    *source =
        (tri_data_source){.state = m,
                          .vocab_needed = m->tokens.state ? m->tokens.vocab_needed : m->set.vocab,
                          .row = mlm_row,
                          .num_windows = mlm_num_windows,
                          .window = mlm_window,
                          .problem = mlm_problem,
                          .describe = mlm_describe,
                          .destroy = mlm_destroy};
    return TR_OK;
}
