/* The models: byte-pair encoding and WordPiece, from one word to ids. */
#ifndef TRI_DATA_TOKENIZER_BPE_H
#define TRI_DATA_TOKENIZER_BPE_H

#include "data/unicode/unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t tri_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t tri_hash_bytes(const char *data, size_t num_bytes);

/* ---- a vocabulary: texts by id and ids by text (tokenizer_vocab.c) ---- */

typedef struct tri_vocab {
    tri_bytes blob;
    size_t *start;  /* num + 1 of them */
    uint8_t *state; /* of each: 0, or one of the two below */
    int32_t num;
    size_t capacity;
    int32_t *slot; /* open addressing; -1 is free */
    size_t num_slots;
    bool failed;
} tri_vocab;

enum {
    TRI_VOCAB_ABSENT = 1, /* stands for nothing: a spelling without bytes */
    TRI_VOCAB_HIDDEN = 2  /* has a text that lookups do not find */
};

/* Appends the text of the next id; NULL for a place without a text. */
void tri_vocab_add(tri_vocab *vocab, const char *text, size_t num_bytes);
void tri_vocab_hide(tri_vocab *vocab); /* the one that was added last */
/* After the last one: makes the table. Returns an id whose text is also that of a lower one, or
 * -1. Lookups find the lower. */
int32_t tri_vocab_index(tri_vocab *vocab);
int32_t tri_vocab_find(const tri_vocab *vocab, const char *text, size_t num_bytes);
const char *tri_vocab_text(const tri_vocab *vocab, int32_t id, size_t *num_bytes);
bool tri_vocab_is_hole(const tri_vocab *vocab, int32_t id); /* within the ids, without a text */
void tri_vocab_fini(tri_vocab *vocab);

/* ---- BPE (bpe.c) ---- */

typedef struct tri_merge {
    int32_t left, right, into;
} tri_merge;

typedef struct tri_merge_slot {
    uint64_t pair; /* left << 32 | right; all ones when free */
    uint32_t rank;
    int32_t into;
} tri_merge_slot;

typedef struct tri_bpe {
    tri_merge *merge; /* by rank */
    size_t num_merges, capacity;
    tri_merge_slot *slot;
    size_t num_slots;
    const tri_vocab *vocab; /* of the texts that words are made of */
    int32_t byte_id[256];   /* byte-level: of each byte; byte fallback: of <0xNN>; -1 for none */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    int32_t unk; /* -1 for none */
    /* What stands for a space (U+2581), when no token has it behind another character: long words
     * may then be cut before it, which changes nothing and lets the cache work. */
    bool cut_at_metaspace;
} tri_bpe;

typedef struct tri_symbol {
    int32_t id, previous, next;
} tri_symbol;

/* Work space of one thread. */
typedef struct tri_bpe_scratch {
    tri_symbol *symbol;
    size_t num_symbols, symbol_capacity;
    uint64_t *heap; /* rank << 32 | place */
    size_t num_heap, heap_capacity;
    uint32_t *rank;
    size_t rank_capacity;
    uint32_t unknown; /* a character that nothing stands for and that was left out; 0 for none */
    bool failed;
} tri_bpe_scratch;

bool tri_bpe_index(tri_bpe *bpe); /* after the last merge; false without memory */
void tri_bpe_fini(tri_bpe *bpe);

/* The ids of a word, in scratch->symbol[0 .. num): only .id counts there. */
size_t tri_bpe_encode(const tri_bpe *bpe, tri_bpe_scratch *scratch, const char *word,
                      size_t num_bytes);
void tri_bpe_scratch_fini(tri_bpe_scratch *scratch);

/* GPT-2's way to write bytes as printable characters. */
uint32_t tri_byte_to_char(unsigned char byte);
int tri_char_to_byte(uint32_t code_point); /* -1 when it stands for none */
/* A spelling to bytes; false when a character stands for none. */
bool tri_spelling_to_bytes(const char *text, size_t num_bytes, tri_bytes *out);

/* ---- WordPiece (wordpiece.c) ---- */

typedef struct tri_wordpiece {
    tri_vocab whole; /* of tokens that continue nothing: a text has its token's id through map */
    tri_vocab rest;  /* of those that continue a word, without their prefix */
    int32_t *whole_id, *rest_id;
    int32_t unk;
    int max_chars;
    size_t longest; /* bytes of the longest text in either */
} tri_wordpiece;

/* skip (may be NULL) marks ids that are no part of the model. */
bool tri_wordpiece_init(tri_wordpiece *wordpiece, const tri_vocab *spelling, const bool *skip,
                        const char *prefix, size_t prefix_bytes);
void tri_wordpiece_fini(tri_wordpiece *wordpiece);
size_t tri_wordpiece_encode(const tri_wordpiece *wordpiece, tri_bpe_scratch *scratch,
                            const char *word, size_t num_bytes);

#endif
