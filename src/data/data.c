#include "data/data.h"
#include "base/rng.h"
#include "data/prepare/prepare.h"
#include "data/prepare/prepared.h"
#include "data/prepare/text_cache.h"
#include "data/source/blend.h"
#include "data/source/source.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tri_data {
    tri_data_source source;
};

static tr_status check_config(const tri_data_config *config, tr_error *err)
{
    if (!config->source || !*config->source)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source is not set: give text, prepared tokens, or synthetic");
    if (config->seq_len < 1 || config->seq_len >= INT32_MAX)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.seq_len is %lld; it must be at least 1 and below %d",
                        (long long)config->seq_len, INT32_MAX);
    if (config->vocab < 0 || config->vocab > INT32_MAX)
        return tri_fail(err, TR_ERROR_INPUT, "model.vocab is %lld; it must be between 1 and %d",
                        (long long)config->vocab, INT32_MAX);
    if (!(config->eval_fraction >= 0 && config->eval_fraction < 1))
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.eval_fraction is %g; it must be at least 0 and below 1",
                        config->eval_fraction);
    return TR_OK;
}

/* Tokens that the user has prepared must be the tokenizer's that he names. */
static tr_status open_tokens(const tri_data_config *config, tri_data_source *source, tr_error *err)
{
    tri_data_config with = *config;
    bool made = true;
    if (config->tokenizer && *config->tokenizer)
        TRI_TRY(tri_prepare_is_made(config->tokenizer, &made, NULL, err));
    if (!made) {
        tri_tokenizer *tokenizer;
        TRI_TRY(tri_tokenizer_open(config->tokenizer, &tokenizer, err));
        tr_status status = tri_tokenizer_fingerprint(tokenizer, &with.fingerprint, err);
        tri_tokenizer_close(tokenizer);
        TRI_TRY(status);
    }
    return tri_token_source_create(&with, source, err);
}

static tr_status open_prepared_text(const tri_data_config *config, tri_data_source *source,
                                    tr_error *err)
{
    char *dir;
    TRI_TRY(tri_text_cache_fill(config, &dir, err));
    tri_data_config with = *config;
    with.source = dir;
    tr_status status = tri_token_source_create(&with, source, err);
    free(dir);
    return status;
}

tr_status tri_single_source_create(const tri_data_config *config, tri_data_source *source,
                                   tr_error *err)
{
    if (strcmp(config->source, "synthetic") == 0 && config->task == TRI_DATA_INSTRUCT)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.task is instruct, but data.source is synthetic; name a file of "
                        "instructions, such as examples/instructions.jsonl");
    if (strcmp(config->source, "synthetic") == 0)
        return config->task == TRI_DATA_CLASSIFY ? tri_synthetic_labels_create(config, source, err)
                                                 : tri_synthetic_source_create(config, source, err);
    switch (config->task) {
    case TRI_DATA_MLM:
        return tri_mlm_source_create(config, source, err);
    case TRI_DATA_CLASSIFY:
        return tri_classify_source_create(config, source, err);
    case TRI_DATA_INSTRUCT:
        return tri_instruct_source_create(config, source, err);
    case TRI_DATA_LM:
        break;
    }
    if (tri_prepared_is(config->source))
        return open_tokens(config, source, err);
    if (tri_text_cache_needed(config))
        return open_prepared_text(config, source, err);
    return tri_text_source_create(config, source, err);
}

tr_status tri_data_open(const tri_data_config *config, tri_data **out, tr_error *err)
{
    *out = NULL;
    TRI_TRY(check_config(config, err));
    tri_blend_list list;
    TRI_TRY(tri_blend_parse(config->source, &list, err));
    tri_data *data = calloc(1, sizeof *data);
    tr_status status;
    tri_data_config with = *config;
    with.source = list.part[0].path; /* without a weight, which one source may have too */
    if (!data)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    else if (list.num > 1 && config->task != TRI_DATA_LM)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "data.source is a list, which only data.task=lm takes; put the files "
                          "into one directory, and name that");
    else if (list.num > 1)
        status = tri_blend_source_create(config, &data->source, err);
    else
        status = tri_single_source_create(&with, &data->source, err);
    tri_blend_list_fini(&list);
    if (status != TR_OK) {
        free(data);
        return status;
    }
    *out = data;
    return TR_OK;
}

tr_status tri_data_prepare(const tri_data_config *config, tr_error *err)
{
    tri_blend_list list;
    tri_data_config one = *config;
    TRI_TRY(tri_blend_parse(config->source, &list, err));
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && i < list.num; i++) {
        char *dir = NULL;
        one.source = list.part[i].path;
        if (strcmp(one.source, "synthetic") != 0 && !tri_prepared_is(one.source) &&
            tri_text_cache_needed(&one))
            status = tri_text_cache_fill(&one, &dir, err);
        free(dir);
    }
    tri_blend_list_fini(&list);
    return status;
}

tr_status tri_data_problem(const tri_data *data, tr_error *err)
{
    return data->source.problem ? data->source.problem(data->source.state, err) : TR_OK;
}

/* ---- what a source needs and was made with, without its rows ---- */

bool tri_data_has_tokens(const char *source)
{
    tri_blend_list list;
    bool found = false;
    if (tri_blend_parse(source, &list, NULL) != TR_OK)
        return false;
    for (int i = 0; i < list.num && !found; i++)
        found = tri_prepared_is(list.part[i].path);
    tri_blend_list_fini(&list);
    return found;
}

static tr_status part_vocab(const tri_data_config *config, int64_t *vocab, tr_error *err)
{
    tri_prepared prepared;
    tri_tokenizer *tokenizer;
    if (strcmp(config->source, "synthetic") == 0)
        return TR_OK;
    if (tri_prepared_is(config->source)) {
        TRI_TRY(tri_prepared_open(config->source, &prepared, err));
        *vocab = prepared.vocab > *vocab ? prepared.vocab : *vocab;
        tri_prepared_close(&prepared);
        return TR_OK;
    }
    const char *name = config->tokenizer && *config->tokenizer ? config->tokenizer : "bytes";
    bool made;
    int64_t needed;
    TRI_TRY(tri_prepare_is_made(name, &made, &needed, err));
    if (needed == 0) {
        TRI_TRY(
            tri_prepare_tokenizer(name, &config->source, 1, config->field, NULL, &tokenizer, err));
        needed = tri_tokenizer_vocab(tokenizer);
        tri_tokenizer_close(tokenizer);
    }
    *vocab = needed > *vocab ? needed : *vocab;
    return TR_OK;
}

tr_status tri_data_vocab(const tri_data_config *config, int64_t *vocab, tr_error *err)
{
    tri_blend_list list;
    tri_data_config one = *config;
    *vocab = 0;
    TRI_TRY(tri_blend_parse(config->source, &list, err));
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && i < list.num; i++) {
        one.source = list.part[i].path;
        status = part_vocab(&one, vocab, err);
    }
    tri_blend_list_fini(&list);
    return status;
}

/* The directory that holds the tokenizer of a source, on the heap; NULL: none does. */
static tr_status tokenizer_dir(const tri_data_config *config, char **dir, tr_error *err)
{
    tri_prepared prepared;
    char *cached = NULL;
    *dir = NULL;
    if (strcmp(config->source, "synthetic") == 0)
        return TR_OK;
    if (!tri_prepared_is(config->source)) {
        if (!tri_text_cache_needed(config))
            return TR_OK;
        TRI_TRY(tri_text_cache_fill(config, &cached, err));
    }
    tr_status status = tri_prepared_open(cached ? cached : config->source, &prepared, err);
    if (status == TR_OK) {
        *dir = prepared.tokenizer;
        prepared.tokenizer = NULL;
        tri_prepared_close(&prepared);
    }
    free(cached);
    return status;
}

tr_status tri_data_tokenizer(const tri_data_config *config, tri_tokenizer **tokenizer,
                             tr_error *err)
{
    tri_blend_list list;
    tri_data_config one = *config;
    char *dir = NULL;
    *tokenizer = NULL;
    TRI_TRY(tri_blend_parse(config->source, &list, err));
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && !dir && i < list.num; i++) {
        one.source = list.part[i].path;
        status = tokenizer_dir(&one, &dir, err);
    }
    tri_blend_list_fini(&list);
    const char *name = dir ? dir : config->tokenizer;
    bool made = false;
    if (status == TR_OK && name && *name)
        status = tri_prepare_is_made(name, &made, NULL, err);
    if (status == TR_OK && !made && name && *name && strcmp(name, "bytes") != 0)
        status = tri_tokenizer_open(name, tokenizer, err);
    free(dir);
    return status;
}

void tri_data_close(tri_data *data)
{
    if (!data)
        return;
    data->source.destroy(data->source.state);
    free(data);
}

void tri_data_row(const tri_data *data, tri_split split, uint64_t sample, const tri_row *row)
{
    assert(tri_data_num_windows(data, split) > 0);
    data->source.row(data->source.state, split, sample, row);
}

int64_t tri_data_num_windows(const tri_data *data, tri_split split)
{
    return data->source.num_windows(data->source.state, split);
}

int64_t tri_data_epoch_rows(const tri_data *data)
{
    return data->source.mixed ? TRI_DATA_ENDLESS : tri_data_num_windows(data, TRI_SPLIT_TRAIN);
}

uint64_t tri_data_window(const tri_data *data, tri_split split, uint64_t sample)
{
    return data->source.window ? data->source.window(data->source.state, split, sample) : sample;
}

int64_t tri_data_vocab_needed(const tri_data *data)
{
    return data->source.vocab_needed;
}

int64_t tri_data_num_labels(const tri_data *data)
{
    return data->source.num_labels;
}

char *tri_data_describe(const tri_data *data, char *text, size_t text_size)
{
    data->source.describe(data->source.state, text, text_size);
    return text;
}

/* A Feistel network is a bijection on [0, 4^half_bits) whatever its round function; following it
 * until it lands below num ("cycle walking") makes it one on [0, num), at under four passes in the
 * mean since 4^half_bits < 4 * num. */
uint64_t tri_data_shuffle(uint64_t seed, uint64_t epoch, uint64_t num, uint64_t i)
{
    enum { NUM_ROUNDS = 6 };
    assert(i < num);
    int half_bits = 1;
    while (half_bits < 32 && num > (uint64_t)1 << (2 * half_bits))
        half_bits++;
    uint32_t mask = (uint32_t)(((uint64_t)1 << half_bits) - 1);
    uint32_t stream = tri_stream("data", "order");
    do {
        uint32_t left = (uint32_t)(i >> half_bits), right = (uint32_t)i & mask;
        for (uint32_t round = 0; round < NUM_ROUNDS; round++) {
            uint32_t word[4];
            tri_philox(seed, epoch, right, stream + round, word);
            uint32_t mixed = left ^ (word[0] & mask);
            left = right;
            right = mixed;
        }
        i = (uint64_t)left << half_bits | right;
    } while (i >= num);
    return i;
}
