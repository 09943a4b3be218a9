/* What the tokens of a model mean: its tokenizer, and the tokens that end a text. */
#ifndef TRI_SERVE_VOCABULARY_H
#define TRI_SERVE_VOCABULARY_H

#include "data/tokenizer/tokenizer.h"

enum { TRI_MAX_EOS = 16 };

typedef struct tri_vocabulary {
    tri_tokenizer *tokenizer; /* NULL: tokens have no text */
    int64_t num_tokens;       /* of the model; some may have no text */
    int32_t eos[TRI_MAX_EOS]; /* any of them ends a text */
    int num_eos;
} tri_vocabulary;

/* For the model that lies in a directory, or beside a weights file: tokenizer files there, or else
 * bytes, where the vocabulary is that of a model of bytes: at most 512, or `bytes`. Otherwise there
 * is none, which is no error: tri_vocabulary_need tells. eos is that of generation_config.json,
 * else of config.json, else the tokenizer's, as in transformers. With `tokenizer` (or NULL) that
 * one is opened instead, as tri_tokenizer_open does. */
tr_status tri_vocabulary_open(const char *path, const char *tokenizer, int64_t num_tokens,
                              bool bytes, tri_vocabulary *vocabulary, tr_error *err);
void tri_vocabulary_close(tri_vocabulary *vocabulary);
/* The error to give when there is no text for tokens; path as above. */
tr_status tri_vocabulary_need(const tri_vocabulary *vocabulary, const char *path, tr_error *err);

bool tri_vocabulary_ends(const tri_vocabulary *vocabulary, int32_t token);

/* Appends the tokens of a prompt, with those that begin a text. An empty prompt becomes one token
 * that a text can begin with. */
tr_status tri_vocabulary_prompt(const tri_vocabulary *vocabulary, const char *text,
                                size_t num_bytes, tri_ids *ids, tr_error *err);
/* Appends the text of tokens; those without one become U+FFFD. */
tr_status tri_vocabulary_text(const tri_vocabulary *vocabulary, const int32_t *ids, size_t num_ids,
                              tri_bytes *text, tr_error *err);

#endif
