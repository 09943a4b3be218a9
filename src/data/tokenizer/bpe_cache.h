/* Words that were encoded before. One thread's own; whatever it holds, the ids are the same. */
#ifndef TRI_DATA_TOKENIZER_BPE_CACHE_H
#define TRI_DATA_TOKENIZER_BPE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/tokenizer/bpe.h"

/* Words of up to 16 bytes are in the slot itself, longer ones in the pool; up to 3 ids likewise. */
typedef struct tri_cache_slot {
    uint64_t key0, key1; /* the word; or its hash, and its place in the pool */
    uint8_t num_bytes;   /* 0: free */
    uint8_t num_ids;
    uint16_t unused;
    int32_t id[3]; /* or the place of the ids in their pool */
} tri_cache_slot;

enum { TRI_CACHE_MAX_BYTES = 255, TRI_CACHE_MAX_IDS = 255 };

typedef struct tri_cache {
    tri_cache_slot *slot;
    size_t num_slots, used;
    tri_bytes words;
    int32_t *ids;
    size_t num_ids, id_capacity;
} tri_cache;

/* Two numbers that, with the length, are the word. */
static inline void tri_cache_key(const char *word, size_t num, uint64_t *key0, uint64_t *key1)
{
    if (num >= 8) {
        memcpy(key0, word, 8);
        memcpy(key1, word + num - 8, 8);
    } else if (num >= 4) {
        uint32_t low, high;
        memcpy(&low, word, 4);
        memcpy(&high, word + num - 4, 4);
        *key0 = (uint64_t)high << 32 | low;
        *key1 = 0;
    } else {
        *key0 = (uint64_t)(unsigned char)word[0] | (uint64_t)(unsigned char)word[num / 2] << 8 |
                (uint64_t)(unsigned char)word[num - 1] << 16;
        *key1 = 0;
    }
}

static inline uint64_t tri_cache_hash(uint64_t key0, uint64_t key1, size_t num)
{
    return tri_mix(key0 ^ 0x9E3779B97F4A7C15u, (key1 + num) ^ 0xD1B54A32D192ED03u);
}

/* The ids of a word of 1 to TRI_CACHE_MAX_BYTES bytes, or NULL. */
static inline const int32_t *tri_cache_get(const tri_cache *cache, const char *word, size_t num,
                                           size_t *num_ids)
{
    if (cache->num_slots == 0)
        return NULL;
    uint64_t key0, key1 = 0;
    size_t mask = cache->num_slots - 1, at;
    if (num <= 16) {
        tri_cache_key(word, num, &key0, &key1);
        at = (size_t)tri_cache_hash(key0, key1, num) & mask;
    } else {
        key0 = tri_hash_bytes(word, num);
        at = (size_t)key0 & mask;
    }
    for (;; at = (at + 1) & mask) {
        const tri_cache_slot *slot = &cache->slot[at];
        if (slot->num_bytes == 0)
            return NULL;
        if (slot->key0 != key0 || slot->num_bytes != num)
            continue;
        if (num <= 16 ? slot->key1 != key1 : memcmp(cache->words.data + slot->key1, word, num) != 0)
            continue;
        *num_ids = slot->num_ids;
        return slot->num_ids <= 3 ? slot->id : cache->ids + slot->id[0];
    }
}

/* Remembers it; may forget others. */
void tri_cache_put(tri_cache *cache, const char *word, size_t num, const tri_symbol *symbol,
                   size_t num_ids);
void tri_cache_fini(tri_cache *cache);

#endif
