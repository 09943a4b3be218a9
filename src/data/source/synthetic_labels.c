/* Made-up rows with a label each: a classification that can be learned and needs no file.
 *
 * A row is token 1, some words, token 2, and padding (token 0) up to its end; words begin at token
 * 4. The first few words of the vocabulary are cues, as many for each label; a quarter of a row's
 * words are cues, most of them of one label. The label of a row is the one of which it has most
 * cues, the first of equals: a property of the row alone, which a model finds by counting. Which
 * words are cues does not depend on the seed: every run learns the same task from other rows.
 *
 * There are data.samples rows, each once in every epoch, in an order of the epoch's own; 0 is no
 * end of them. Rows for evaluation are others. */
#include "base/rng.h"
#include "base/text.h"
#include "data/source/source.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { PADDING, OPENS, CLOSES, FIRST_WORD = 4 };
enum { MOST_CUES = 32, MOST_LABELS = 1024 };
/* Out of 256 words, those that are cues; out of 256 cues, those of the row's own label. */
enum { CUES_OF_256 = 64, OWN_OF_256 = 160 };

typedef struct labelled {
    int64_t seq_len, num_labels, num_cues; /* cues of each label */
    int64_t vocab;
    int64_t num[2]; /* rows, by split */
    uint64_t seed;
    uint32_t stream[2];
} labelled;

/* A number below num, from one random word. */
static int64_t below(uint32_t word, int64_t num)
{
    return (int64_t)((uint64_t)word * (uint64_t)num >> 32);
}

static uint64_t labelled_window(const void *state, tri_split split, uint64_t sample)
{
    const labelled *s = state;
    uint64_t num = (uint64_t)s->num[split];
    if (s->num[split] == TRI_DATA_ENDLESS || split == TRI_SPLIT_EVAL)
        return sample % num;
    return tri_data_shuffle(s->seed, sample / num, num, sample % num);
}

/* Word i of a row that leans towards a label. The first one always is a cue. */
static int32_t word_of(const labelled *s, const uint32_t random[4], bool is_first, int64_t label)
{
    int64_t num_all = s->num_labels * s->num_cues;
    if (!is_first && (random[0] & 255) >= CUES_OF_256)
        return (int32_t)(FIRST_WORD + num_all + below(random[1], s->vocab - FIRST_WORD - num_all));
    if (!is_first && (random[0] >> 8 & 255) >= OWN_OF_256)
        label = below(random[2], s->num_labels);
    return (int32_t)(FIRST_WORD + label * s->num_cues + below(random[1], s->num_cues));
}

static int32_t label_of(const labelled *s, const int32_t *tokens, int64_t length)
{
    int64_t best = 0, most = 0;
    for (int64_t label = 0; label < s->num_labels; label++) {
        int64_t first = FIRST_WORD + label * s->num_cues, count = 0;
        for (int64_t i = 0; i < length; i++)
            count += tokens[i] >= first && tokens[i] < first + s->num_cues;
        if (count > most) {
            most = count;
            best = label;
        }
    }
    return (int32_t)best;
}

static void labelled_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const labelled *s = state;
    uint64_t window = labelled_window(s, split, sample);
    uint32_t random[4];
    tri_philox(s->seed, window, 0, s->stream[split], random);
    int64_t label = below(random[0], s->num_labels);
    int64_t shortest = s->seq_len / 4 > 3 ? s->seq_len / 4 : 3;
    int64_t length = shortest + below(random[1], s->seq_len - shortest + 1);
    row->tokens[0] = OPENS;
    for (int64_t i = 1; i < length - 1; i++) {
        tri_philox(s->seed, window, (uint32_t)i, s->stream[split], random);
        row->tokens[i] = word_of(s, random, i == 1, label);
    }
    row->tokens[length - 1] = CLOSES;
    for (int64_t i = length; i < s->seq_len; i++) {
        row->tokens[i] = PADDING;
        if (row->docs)
            row->docs[i] = -1;
    }
    row->targets[0] = label_of(s, row->tokens, length);
}

static int64_t labelled_num_windows(const void *state, tri_split split)
{
    return ((const labelled *)state)->num[split];
}

static void labelled_describe(const void *state, char *text, size_t text_size)
{
    const labelled *s = state;
    char num[32], held_out[32], seq_len[32];
    if (s->num[TRI_SPLIT_TRAIN] == TRI_DATA_ENDLESS)
        snprintf(text, text_size, "endless made-up rows of up to %s tokens, with %lld labels",
                 tri_text_grouped(s->seq_len, seq_len), (long long)s->num_labels);
    else
        snprintf(text, text_size,
                 "%s made-up rows of up to %s tokens, with %lld labels; %s more for evaluation",
                 tri_text_grouped(s->num[TRI_SPLIT_TRAIN], num),
                 tri_text_grouped(s->seq_len, seq_len), (long long)s->num_labels,
                 tri_text_grouped(s->num[TRI_SPLIT_EVAL], held_out));
}

static tr_status check(const tri_data_config *config, tr_error *err)
{
    long long least = FIRST_WORD + 2 * (long long)config->num_labels;
    if (config->num_labels > MOST_LABELS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.num_labels is %lld; made-up rows have %d labels at most",
                        (long long)config->num_labels, MOST_LABELS);
    if (config->vocab < least)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld; made-up rows with %lld labels need %lld tokens or "
                        "more",
                        (long long)config->vocab, (long long)config->num_labels, least);
    if (config->seq_len < 3)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.seq_len is %lld; made-up rows need 3 tokens or more",
                        (long long)config->seq_len);
    return TR_OK;
}

tr_status tri_synthetic_labels_create(const tri_data_config *config, tri_data_source *source,
                                      tr_error *err)
{
    TRI_TRY(check(config, err));
    labelled *s = calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "synthetic data: out of memory");
    int64_t cues = (config->vocab - FIRST_WORD) / (2 * config->num_labels);
    *s = (labelled){.seq_len = config->seq_len,
                    .num_labels = config->num_labels,
                    .num_cues = cues < MOST_CUES ? cues : MOST_CUES,
                    .vocab = config->vocab,
                    .seed = config->seed};
    s->stream[TRI_SPLIT_TRAIN] = tri_stream("data", "labels-train");
    s->stream[TRI_SPLIT_EVAL] = tri_stream("data", "labels-eval");
    s->num[TRI_SPLIT_TRAIN] = config->samples > 0 ? config->samples : TRI_DATA_ENDLESS;
    s->num[TRI_SPLIT_EVAL] = TRI_DATA_ENDLESS;
    if (config->eval_fraction <= 0)
        s->num[TRI_SPLIT_EVAL] = 0;
    else if (config->samples > 0)
        s->num[TRI_SPLIT_EVAL] =
            1 + (int64_t)((double)(config->samples - 1) * config->eval_fraction);
    *source = (tri_data_source){.state = s,
                                .vocab_needed = s->vocab,
                                .num_labels = s->num_labels,
                                .row = labelled_row,
                                .num_windows = labelled_num_windows,
                                .window = labelled_window,
                                .describe = labelled_describe,
                                .destroy = free};
    return TR_OK;
}
