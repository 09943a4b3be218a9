/* Texts from a model, one token after the other, several at a time.
 *
 * With the programs for generation (TRI_PROGRAMS_GENERATE) every text has a row of the cache of
 * keys and values: its prompt is put there in blocks (prefill), then each program run adds one
 * token to all texts (decode). A text that ends gives its row to the next that waits. Without them
 * the prediction program is run on the whole text for every token.
 *
 * A text that outgrows the positions of its model goes on from its last half: that is put into the
 * row anew. Models that look back through a window, without learned positions, need no such thing.
 * (Without the cache, the last seq_len tokens are looked at.)
 *
 * A text depends on its prompt, its number and the sampling alone, not on what is made beside it:
 * kernels compute each row by itself. */
#ifndef TRI_SERVE_GENERATE_H
#define TRI_SERVE_GENERATE_H

#include "serve/sample.h"
#include "train/session.h"

typedef struct tri_text_request {
    const int32_t *prompt;
    int64_t prompt_length; /* at least 1 */
    int64_t max_tokens;
} tri_text_request;

/* Called with each token of a text (requests are numbered from 0, which is also the number of the
 * text for sampling); false ends the text. */
typedef bool (*tri_token_fn)(void *context, size_t request, int32_t token);

typedef struct tri_generate_stats {
    int64_t prompt_tokens, new_tokens;
    int64_t decode_runs;   /* program runs that made new_tokens, but for the first of each text */
    int64_t decode_tokens; /* made by them */
    double prefill_s, decode_s, sample_s;
    int64_t num_restarts; /* texts cut to their last half, counted each time */
} tri_generate_stats;

/* Shapes for texts of at most so many tokens, prompt included. rows and block: as many as are
 * wanted at most. */
tri_generate_shape tri_generate_plan(const tri_model_config *model, int64_t rows, int64_t block,
                                     int64_t longest_prompt, int64_t longest_text);

/* stats may be NULL. */
tr_status tri_generate(tri_session *session, const tri_text_request *requests, size_t num_requests,
                       const tri_sampling *sampling, tri_token_fn out, void *context,
                       tri_generate_stats *stats, tr_error *err);

#endif
