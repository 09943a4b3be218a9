#include "data/tokenizer/bpe_cache.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 1 << 10, MAX_SLOTS = 1 << 18, MAX_POOL = 1 << 24 };

static size_t place_of(const tri_cache_slot *slot)
{
    return (size_t)(slot->num_bytes <= 16 ? tri_cache_hash(slot->key0, slot->key1, slot->num_bytes)
                                          : slot->key0);
}

static void insert(tri_cache *cache, const tri_cache_slot *slot)
{
    size_t mask = cache->num_slots - 1, at = place_of(slot) & mask;
    while (cache->slot[at].num_bytes)
        at = (at + 1) & mask;
    cache->slot[at] = *slot;
    cache->used++;
}

static bool enlarge(tri_cache *cache)
{
    tri_cache_slot *old = cache->slot;
    size_t num_old = cache->num_slots;
    size_t num_slots = num_old ? num_old * 4 : FIRST_SLOTS;
    tri_cache_slot *larger = calloc(num_slots, sizeof *larger);
    if (!larger)
        return false;
    cache->slot = larger;
    cache->num_slots = num_slots;
    cache->used = 0;
    for (size_t i = 0; i < num_old; i++)
        if (old[i].num_bytes)
            insert(cache, &old[i]);
    free(old);
    return true;
}

/* Room for one more, if need be by forgetting everything. */
static bool make_room(tri_cache *cache)
{
    bool pools_full = cache->words.num > MAX_POOL || cache->num_ids > MAX_POOL;
    if (!pools_full && 2 * cache->used < cache->num_slots)
        return true;
    if (!pools_full && cache->num_slots < MAX_SLOTS && enlarge(cache))
        return true;
    if (cache->num_slots == 0)
        return false;
    memset(cache->slot, 0, cache->num_slots * sizeof *cache->slot);
    cache->used = 0;
    cache->words.num = 0;
    cache->num_ids = 0;
    return true;
}

static bool put_ids(tri_cache *cache, tri_cache_slot *slot, const tri_symbol *symbol,
                    size_t num_ids)
{
    slot->num_ids = (uint8_t)num_ids;
    if (num_ids <= 3) {
        for (size_t i = 0; i < num_ids; i++)
            slot->id[i] = symbol[i].id;
        return true;
    }
    if (cache->num_ids + num_ids > cache->id_capacity) {
        size_t capacity = 2 * cache->id_capacity + 1024;
        int32_t *grown = realloc(cache->ids, capacity * sizeof *grown);
        if (!grown)
            return false;
        cache->ids = grown;
        cache->id_capacity = capacity;
    }
    slot->id[0] = (int32_t)cache->num_ids;
    for (size_t i = 0; i < num_ids; i++)
        cache->ids[cache->num_ids++] = symbol[i].id;
    return true;
}

void tri_cache_put(tri_cache *cache, const char *word, size_t num, const tri_symbol *symbol,
                   size_t num_ids)
{
    if (num == 0 || num > TRI_CACHE_MAX_BYTES || num_ids > TRI_CACHE_MAX_IDS || !make_room(cache))
        return;
    tri_cache_slot slot = {.num_bytes = (uint8_t)num};
    if (num <= 16) {
        tri_cache_key(word, num, &slot.key0, &slot.key1);
    } else {
        slot.key0 = tri_hash_bytes(word, num);
        slot.key1 = cache->words.num;
        tri_bytes_add(&cache->words, word, num);
        if (cache->words.failed) { /* it stays small, nothing else */
            cache->words.failed = false;
            return;
        }
    }
    if (put_ids(cache, &slot, symbol, num_ids))
        insert(cache, &slot);
}

void tri_cache_fini(tri_cache *cache)
{
    free(cache->slot);
    free(cache->ids);
    tri_bytes_fini(&cache->words);
    *cache = (tri_cache){0};
}
