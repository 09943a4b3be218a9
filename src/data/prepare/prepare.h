/* From text to token shards: what `trireme data prepare` does, and what training does by itself the
 * first time it is given text and a tokenizer.
 *
 * Reading, encoding and writing go on side by side on all threads, a few MiB at a time; the tokens
 * are the same for any number of threads. Only a text in which the tokenizer finds no place to cut
 * (tri_tokenizer_cut) is held whole.
 *
 * The directory that comes out holds
 *   train-00000.tok, train-00001.tok, ...   the shards (data/prepare/shard.h)
 *   eval-00000.tok, ...                     what was held out, if anything
 *   tokenizer.json, special_tokens_map.json the tokenizer
 *   tokens.json                             what it was made from, and the list of shards
 * and appears complete or not at all. */
#ifndef TRI_DATA_PREPARE_PREPARE_H
#define TRI_DATA_PREPARE_PREPARE_H

#include "base/pool.h"
#include "data/data.h"
#include "data/tokenizer/tokenizer.h"

#define TRI_PREPARED_MANIFEST "tokens.json"

enum {
    TRI_SEPARATOR_NONE = -1,
    TRI_SEPARATOR_USUAL = -2 /* the tokenizer's end of text, if it has one */
};

typedef struct tri_prepare_progress {
    const char *doing;        /* what begins now, in words; NULL: it goes on, and these count: */
    uint64_t consumed, total; /* bytes of the input files */
    uint64_t text_bytes;      /* of text so far */
    uint64_t tokens;
} tri_prepare_progress;

typedef struct tri_prepare_config {
    const char *const *inputs; /* files and directories: data/prepare/texts.h */
    int num_inputs;
    const char *out;      /* the directory to write */
    const char *field;    /* of JSONL: where its text is; NULL: "text" */
    int64_t shard_tokens; /* tokens of a shard; 0: 100 million */
    double split;         /* share of the documents that is held out for evaluation */
    int32_t separator;    /* between documents: an id, or one of the above */
    bool plain;           /* text that spells a special token is ordinary text */
    bool force;           /* an earlier result in its place is replaced */
    uint64_t made_from;   /* goes into tokens.json; 0: tri_prepare_fingerprint */
    void (*progress)(void *context, const tri_prepare_progress *now); /* or NULL */
    void *context;
} tri_prepare_config;

typedef struct tri_prepare_result {
    uint64_t tokens[2], documents[2], shards[2]; /* by tri_split */
    uint64_t text_bytes, num_files;
} tri_prepare_result;

tr_status tri_prepare(const tri_prepare_config *config, const tri_tokenizer *tokenizer,
                      tri_pool *pool, tri_prepare_result *result, tr_error *err);

/* Whether a document is held out: a pure function, one out of each 1/split documents. */
bool tri_prepare_held_out(double split, uint64_t document);

/* The usual separator of a tokenizer: end of text, or what separates texts; -1: none. */
int32_t tri_usual_separator(const tri_tokenizer *tokenizer);

/* Text to train a tokenizer on: that of the inputs, as tokenising reads it (data/prepare/texts.h),
 * up to a GiB, which is enough to count pairs in. field is as in tri_prepare_config. */
typedef struct tri_text_sample {
    tri_bytes text;
    size_t *end; /* of each document in it */
    size_t num, capacity;
    bool cut; /* there is more than that */
} tri_text_sample;

tr_status tri_text_sample_read(const char *const *inputs, int num_inputs, const char *field,
                               tri_text_sample *sample, tr_error *err);
void tri_text_sample_fini(tri_text_sample *sample);

/* Opens a tokenizer by the name that people give it: as tri_tokenizer_open, or one that is made
 * from the inputs: "chars" has every character of them, "bpe:4096" is trained on them (on the first
 * GiB, if there is more), with at most so many tokens. */
tr_status tri_prepare_tokenizer(const char *name, const char *const *inputs, int num_inputs,
                                const char *field, tri_pool *pool, tri_tokenizer **tokenizer,
                                tr_error *err);
/* Whether a name is one of the two. vocab (may be NULL): that of "bpe:N", 0 when it must be found
 * out. A name that begins like one and is not is an error. */
tr_status tri_prepare_is_made(const char *name, bool *made, int64_t *vocab, tr_error *err);

/* One number for everything that the tokens depend on. Files count by name, size and date. For a
 * tokenizer that is made from the inputs, tokenizer is NULL and its name counts. */
tr_status tri_prepare_fingerprint(const tri_prepare_config *config, const tri_tokenizer *tokenizer,
                                  const char *name, uint64_t *fingerprint, tr_error *err);

#endif
