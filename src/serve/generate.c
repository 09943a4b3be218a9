#include "serve/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

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

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

int32_t tri_sample(const float *logits, int64_t vocab, const tri_sampling *sampling,
                   uint64_t position, float *scratch)
{
    int32_t best = likeliest(logits, vocab);
    if (sampling->temperature <= 0)
        return best;
    float least = -INFINITY;
    if (sampling->top_k > 0 && sampling->top_k < vocab) {
        memcpy(scratch, logits, (size_t)vocab * sizeof *scratch);
        least = kth_largest(scratch, vocab, sampling->top_k);
    }
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++) {
        double weight = exp(((double)logits[v] - (double)logits[best]) / sampling->temperature);
        scratch[v] = logits[v] >= least ? (float)weight : 0;
        sum += (double)scratch[v];
    }
    uint32_t word = tri_random_word(sampling->seed, position, 0, tri_stream("sample", "token"));
    double at = (word + 0.5) * 0x1p-32 * sum;
    for (int64_t v = 0; v < vocab; v++) {
        at -= (double)scratch[v];
        if (at < 0 && scratch[v] > 0)
            return (int32_t)v;
    }
    return best;
}

tr_status tri_generate(tri_session *session, const int32_t *prompt, int64_t prompt_length,
                       int64_t num_tokens, const tri_sampling *sampling,
                       void (*out)(void *context, int32_t token), void *context, tr_error *err)
{
    int64_t room = session->config.compile.seq_len, vocab = session->config.compile.model.vocab;
    int32_t *text = malloc((size_t)(prompt_length + num_tokens) * sizeof *text);
    float *scratch = malloc((size_t)vocab * sizeof *scratch);
    if (!text || !scratch) {
        free(text);
        free(scratch);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to generate %lld tokens",
                        (long long)num_tokens);
    }
    memcpy(text, prompt, (size_t)prompt_length * sizeof *text);
    int64_t length = prompt_length;
    for (int64_t i = 0; i < num_tokens; i++) {
        int64_t seen = length < room ? length : room;
        const float *logits = tri_session_predict(session, text + length - seen, seen);
        text[length] = tri_sample(logits, vocab, sampling, (uint64_t)i, scratch);
        out(context, text[length++]);
    }
    free(text);
    free(scratch);
    return TR_OK;
}
