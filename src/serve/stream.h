/* Tokens of one text as they come, turned into pieces of text as soon as these are certain.
 *
 * A piece never ends within a character, and never holds what may yet turn out to be the beginning
 * of a stop string: a text ends exactly before the first stop string that occurs in it, wherever
 * the borders of tokens lie. */
#ifndef TRI_SERVE_STREAM_H
#define TRI_SERVE_STREAM_H

#include "serve/vocabulary.h"

/* Why a text ended. */
typedef enum tri_text_end { TRI_END_LENGTH, TRI_END_EOS, TRI_END_STOP } tri_text_end;
const char *tri_text_end_name(tri_text_end end); /* "length", "eos", "stop" */

typedef struct tri_stops {
    const char *const *string; /* none is empty */
    size_t num;
} tri_stops;

typedef struct tri_text_stream {
    const tri_vocabulary *vocabulary; /* tokenizer NULL: there are no pieces, only tokens */
    tri_stops stops;
    bool past_eos; /* a token that ends texts is one like others */
    void *context;
    void (*piece)(void *context, const char *bytes, size_t num_bytes); /* or NULL */

    tri_ids ids;       /* the end of the prompt, then the tokens of the text */
    size_t num_prompt; /* of ids */
    size_t shown;      /* of ids: those whose text is in `text` */
    tri_bytes text;    /* of the tokens so far, cut at a stop string */
    size_t given;      /* bytes of it that went out as pieces */
    tri_text_end end;
    bool ended;
} tri_text_stream;

/* The caller has set the fields above the line; the rest is zero. prompt: what comes before. */
void tri_text_stream_begin(tri_text_stream *stream, const int32_t *prompt, size_t num_prompt);
/* One more token. *more is false when the text has ended with it. */
tr_status tri_text_stream_add(tri_text_stream *stream, int32_t token, bool *more, tr_error *err);
/* No more tokens: what was held back goes out. */
void tri_text_stream_finish(tri_text_stream *stream);
void tri_text_stream_fini(tri_text_stream *stream);

/* Bytes at the end of a text that begin a character which is not whole. */
size_t tri_utf8_unfinished(const char *text, size_t num_bytes);

#endif
