/* Text from a model, one token after the other. */
#ifndef TRI_SERVE_GENERATE_H
#define TRI_SERVE_GENERATE_H

#include "train/session.h"

typedef struct tri_sampling {
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* choose among so many; 0: all */
    uint64_t seed;
} tri_sampling;

/* The next token for these logits; `position` numbers the draws of one text; scratch holds vocab
 * numbers. */
int32_t tri_sample(const float *logits, int64_t vocab, const tri_sampling *sampling,
                   uint64_t position, float *scratch);

/* Calls out for each of num_tokens tokens after the prompt. The prompt must not be empty. */
tr_status tri_generate(tri_session *session, const int32_t *prompt, int64_t prompt_length,
                       int64_t num_tokens, const tri_sampling *sampling,
                       void (*out)(void *context, int32_t token), void *context, tr_error *err);

#endif
