#include "data/data.h"
#include "base/rng.h"
#include "data/source.h"

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
                        "data.source is not set: give a text file, a directory, or synthetic");
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

static tr_status open_source(const tri_data_config *config, tri_data_source *source, tr_error *err)
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
    return tri_text_source_create(config, source, err);
}

tr_status tri_data_open(const tri_data_config *config, tri_data **out, tr_error *err)
{
    *out = NULL;
    TRI_TRY(check_config(config, err));
    tri_data *data = calloc(1, sizeof *data);
    if (!data)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    tr_status status = open_source(config, &data->source, err);
    if (status != TR_OK) {
        free(data);
        return status;
    }
    *out = data;
    return TR_OK;
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

char *tri_data_grouped(int64_t value, char text[32])
{
    char plain[24];
    int digits = snprintf(plain, sizeof plain, "%lld", (long long)value);
    char *out = text;
    for (int i = 0; i < digits; i++) {
        if (i > 0 && (digits - i) % 3 == 0 && plain[i - 1] != '-')
            *out++ = ',';
        *out++ = plain[i];
    }
    *out = 0;
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
