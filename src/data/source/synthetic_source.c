/* Tokens made up on the spot: something to learn that needs no file.
 *
 * The first token of a row is a Zipf draw (token k has weight 1 / (k + 1)). Each next one is, on
 * the toss of a coin, either the successor of the token before or a fresh Zipf draw. The successor
 * map does not depend on the seed: every run learns the same language, from other sentences. Its
 * values are Zipf draws too, so tokens stay Zipf-distributed on both sides of the coin. A model
 * first learns which tokens are frequent, within a few steps, and then the map.
 *
 * With data.pack=true a row is documents of a heavy-tailed mix of lengths, side by side:
 * log-normal, half of them below a 32nd of a row and none above a quarter; the last one ends with
 * the row. Each begins with token 0, which stands for a separator: the last token of a document
 * predicts the one that comes next.
 *
 * With data.task=mlm the last token of the vocabulary is kept for masks. Every token of a row is,
 * with the probability data.mask_fraction, to be found again: of these eight in ten become the
 * mask, one another token, and one stays; both neighbours tell something about it. */
#include "base/rng.h"
#include "base/text.h"
#include "data/source/pack.h"
#include "data/source/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any real vocabulary; the tables below take 12 bytes a token. */
enum { MAX_VOCAB = 1 << 24 };

enum { SEPARATOR = 0 };

typedef struct synthetic {
    int64_t seq_len;
    int32_t vocab; /* tokens that are drawn */
    int32_t mask;  /* the token that stands for one to be found, or -1 */
    double fraction;
    uint64_t seed;
    uint32_t stream[2]; /* by split: the two never share a draw */
    uint32_t masks[2], lengths[2];
    bool pack;
    double *cumulative; /* [k]: the share of tokens <= k; the last is 1 */
    int32_t *successor;
} synthetic;

/* A number in [0, 1) from 53 bits of two words. */
static double uniform(uint32_t high, uint32_t low)
{
    return (double)((uint64_t)high << 21 | low >> 11) * 0x1p-53;
}

/* The first token whose cumulative share exceeds u. */
static int32_t zipf(const synthetic *s, double u)
{
    int32_t low = 0, high = s->vocab - 1;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (s->cumulative[middle] > u)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Hides some tokens of a row, and makes them its targets. */
static void mask_row(const synthetic *s, tri_split split, uint64_t sample, const tri_row *row)
{
    for (int64_t i = 0; i < s->seq_len; i++) {
        uint32_t word[4];
        tri_philox(s->seed, sample, (uint32_t)i, s->masks[split], word);
        bool chosen = uniform(word[0], word[1]) < s->fraction;
        uint32_t tenth = (uint32_t)((uint64_t)word[2] * 10 >> 32);
        row->targets[i] = chosen ? row->tokens[i] : -1;
        if (chosen && tenth < 8)
            row->tokens[i] = s->mask;
        else if (chosen && tenth == 8)
            row->tokens[i] = (int32_t)((uint64_t)word[3] * (uint64_t)s->vocab >> 32);
    }
}

/* Token i of a row, behind `before`. */
static int32_t draw(const synthetic *s, tri_split split, uint64_t sample, int64_t i, int32_t before)
{
    uint32_t word[4];
    tri_philox(s->seed, sample, (uint32_t)i, s->stream[split], word);
    return i > 0 && word[0] >> 31 ? s->successor[before] : zipf(s, uniform(word[1], word[2]));
}

static int64_t longest_document(const synthetic *s)
{
    return s->seq_len < 4 ? 1 : s->seq_len / 4;
}

/* The length of a row's which-th document. */
static int64_t draw_length(const synthetic *s, tri_split split, uint64_t sample, int32_t which)
{
    float normal;
    tri_random_normal(s->seed, 4 * sample, 1, (uint32_t)which, s->lengths[split], &normal);
    double length = (double)s->seq_len / 32 * exp(normal);
    int64_t most = longest_document(s);
    return length < 1 ? 1 : length < (double)most ? (int64_t)length : most;
}

static void packed_row(const synthetic *s, tri_split split, uint64_t sample, const tri_row *row)
{
    int32_t which = 0;
    for (int64_t at = 0; at < s->seq_len; which++) {
        int64_t length = draw_length(s, split, sample, which), room = s->seq_len - at;
        length = length < room ? length : room;
        int32_t token = SEPARATOR;
        for (int64_t i = at; i < at + length; i++) {
            row->tokens[i] = token;
            token = i + 1 < at + length ? draw(s, split, sample, i + 1, token) : SEPARATOR;
            row->targets[i] = token;
        }
        tri_pack_places(row, at, length, which);
        at += length;
    }
}

static void window_row(const synthetic *s, tri_split split, uint64_t sample, const tri_row *row)
{
    int32_t token = 0;
    for (int64_t i = 0; i <= s->seq_len; i++) {
        token = draw(s, split, sample, i, token);
        if (i < s->seq_len)
            row->tokens[i] = token;
        if (i > 0)
            row->targets[i - 1] = token;
    }
}

static void synthetic_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const synthetic *s = state;
    (s->pack ? packed_row : window_row)(s, split, sample, row);
    if (s->mask >= 0)
        mask_row(s, split, sample, row);
}

static int64_t synthetic_num_windows(const void *state, tri_split split)
{
    (void)state;
    (void)split;
    return TRI_DATA_ENDLESS;
}

static void synthetic_describe(const void *state, char *text, size_t text_size)
{
    const synthetic *s = state;
    char vocab[32], seq_len[32], longest[32];
    snprintf(text, text_size,
             "synthetic tokens, %s in the vocabulary, half of them by a fixed bigram map, endless "
             "windows of %s",
             tri_text_grouped(s->vocab, vocab), tri_text_grouped(s->seq_len, seq_len));
    size_t length = strlen(text);
    if (s->pack)
        snprintf(text + length, text_size - length, ", packed with documents of up to %s",
                 tri_text_grouped(longest_document(s), longest));
    length = strlen(text);
    if (s->mask >= 0)
        snprintf(text + length, text_size - length, ", %.0f%% to be found", 100 * s->fraction);
}

static void synthetic_destroy(void *state)
{
    synthetic *s = state;
    if (!s)
        return;
    free(s->cumulative);
    free(s->successor);
    free(s);
}

static void fill_tables(synthetic *s)
{
    /* Only additions and divisions, in a fixed order: the same bits on every machine. */
    double total = 0;
    for (int32_t k = 0; k < s->vocab; k++) {
        total += 1.0 / (k + 1.0);
        s->cumulative[k] = total;
    }
    for (int32_t k = 0; k < s->vocab; k++)
        s->cumulative[k] /= total;
    uint32_t stream = tri_stream("data", "synthetic-successor");
    for (int32_t k = 0; k < s->vocab; k++) {
        uint32_t word[4];
        tri_philox(0, (uint64_t)k, 0, stream, word);
        int32_t next = zipf(s, uniform(word[0], word[1]));
        /* A frequent token that follows itself would fill whole rows. */
        s->successor[k] = next != k ? next : (k + 1) % s->vocab;
    }
}

tr_status tri_synthetic_source_create(const tri_data_config *config, tri_data_source *source,
                                      tr_error *err)
{
    bool masked = config->task == TRI_DATA_MLM;
    if (config->vocab < 2 + masked || config->vocab > MAX_VOCAB)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld; synthetic data needs it to be between %d and %d",
                        (long long)config->vocab, 2 + masked, MAX_VOCAB);
    synthetic *s = calloc(1, sizeof *s);
    if (s) {
        s->seq_len = config->seq_len;
        s->vocab = (int32_t)config->vocab - masked;
        s->mask = masked ? s->vocab : -1;
        s->fraction = config->mask_fraction;
        s->seed = config->seed;
        s->pack = config->pack;
        s->stream[TRI_SPLIT_TRAIN] = tri_stream("data", "synthetic-train");
        s->stream[TRI_SPLIT_EVAL] = tri_stream("data", "synthetic-eval");
        s->masks[TRI_SPLIT_TRAIN] = tri_stream("data", "synthetic-train-mask");
        s->masks[TRI_SPLIT_EVAL] = tri_stream("data", "synthetic-eval-mask");
        s->lengths[TRI_SPLIT_TRAIN] = tri_stream("data", "synthetic-train-lengths");
        s->lengths[TRI_SPLIT_EVAL] = tri_stream("data", "synthetic-eval-lengths");
        s->cumulative = malloc((size_t)s->vocab * sizeof *s->cumulative);
        s->successor = malloc((size_t)s->vocab * sizeof *s->successor);
    }
    if (!s || !s->cumulative || !s->successor) {
        synthetic_destroy(s);
        return tri_fail(err, TR_ERROR_RUNTIME, "synthetic data: out of memory");
    }
    fill_tables(s);
    *source = (tri_data_source){.state = s,
                                .vocab_needed = config->vocab,
                                .row = synthetic_row,
                                .num_windows = synthetic_num_windows,
                                .describe = synthetic_describe,
                                .destroy = synthetic_destroy};
    return TR_OK;
}
