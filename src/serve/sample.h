/* Choosing the next token of a text from its logits. */
#ifndef TRI_SERVE_SAMPLE_H
#define TRI_SERVE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* Applied in this order: the repetition penalty, then (unless the temperature is 0, which takes the
 * likeliest) temperature, top_k, top_p and min_p, each on what the one before it left. */
typedef struct tri_sampling {
    double temperature;        /* 0: always the likeliest token */
    int64_t top_k;             /* choose among so many; 0: all */
    double top_p;              /* among the likeliest that together have this probability; 1: all */
    double min_p;              /* among those with this share of the likeliest's probability; 0 */
    double repetition_penalty; /* divides the logits of tokens that have occurred; 1: none */
    uint64_t seed;
} tri_sampling;

/* Room for one choice among vocab tokens: tri_sample_scratch_bytes, aligned as malloc does. */
size_t tri_sample_scratch_bytes(int64_t vocab);

/* The next token. seen[v] says whether token v has occurred in the text (NULL: no penalty). The
 * draw depends on the seed, on the number of the text and on the number of the draw alone; of equal
 * logits the first wins. */
int32_t tri_sample(const float *logits, int64_t vocab, const tri_sampling *sampling,
                   const uint8_t *seen, uint32_t text, uint64_t draw, void *scratch);

/* The probability with which tri_sample takes each token, for those who want to look. */
void tri_sample_probabilities(const float *logits, int64_t vocab, const tri_sampling *sampling,
                              const uint8_t *seen, double *probability, void *scratch);

#endif
