#include "serve/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* A token that may still be chosen. */
typedef struct candidate {
    float weight; /* probability in units of the likeliest's */
    int32_t token;
} candidate;

size_t tri_sample_scratch_bytes(int64_t vocab)
{
    return (size_t)vocab * (2 * sizeof(float) + sizeof(candidate));
}

/* The k-th largest of n numbers; reorders them. */
static float kth_largest(float *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float pivot = x[(low + high) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i <= j) {
                float kept = x[i];
                x[i++] = x[j];
                x[j--] = kept;
            }
        }
        if (want <= j)
            high = j;
        else if (want >= i)
            low = i;
        else
            break;
    }
    return x[want];
}

/* Logits with the penalty: positive ones are divided by it, negative ones multiplied. */
static void penalise(const float *logits, int64_t vocab, double penalty, const uint8_t *seen,
                     float *out)
{
    memcpy(out, logits, (size_t)vocab * sizeof *out);
    if (!seen || penalty == 1)
        return;
    for (int64_t v = 0; v < vocab; v++)
        if (seen[v])
            out[v] = out[v] > 0 ? (float)(out[v] / penalty) : (float)(out[v] * penalty);
}

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best] || isnan(logits[best]))
            best = v;
    return (int32_t)best;
}

static int heavier_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

/* Sets to 0 the weights outside the smallest set of the heaviest that has a share of top_p. */
static void cut_to_nucleus(float *weight, int64_t vocab, double top_p, candidate *sorted)
{
    double sum = 0, kept = 0;
    int64_t num = 0, taken = 0;
    for (int64_t v = 0; v < vocab; v++)
        sum += (double)weight[v];
    /* Tokens below this weigh less than 1 - top_p all together, so none of them is inside. */
    double least = (1 - top_p) * sum / (double)vocab;
    for (int64_t v = 0; v < vocab; v++)
        if ((double)weight[v] >= least && weight[v] > 0)
            sorted[num++] = (candidate){weight[v], (int32_t)v};
    qsort(sorted, (size_t)num, sizeof *sorted, heavier_first);
    memset(weight, 0, (size_t)vocab * sizeof *weight);
    while (taken < num && (taken == 0 || kept < top_p * sum)) {
        kept += (double)sorted[taken].weight;
        weight[sorted[taken].token] = sorted[taken].weight;
        taken++;
    }
}

/* Weights that the draw is proportional to, in scratch; returns the likeliest token. */
static int32_t weigh(const float *logits, int64_t vocab, const tri_sampling *sampling,
                     const uint8_t *seen, float *scratch)
{
    float *logit = scratch, *weight = scratch + vocab;
    penalise(logits, vocab, sampling->repetition_penalty, seen, logit);
    int32_t best = likeliest(logit, vocab);
    if (sampling->temperature <= 0)
        return best;
    float least = -INFINITY, most = logit[best];
    if (sampling->top_k > 0 && sampling->top_k < vocab) {
        memcpy(weight, logit, (size_t)vocab * sizeof *weight);
        least = kth_largest(weight, vocab, sampling->top_k);
    }
    for (int64_t v = 0; v < vocab; v++) {
        double scaled = ((double)logit[v] - (double)most) / sampling->temperature;
        weight[v] = logit[v] >= least ? (float)exp(scaled) : 0;
    }
    if (sampling->top_p < 1)
        cut_to_nucleus(weight, vocab, sampling->top_p, (candidate *)(scratch + 2 * vocab));
    for (int64_t v = 0; v < vocab && sampling->min_p > 0; v++)
        weight[v] = (double)weight[v] >= sampling->min_p ? weight[v] : 0;
    return best;
}

int32_t tri_sample(const float *logits, int64_t vocab, const tri_sampling *sampling,
                   const uint8_t *seen, uint32_t text, uint64_t draw, void *scratch)
{
    int32_t best = weigh(logits, vocab, sampling, seen, scratch);
    if (sampling->temperature <= 0)
        return best;
    const float *weight = (const float *)scratch + vocab;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        sum += (double)weight[v];
    uint32_t word[4];
    tri_philox(sampling->seed, draw, text, tri_stream("sample", "token"), word);
    double at = (((double)word[0] * 0x1p32 + word[1]) * 0x1p-64 + 0x1p-65) * sum;
    for (int64_t v = 0; v < vocab; v++) {
        at -= (double)weight[v];
        if (at < 0 && weight[v] > 0)
            return (int32_t)v;
    }
    return best; /* all the weights are rounding, or not numbers */
}

void tri_sample_probabilities(const float *logits, int64_t vocab, const tri_sampling *sampling,
                              const uint8_t *seen, double *probability, void *scratch)
{
    int32_t best = weigh(logits, vocab, sampling, seen, scratch);
    const float *weight = (const float *)scratch + vocab;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        sum += (double)weight[v];
    for (int64_t v = 0; v < vocab; v++)
        probability[v] = sampling->temperature <= 0 ? v == best : (double)weight[v] / sum;
}
