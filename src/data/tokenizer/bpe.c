/* Byte-pair encoding of one word.
 *
 * A word starts as its bytes (or characters); then, as long as two neighbours have a merge, the
 * one of lowest rank is made, of equals the leftmost. Short words look through all neighbours
 * each time, which is fastest for the five or ten bytes that words have; long ones keep the
 * candidates in a heap and the symbols in a linked list, so that a megabyte without a space costs
 * n log n. Both give the same ids. */
#include "data/tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 48 };
#define NO_RANK UINT32_MAX

/* ---- merges ---- */

static inline size_t pair_place(uint64_t pair, size_t mask)
{
    return (size_t)tri_mix(pair ^ 0x2545F4914F6CDD1Du, 0x9E3779B97F4A7C15u) & mask;
}

bool tri_bpe_index(tri_bpe *bpe)
{
    size_t num_slots = 16;
    while (num_slots < 2 * bpe->num_merges)
        num_slots *= 2;
    free(bpe->slot);
    bpe->slot = malloc(num_slots * sizeof *bpe->slot);
    if (!bpe->slot)
        return false;
    bpe->num_slots = num_slots;
    memset(bpe->slot, 0xFF, num_slots * sizeof *bpe->slot);
    for (size_t rank = 0; rank < bpe->num_merges; rank++) {
        const tri_merge *merge = &bpe->merge[rank];
        uint64_t pair = (uint64_t)(uint32_t)merge->left << 32 | (uint32_t)merge->right;
        size_t at = pair_place(pair, num_slots - 1);
        while (bpe->slot[at].pair != UINT64_MAX && bpe->slot[at].pair != pair)
            at = (at + 1) & (num_slots - 1);
        /* A pair that is listed twice has the later rank, as in Hugging Face tokenizers. */
        bpe->slot[at] = (tri_merge_slot){pair, (uint32_t)rank, merge->into};
    }
    return true;
}

static const tri_merge_slot *find_merge(const tri_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = bpe->num_slots - 1;
    for (size_t at = pair_place(pair, mask);; at = (at + 1) & mask) {
        const tri_merge_slot *slot = &bpe->slot[at];
        if (slot->pair == pair)
            return slot;
        if (slot->pair == UINT64_MAX)
            return NULL;
    }
}

void tri_bpe_fini(tri_bpe *bpe)
{
    free(bpe->merge);
    free(bpe->slot);
    *bpe = (tri_bpe){0};
}

void tri_bpe_scratch_fini(tri_bpe_scratch *scratch)
{
    free(scratch->symbol);
    free(scratch->heap);
    free(scratch->rank);
    *scratch = (tri_bpe_scratch){0};
}

static void *ensure(void *items, size_t wanted, size_t *capacity, size_t item_bytes, bool *failed)
{
    if (wanted <= *capacity)
        return items;
    size_t larger = wanted + wanted / 2 + 64;
    void *grown = realloc(items, larger * item_bytes);
    if (!grown) {
        *failed = true;
        return items;
    }
    *capacity = larger;
    return grown;
}

/* ---- the first symbols ---- */

static inline void add_symbol(tri_bpe_scratch *s, int32_t id)
{
    s->symbol[s->num_symbols++].id = id;
}

static void start_with_bytes(const tri_bpe *bpe, tri_bpe_scratch *s, const char *word,
                             size_t num_bytes)
{
    bool was_unk = false;
    for (size_t i = 0; i < num_bytes; i++) {
        int32_t id = bpe->byte_id[(unsigned char)word[i]];
        if (id >= 0)
            add_symbol(s, id);
        else if (bpe->unk >= 0 && !(bpe->fuse_unk && was_unk))
            add_symbol(s, bpe->unk);
        was_unk = id < 0;
    }
}

/* Has each byte of a character its <0xNN>? */
static bool can_fall_back(const tri_bpe *bpe, const char *at, size_t length)
{
    bool all = bpe->byte_fallback;
    for (size_t i = 0; i < length && all; i++)
        all = bpe->byte_id[(unsigned char)at[i]] >= 0;
    return all;
}

/* An unknown character waits until it is known whether the next joins it. Bytes pass it by: so it
 * is in Hugging Face tokenizers. */
static void start_with_chars(const tri_bpe *bpe, tri_bpe_scratch *s, const char *word,
                             size_t num_bytes)
{
    const char *p = word, *end = word + num_bytes;
    bool waits = false;
    while (p < end) {
        const char *at = p;
        uint32_t c = tri_utf8_next(&p, end);
        size_t length = (size_t)(p - at);
        int32_t id = c < TRI_BROKEN ? tri_vocab_find(bpe->vocab, at, length) : -1;
        if (id >= 0) {
            if (waits)
                add_symbol(s, bpe->unk);
            waits = false;
            add_symbol(s, id);
        } else if (can_fall_back(bpe, at, length)) {
            for (size_t i = 0; i < length; i++)
                add_symbol(s, bpe->byte_id[(unsigned char)at[i]]);
        } else if (bpe->unk < 0) {
            s->unknown = c ? c : TRI_BROKEN;
        } else {
            if (waits && !bpe->fuse_unk)
                add_symbol(s, bpe->unk);
            waits = true;
        }
    }
    if (waits)
        add_symbol(s, bpe->unk);
}

/* ---- merging ---- */

static inline uint32_t rank_of(const tri_bpe *bpe, const tri_symbol *left, const tri_symbol *right)
{
    const tri_merge_slot *slot = find_merge(bpe, left->id, right->id);
    return slot ? slot->rank : NO_RANK;
}

static size_t merge_short(const tri_bpe *bpe, tri_symbol *symbol, size_t num)
{
    uint32_t rank[SHORT_WORD];
    for (size_t i = 0; i + 1 < num; i++)
        rank[i] = rank_of(bpe, &symbol[i], &symbol[i + 1]);
    while (num > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < num; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == NO_RANK)
            break;
        symbol[best].id = bpe->merge[rank[best]].into;
        for (size_t i = best + 1; i + 1 < num; i++) {
            symbol[i].id = symbol[i + 1].id;
            rank[i] = rank[i + 1];
        }
        num--;
        if (best + 1 < num)
            rank[best] = rank_of(bpe, &symbol[best], &symbol[best + 1]);
        if (best > 0)
            rank[best - 1] = rank_of(bpe, &symbol[best - 1], &symbol[best]);
    }
    return num;
}

static void heap_push(tri_bpe_scratch *s, uint64_t item)
{
    s->heap = ensure(s->heap, s->num_heap + 1, &s->heap_capacity, sizeof *s->heap, &s->failed);
    if (s->failed)
        return;
    size_t at = s->num_heap++;
    while (at > 0 && s->heap[(at - 1) / 4] > item) {
        s->heap[at] = s->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    s->heap[at] = item;
}

static uint64_t heap_pop(tri_bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->num_heap];
    size_t at = 0, num = s->num_heap;
    for (;;) {
        size_t child = 4 * at + 1, least = child;
        if (child >= num)
            break;
        for (size_t i = child + 1; i < child + 4 && i < num; i++)
            least = s->heap[i] < s->heap[least] ? i : least;
        if (s->heap[least] >= last)
            break;
        s->heap[at] = s->heap[least];
        at = least;
    }
    if (num > 0)
        s->heap[at] = last;
    return top;
}

static void push_pair(const tri_bpe *bpe, tri_bpe_scratch *s, int32_t left)
{
    int32_t right = s->symbol[left].next;
    if (right < 0)
        return;
    uint32_t rank = rank_of(bpe, &s->symbol[left], &s->symbol[right]);
    s->rank[left] = rank;
    if (rank != NO_RANK)
        heap_push(s, (uint64_t)rank << 32 | (uint32_t)left);
}

/* rank[i] is that of symbol i and its right neighbour now; an item of the heap that says otherwise
 * is out of date. A symbol that was swallowed has NO_RANK. */
static size_t merge_long(const tri_bpe *bpe, tri_bpe_scratch *s)
{
    size_t num = s->num_symbols;
    s->rank = ensure(s->rank, num, &s->rank_capacity, sizeof *s->rank, &s->failed);
    if (s->failed)
        return 0;
    for (size_t i = 0; i < num; i++) {
        s->symbol[i].previous = (int32_t)i - 1;
        s->symbol[i].next = i + 1 < num ? (int32_t)i + 1 : -1;
        s->rank[i] = NO_RANK;
    }
    s->num_heap = 0;
    for (size_t i = 0; i + 1 < num; i++)
        push_pair(bpe, s, (int32_t)i);
    while (s->num_heap > 0 && !s->failed) {
        uint64_t top = heap_pop(s);
        int32_t at = (int32_t)(top & 0xFFFFFFFFu);
        if (s->rank[at] != top >> 32)
            continue;
        tri_symbol *left = &s->symbol[at];
        int32_t gone = left->next;
        left->id = bpe->merge[top >> 32].into;
        left->next = s->symbol[gone].next;
        s->rank[at] = s->rank[gone] = NO_RANK;
        if (left->next >= 0)
            s->symbol[left->next].previous = at;
        push_pair(bpe, s, at);
        if (left->previous >= 0)
            push_pair(bpe, s, left->previous);
    }
    size_t kept = 0;
    for (int32_t at = 0, next; at >= 0; at = next) { /* kept <= at: nothing unread is written */
        next = s->symbol[at].next;
        s->symbol[kept++].id = s->symbol[at].id;
    }
    return kept;
}

size_t tri_bpe_encode(const tri_bpe *bpe, tri_bpe_scratch *s, const char *word, size_t num_bytes)
{
    s->num_symbols = 0;
    if (num_bytes >= INT32_MAX)
        s->failed = true;
    else
        s->symbol =
            ensure(s->symbol, num_bytes + 1, &s->symbol_capacity, sizeof *s->symbol, &s->failed);
    if (s->failed || num_bytes == 0)
        return 0;
    if (bpe->ignore_merges) {
        int32_t id = tri_vocab_find(bpe->vocab, word, num_bytes);
        if (id >= 0) {
            s->symbol[0].id = id;
            return 1;
        }
    }
    if (bpe->byte_level)
        start_with_bytes(bpe, s, word, num_bytes);
    else
        start_with_chars(bpe, s, word, num_bytes);
    if (bpe->num_merges == 0)
        return s->num_symbols;
    if (s->num_symbols <= SHORT_WORD)
        return merge_short(bpe, s->symbol, s->num_symbols);
    return merge_long(bpe, s);
}
