/* Tokenizers: text to token ids and back.
 *
 * A tokenizer is opened from
 *   "bytes"        256 tokens, id = byte
 *   "chars:FILE"   one token for every character that occurs in a text, in the order of their code
 *                  points; other characters are refused
 *   a file         a Hugging Face tokenizer.json
 *   a directory    with tokenizer.json; or vocab.json + merges.txt; or GPT-2's encoder.json +
 *                  vocab.bpe; or BERT's vocab.txt. tokenizer_config.json, special_tokens_map.json
 *                  and added_tokens.json beside them are read too
 * or made by training. An opened one never changes: any number of threads may use it.
 *
 * Text is bytes. Those that are not valid UTF-8 pass through byte-level and byte-fallback
 * tokenizers and come back by decoding (each counts as a symbol where text is cut into words).
 *
 * What is not understood in a file is refused with its name, never skipped. */
#ifndef TRI_DATA_TOKENIZER_TOKENIZER_H
#define TRI_DATA_TOKENIZER_TOKENIZER_H

#include "base/error.h"
#include "base/pool.h"
#include "data/unicode/unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_tokenizer tri_tokenizer;

/* A growing list of ids; zeroed is empty. `failed` as in tri_bytes. */
typedef struct tri_ids {
    int32_t *id;
    size_t num, capacity;
    bool failed;
} tri_ids;

void tri_ids_add(tri_ids *ids, const int32_t *id, size_t num);
void tri_ids_fini(tri_ids *ids);

tr_status tri_tokenizer_open(const char *path, tri_tokenizer **tokenizer, tr_error *err);
/* Whether a directory holds one, by the names of its files. */
bool tri_tokenizer_is_dir(const char *path);
void tri_tokenizer_close(tri_tokenizer *tokenizer); /* NULL is fine */

/* One token for every code point c for which seen[c] holds, of TRI_NUM_CODE_POINTS; as chars:FILE.
 */
tr_status tri_tokenizer_of_chars(const bool *seen, tri_tokenizer **tokenizer, tr_error *err);

enum {
    TRI_ENCODE_SPECIAL = 1, /* put in what the post-processor adds: [CLS] ... [SEP], <s> ... */
    TRI_ENCODE_PLAIN = 2    /* text that spells a special token is ordinary text */
};

/* Appends the ids of a text. With a pool (it may be NULL) large texts are cut where words end in
 * any case, so the ids are the same for every number of threads. On failure ids are as before. */
tr_status tri_tokenizer_encode(const tri_tokenizer *tokenizer, tri_pool *pool, const char *text,
                               size_t num_bytes, unsigned flags, tri_ids *ids, tr_error *err);

/* For a caller that reads a long document in blocks: the last place at or before num_bytes where
 * encoding the two parts one after the other (the second with TRI_ENCODE_CONTINUE) gives the ids
 * of the whole. 0 when there is none: the document must then be encoded in one piece. */
enum { TRI_ENCODE_CONTINUE = 4 };
size_t tri_tokenizer_cut(const tri_tokenizer *tokenizer, const char *text, size_t num_bytes);

enum { TRI_DECODE_SKIP_SPECIAL = 1 };

/* Appends the bytes that ids stand for. An id outside the vocabulary is wrong input. */
tr_status tri_tokenizer_decode(const tri_tokenizer *tokenizer, const int32_t *ids, size_t num_ids,
                               unsigned flags, tri_bytes *bytes, tr_error *err);

int32_t tri_tokenizer_vocab(const tri_tokenizer *tokenizer); /* ids are in [0, this) */

/* What a token stands for: its bytes in a byte-level tokenizer, otherwise its text as it is in the
 * file ("##ing", "\u2581the"). NULL for an id outside the vocabulary. */
const char *tri_tokenizer_token(const tri_tokenizer *tokenizer, int32_t id, size_t *num_bytes);
/* Its text as tokenizer.json spells it. */
const char *tri_tokenizer_spelling(const tri_tokenizer *tokenizer, int32_t id, size_t *num_bytes);
/* The id of a token as tokenizer.json spells it, or -1. */
int32_t tri_tokenizer_id(const tri_tokenizer *tokenizer, const char *text, size_t num_bytes);

typedef enum tri_special {
    TRI_SPECIAL_BOS,
    TRI_SPECIAL_EOS,
    TRI_SPECIAL_PAD,
    TRI_SPECIAL_UNK,
    TRI_SPECIAL_CLS,
    TRI_SPECIAL_SEP,
    TRI_SPECIAL_MASK,
    TRI_NUM_SPECIAL
} tri_special;

/* From tokenizer_config.json or special_tokens_map.json, else by the usual names; -1 for none. */
int32_t tri_tokenizer_special(const tri_tokenizer *tokenizer, tri_special which);

/* Whether a token is marked as special in the file: it stands for no text. */
bool tri_tokenizer_is_special(const tri_tokenizer *tokenizer, int32_t id);

/* What the post-processor makes of a text, or of two: special tokens around and between them. */
typedef struct tri_post_item {
    int32_t id;   /* of a special token; -1: a text stands here */
    int32_t part; /* which text, 0 or 1 */
    int32_t type; /* of the token or of the whole text: 0 or 1 (bert's sentences) */
} tri_post_item;

enum { TRI_MAX_POST_ITEMS = 16 };

/* Writes the items and returns how many there are: with part 0 once and, for a pair, part 1 once
 * after it. A tokenizer without a form for pairs puts one text after the other. */
int tri_tokenizer_post(const tri_tokenizer *tokenizer, bool pair,
                       tri_post_item items[TRI_MAX_POST_ITEMS]);

/* "byte-level BPE, 50,257 tokens, 50,000 merges, gpt2 pattern"; returns text. */
char *tri_tokenizer_describe(const tri_tokenizer *tokenizer, char *text, size_t text_size);

/* tokenizer.json, as Hugging Face tokenizers reads it. */
tr_status tri_tokenizer_save(const tri_tokenizer *tokenizer, const char *path, tr_error *err);
/* tokenizer.json and, for what a token is used for, special_tokens_map.json. */
tr_status tri_tokenizer_save_dir(const tri_tokenizer *tokenizer, const char *dir, tr_error *err);
/* A number that is the same for tokenizers that would be saved as the same file; never 0. */
tr_status tri_tokenizer_fingerprint(const tri_tokenizer *tokenizer, uint64_t *fingerprint,
                                    tr_error *err);

/* ---- training ---- */

typedef struct tri_train_config {
    const char *style;     /* "gpt2", "llama3", "qwen": how text is cut into words; or "bytes" */
    int32_t vocab;         /* tokens wanted, specials included; fewer when pairs run out */
    int64_t min_frequency; /* of a pair; 0 for the usual 2 */
    bool whole_text;       /* words may span lines; otherwise each line is cut by itself, which is
                              what training from files does in Hugging Face tokenizers */
    const char *const *specials; /* get the first ids; NULL for the style's own */
    int num_specials;
    const size_t
        *ends; /* of the documents in the text, rising: no word spans two; NULL: it is one */
    size_t num_ends;
} tri_train_config;

/* Byte-level BPE: the pair that occurs most often becomes a token, of equals the one with the
 * smallest ids, until there are enough. */
tr_status tri_tokenizer_train(const tri_train_config *config, tri_pool *pool, const char *text,
                              size_t num_bytes, tri_tokenizer **tokenizer, tr_error *err);

#endif
