/* How well a model predicts: a text that is given, or the held-out part of its data. */
#ifndef TRI_API_EVALUATE_H
#define TRI_API_EVALUATE_H

#include "api/api.h"
#include "serve/vocabulary.h"

/* What was found. Sums over all targets; targets are tokens to be predicted. */
typedef struct tri_evaluation {
    double loss;            /* sum of the cross-entropy, in nats */
    double num_targets;     /* exact up to 2^53 */
    int64_t num_windows;    /* rows that were computed */
    int64_t num_bytes;      /* of the text that the targets stand for; -1: not known */
    int64_t num_characters; /* the same in characters of UTF-8 */
    double num_right;       /* targets that were the likeliest answer; -1: not counted */
    double seconds;
} tri_evaluation;

/* Every token of the text but the first is predicted once. Windows of seq_len tokens begin `stride`
 * tokens apart (0: seq_len); of each, those count that no window before it has predicted: a small
 * stride gives every token much to look back at, and takes longer. */
tr_status tri_api_evaluate_text(tr_settings *settings, const tri_vocabulary *vocabulary,
                                const char *text, size_t num_bytes, int64_t stride,
                                tri_evaluation *evaluation, tr_error *err);

/* The held-out rows of data.source, each once (of endless data train.eval_batches batches).
 * vocabulary may have no tokenizer: bytes are then not known. */
tr_status tri_api_evaluate_held_out(tr_settings *settings, const tri_vocabulary *vocabulary,
                                    tri_evaluation *evaluation, tr_error *err);

#endif
