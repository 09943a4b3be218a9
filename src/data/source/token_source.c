/* Rows from token shards, read where they lie: the shards of a split are one long run of tokens,
 * which data/source/windows.h divides. Nothing is read before it is used and nothing is kept, so
 * data may be larger than memory: the order of windows is a formula, and the kernel is told that
 * they come from all over the file.
 *
 * Documents follow from the separators within a window; no table is needed, except to pack them
 * (data/source/packed.h), which reads every token once. A token outside the vocabulary (a damaged
 * file) comes out as token 0 without a target, and is remembered: the caller asks tri_data_problem.
 */
#include "base/text.h"
#include "data/prepare/prepared.h"
#include "data/source/packed.h"
#include "data/source/source.h"
#include "data/source/windows.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct run_part {
    const tri_shard *shard;
    uint64_t begin; /* of its first token within the run */
} run_part;

typedef struct tokens {
    tri_prepared prepared;
    run_part *part; /* training, then evaluation; none is empty */
    size_t num_parts;
    tri_windows windows;
    bool mask_documents, pack;
    tri_packed packed;    /* where pack is true, instead of the windows */
    _Atomic uint64_t bad; /* 1 + position in the run of a token that cannot be; 0: none so far */
} tokens;

static size_t part_at(const tokens *t, uint64_t position)
{
    size_t low = 0, high = t->num_parts - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (t->part[middle].begin <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Token `at` of a part; -1, and remembered, when it is none. */
static int32_t token_at(const tokens *t, const run_part *part, uint64_t at)
{
    uint32_t token = tri_shard_token(part->shard, at);
    if (token < (uint32_t)t->prepared.vocab)
        return (int32_t)token;
    atomic_store_explicit(&((tokens *)(uintptr_t)t)->bad, part->begin + at + 1,
                          memory_order_relaxed);
    return -1;
}

static void copy_tokens(const void *state, uint64_t begin, uint64_t num, int32_t *out)
{
    const tokens *t = state;
    size_t p = part_at(t, begin);
    uint64_t at = begin - t->part[p].begin;
    for (uint64_t i = 0; i < num; i++, at++) {
        if (at == t->part[p].shard->num_tokens) {
            p++;
            at = 0;
        }
        out[i] = token_at(t, &t->part[p], at);
    }
}

static void token_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const tokens *t = state;
    if (t->pack) {
        tri_packed_row(&t->packed, t, split, sample, row);
        return;
    }
    uint64_t begin = tri_windows_begin(&t->windows, split, sample), seq_len = t->windows.seq_len;
    size_t p = part_at(t, begin);
    uint64_t at = begin - t->part[p].begin;
    tri_documents documents = {.row = row, .on = t->mask_documents};
    int32_t document = 0, separator = t->prepared.separator;
    bool first = t->prepared.separator_first;
    for (uint64_t i = 0; i <= seq_len; i++, at++) {
        if (at == t->part[p].shard->num_tokens) {
            p++;
            at = 0;
        }
        int32_t token = token_at(t, &t->part[p], at);
        if (i > 0)
            row->targets[i - 1] = token;
        if (i == seq_len)
            break;
        row->tokens[i] = token < 0 ? 0 : token;
        document += first && i > 0 && token == separator;
        tri_documents_put(&documents, i, document);
        document += !first && token == separator;
    }
}

static uint64_t token_window(const void *state, tri_split split, uint64_t sample)
{
    const tokens *t = state;
    return t->pack ? tri_packed_number(&t->packed, split, sample)
                   : tri_windows_number(&t->windows, split, sample);
}

static tr_status token_problem(const void *state, tr_error *err)
{
    tokens *t = (tokens *)(uintptr_t)state;
    uint64_t bad = atomic_load_explicit(&t->bad, memory_order_relaxed);
    if (bad == 0)
        return TR_OK;
    const run_part *part = &t->part[part_at(t, bad - 1)];
    uint64_t at = bad - 1 - part->begin;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: token %llu is %u, but the vocabulary has %d; the file was damaged: copy "
                    "it again, or prepare it again",
                    part->shard->path, (unsigned long long)at, tri_shard_token(part->shard, at),
                    t->prepared.vocab);
}

static int64_t token_num_windows(const void *state, tri_split split)
{
    const tokens *t = state;
    if (t->pack)
        return (int64_t)t->packed.num_rows[split];
    return (int64_t)(split == TRI_SPLIT_TRAIN ? t->windows.num_train : t->windows.num_eval);
}

static void token_describe(const void *state, char *out, size_t out_size)
{
    const tokens *t = state;
    char tokens[32], shards[32], rows[160], vocab[32];
    snprintf(out, out_size, "%s tokens of %s in %s shard%s, %s",
             tri_text_grouped((int64_t)t->windows.total, tokens),
             tri_text_grouped(t->prepared.vocab, vocab),
             tri_text_grouped((int64_t)t->num_parts, shards), t->num_parts == 1 ? "" : "s",
             t->pack ? tri_packed_describe(&t->packed, rows, sizeof rows)
                     : tri_windows_describe(&t->windows, rows, sizeof rows));
}

static void token_destroy(void *state)
{
    tokens *t = state;
    if (!t)
        return;
    tri_prepared_close(&t->prepared);
    tri_packed_fini(&t->packed);
    free(t->part);
    free(t);
}

static void add_parts(tokens *t, tri_split split, uint64_t *total)
{
    for (size_t i = 0; i < t->prepared.num[split]; i++) {
        const tri_shard *shard = &t->prepared.shard[split][i];
        if (shard->num_tokens == 0)
            continue;
        if (split == TRI_SPLIT_TRAIN) /* a hint: it may be ignored */
            (void)madvise((void *)(uintptr_t)shard->file.data, shard->file.num_bytes, MADV_RANDOM);
        t->part[t->num_parts++] = (run_part){shard, *total};
        *total += shard->num_tokens;
    }
}

static tr_status check(const tokens *t, const tri_data_config *config, tr_error *err)
{
    const tri_prepared *p = &t->prepared;
    if (config->vocab != 0 && config->vocab < p->vocab)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld, but %s has tokens up to %d; set model.vocab to %d or "
                        "more, or leave it out",
                        (long long)config->vocab, config->source, p->vocab - 1, p->vocab);
    if (config->fingerprint != 0 && p->fingerprint != 0 && config->fingerprint != p->fingerprint)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: was prepared with another tokenizer than data.tokenizer = %s; leave "
                        "data.tokenizer out, or prepare the text again with this one",
                        config->source, config->tokenizer);
    if ((config->mask_documents || config->pack) && p->separator < 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: %s has no separator between documents; prepare it with --separator "
                        "ID, or with a data.tokenizer that has a token for the end of a text",
                        config->pack ? "data.pack" : "data.mask_documents", config->source);
    return TR_OK;
}

/* Where the next separator is among the tokens of a shard, from `at` on; num_tokens: none is. */
static uint64_t next_separator(const tri_shard *shard, uint32_t separator, uint64_t at)
{
    while (at < shard->num_tokens && tri_shard_token(shard, at) != separator)
        at++;
    return at;
}

/* Finds the documents, in one sweep over all tokens. */
static tr_status pack_documents(tokens *t, const tri_data_config *config, tr_error *err)
{
    TRI_TRY(tri_packed_init(&t->packed, config, &t->windows, err));
    t->packed.copy = copy_tokens;
    t->packed.separator = t->prepared.separator;
    t->packed.separator_first = t->prepared.separator_first;
    uint64_t behind = t->prepared.separator_first ? 0 : 1; /* a separator the next one begins */
    for (size_t p = 0; p < t->num_parts; p++) {
        const tri_shard *shard = t->part[p].shard;
        void *data = (void *)(uintptr_t)shard->file.data;
        (void)madvise(data, shard->file.num_bytes, MADV_SEQUENTIAL); /* hints, both */
        uint64_t at = 0;
        while ((at = next_separator(shard, (uint32_t)t->prepared.separator, at)) <
               shard->num_tokens)
            TRI_TRY(tri_packed_cut(&t->packed, t->part[p].begin + at++ + behind, err));
        (void)madvise(data, shard->file.num_bytes, MADV_RANDOM);
    }
    return tri_packed_end(&t->packed, err);
}

tr_status tri_token_source_create(const tri_data_config *config, tri_data_source *source,
                                  tr_error *err)
{
    tokens *t = calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    uint64_t total = 0;
    t->mask_documents = config->mask_documents;
    t->pack = config->pack;
    tr_status status = tri_prepared_open(config->source, &t->prepared, err);
    if (status == TR_OK)
        status = check(t, config, err);
    if (status == TR_OK) {
        t->part = calloc(t->prepared.num[0] + t->prepared.num[1], sizeof *t->part);
        if (!t->part)
            status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    }
    if (status == TR_OK) {
        add_parts(t, TRI_SPLIT_TRAIN, &total);
        uint64_t train = total;
        if (config->eval_fraction > 0)
            add_parts(t, TRI_SPLIT_EVAL, &total);
        status = tri_windows_cut(&t->windows, config, total, total - train, "tokens", err);
    }
    if (status == TR_OK && t->pack)
        status = pack_documents(t, config, err);
    if (status != TR_OK) {
        token_destroy(t);
        return status;
    }
    *source = (tri_data_source){.state = t,
                                .vocab_needed = t->prepared.vocab,
                                .fingerprint = t->prepared.fingerprint,
                                .row = token_row,
                                .num_windows = token_num_windows,
                                .window = token_window,
                                .problem = token_problem,
                                .describe = token_describe,
                                .destroy = token_destroy};
    return TR_OK;
}
