/* Rows from token shards, read where they lie: the shards of a split are one long run of tokens,
 * which data/source/windows.h divides. Nothing is read before it is used and nothing is kept, so
 * data may be larger than memory: the order of windows is a formula, and the kernel is told that
 * they come from all over the file.
 *
 * Documents follow from the separators within a window; no table is needed. A token outside the
 * vocabulary (a damaged file) comes out as token 0 without a target, and is remembered: the caller
 * asks tri_data_problem. */
#include "base/text.h"
#include "data/prepare/prepared.h"
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
    bool mask_documents;
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

static void token_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const tokens *t = state;
    uint64_t begin = tri_windows_begin(&t->windows, split, sample), seq_len = t->windows.seq_len;
    size_t p = part_at(t, begin);
    uint64_t at = begin - t->part[p].begin;
    tri_documents documents = {.row = row, .on = t->mask_documents};
    int32_t document = 0, vocab = t->prepared.vocab, separator = t->prepared.separator;
    bool first = t->prepared.separator_first;
    for (uint64_t i = 0; i <= seq_len; i++, at++) {
        if (at == t->part[p].shard->num_tokens) {
            p++;
            at = 0;
        }
        uint32_t read = tri_shard_token(t->part[p].shard, at);
        int32_t token = read < (uint32_t)vocab ? (int32_t)read : -1;
        if (token < 0)
            atomic_store_explicit(&((tokens *)(uintptr_t)state)->bad, begin + i + 1,
                                  memory_order_relaxed);
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
    return tri_windows_number(&((const tokens *)state)->windows, split, sample);
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
    return (int64_t)(split == TRI_SPLIT_TRAIN ? t->windows.num_train : t->windows.num_eval);
}

static void token_describe(const void *state, char *out, size_t out_size)
{
    const tokens *t = state;
    char tokens[32], shards[32], windows[120], vocab[32];
    snprintf(out, out_size, "%s tokens of %s in %s shard%s, %s",
             tri_text_grouped((int64_t)t->windows.total, tokens),
             tri_text_grouped(t->prepared.vocab, vocab),
             tri_text_grouped((int64_t)t->num_parts, shards), t->num_parts == 1 ? "" : "s",
             tri_windows_describe(&t->windows, windows, sizeof windows));
}

static void token_destroy(void *state)
{
    tokens *t = state;
    if (!t)
        return;
    tri_prepared_close(&t->prepared);
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
    if (config->mask_documents && p->separator < 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.mask_documents: %s has no separator between documents; prepare it "
                        "with --separator ID",
                        config->source);
    return TR_OK;
}

tr_status tri_token_source_create(const tri_data_config *config, tri_data_source *source,
                                  tr_error *err)
{
    tokens *t = calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    uint64_t total = 0;
    t->mask_documents = config->mask_documents;
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
