/* Texts from prompts, by the generate.* settings: what `trireme generate` and tr_session_generate
 * share. */
#ifndef TRI_API_TEXTS_H
#define TRI_API_TEXTS_H

#include "api/api.h"
#include "serve/stream.h"

typedef struct tri_text_jobs {
    const tri_vocabulary *vocabulary;
    const tri_ids *prompts; /* as tokens; none is empty */
    size_t num_prompts;     /* text number i is sample i % generate.samples of prompt i / samples */
    void *context;
    /* Pieces of a text as they are certain, and its end, after which the stream is gone. Either may
     * be NULL. */
    void (*piece)(void *context, size_t text, const char *bytes, size_t num_bytes);
    void (*end)(void *context, size_t text, const tri_text_stream *stream);
} tri_text_jobs;

/* The directory or file that the weights of the settings come from, where a tokenizer may lie:
 * model.from, else run.dir. */
const char *tri_api_weights_place(const tr_settings *settings);
/* The tokenizer that data.tokenizer names for a model of Hugging Face; NULL for the one that lies
 * with the weights, as a run of ours always has it. */
const char *tri_api_tokenizer(const tr_settings *settings);

/* A session for these prompts, with the programs that generation needs; not started. */
tr_status tri_api_compile_texts(tr_settings *settings, const tri_ids *prompts, size_t num_prompts,
                                tr_session **session, tr_error *err);

/* stats may be NULL. */
tr_status tri_api_texts(tr_session *session, const tri_text_jobs *jobs, tri_generate_stats *stats,
                        tr_error *err);

#endif
