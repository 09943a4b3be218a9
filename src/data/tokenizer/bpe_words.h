/* Counting the words of a text, for training. */
#ifndef TRI_DATA_TOKENIZER_BPE_WORDS_H
#define TRI_DATA_TOKENIZER_BPE_WORDS_H

#include "data/tokenizer/tokenizer.h"

/* Distinct byte strings with a count each, in the order in which they came. */
typedef struct tri_words {
    tri_bytes blob;
    struct tri_word {
        size_t start;
        uint32_t num_bytes;
        uint32_t hash;
        int64_t count;
    } * word;
    size_t num, capacity;
    uint32_t *slot; /* index + 1; 0 is free */
    size_t num_slots;
    bool failed;
} tri_words;

typedef struct tri_word tri_word;

/* Adds to the count of a word and returns its index, or -1 when memory ran out. */
int64_t tri_words_add(tri_words *words, const char *text, size_t num_bytes, int64_t count);
int64_t tri_words_find(const tri_words *words, const char *text, size_t num_bytes);
void tri_words_fini(tri_words *words);

/* The words of a text as t's normalizer and pre-tokenizer cut it, sorted by their bytes, so that
 * they do not depend on the number of threads. Of config, what says where words end counts. */
tr_status tri_words_count(const tri_tokenizer *t, const tri_train_config *config, tri_pool *pool,
                          const char *text, size_t num_bytes, tri_words *words, tr_error *err);

#endif
