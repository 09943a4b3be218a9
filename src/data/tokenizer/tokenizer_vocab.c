/* Texts by id and ids by text, and GPT-2's alphabet for bytes. */
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

uint64_t tri_hash_bytes(const char *data, size_t num_bytes)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t hash = num_bytes * odd;
    while (num_bytes >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        hash = tri_mix(hash ^ word, odd);
        data += 8;
        num_bytes -= 8;
    }
    uint64_t tail = 0;
    memcpy(&tail, data, num_bytes);
    return tri_mix(hash ^ tail, odd ^ 0x5DEECE66D);
}

static bool grow(tri_vocab *vocab)
{
    if ((size_t)vocab->num + 1 < vocab->capacity)
        return true;
    size_t capacity = vocab->capacity ? vocab->capacity * 2 : 1024;
    size_t *start = realloc(vocab->start, capacity * sizeof *start);
    if (start)
        vocab->start = start;
    uint8_t *state = realloc(vocab->state, capacity * sizeof *state);
    if (state)
        vocab->state = state;
    if (!start || !state)
        return false;
    vocab->capacity = capacity;
    return true;
}

void tri_vocab_add(tri_vocab *vocab, const char *text, size_t num_bytes)
{
    if (!grow(vocab)) {
        vocab->failed = true;
        return;
    }
    vocab->start[vocab->num] = vocab->blob.num;
    vocab->state[vocab->num] = text ? 0 : TRI_VOCAB_ABSENT;
    if (text)
        tri_bytes_add(&vocab->blob, text, num_bytes);
    vocab->start[++vocab->num] = vocab->blob.num;
    vocab->failed = vocab->failed || vocab->blob.failed;
}

void tri_vocab_hide(tri_vocab *vocab)
{
    if (!vocab->failed)
        vocab->state[vocab->num - 1] = TRI_VOCAB_HIDDEN;
}

int32_t tri_vocab_index(tri_vocab *vocab)
{
    size_t num_slots = 16;
    while (num_slots < 2 * (size_t)vocab->num)
        num_slots *= 2;
    free(vocab->slot);
    vocab->num_slots = 0;
    vocab->slot = malloc(num_slots * sizeof *vocab->slot);
    if (!vocab->slot) {
        vocab->failed = true;
        return -1;
    }
    vocab->num_slots = num_slots;
    memset(vocab->slot, 0xFF, num_slots * sizeof *vocab->slot);
    int32_t repeated = -1;
    for (int32_t id = 0; id < vocab->num; id++) {
        if (vocab->state[id] != 0)
            continue;
        size_t num_bytes;
        const char *text = tri_vocab_text(vocab, id, &num_bytes);
        if (tri_vocab_find(vocab, text, num_bytes) >= 0) {
            repeated = repeated < 0 ? id : repeated;
            continue;
        }
        size_t at = tri_hash_bytes(text, num_bytes) & (num_slots - 1);
        while (vocab->slot[at] >= 0)
            at = (at + 1) & (num_slots - 1);
        vocab->slot[at] = id;
    }
    return repeated;
}

int32_t tri_vocab_find(const tri_vocab *vocab, const char *text, size_t num_bytes)
{
    if (vocab->num_slots == 0)
        return -1;
    size_t mask = vocab->num_slots - 1;
    for (size_t at = tri_hash_bytes(text, num_bytes) & mask;; at = (at + 1) & mask) {
        int32_t id = vocab->slot[at];
        if (id < 0)
            return -1;
        size_t start = vocab->start[id];
        if (vocab->start[id + 1] - start == num_bytes &&
            (num_bytes == 0 || memcmp(vocab->blob.data + start, text, num_bytes) == 0))
            return id;
    }
}

const char *tri_vocab_text(const tri_vocab *vocab, int32_t id, size_t *num_bytes)
{
    if (id < 0 || id >= vocab->num || vocab->state[id] == TRI_VOCAB_ABSENT) {
        *num_bytes = 0;
        return NULL;
    }
    *num_bytes = vocab->start[id + 1] - vocab->start[id];
    return vocab->blob.data ? vocab->blob.data + vocab->start[id] : "";
}

bool tri_vocab_is_hole(const tri_vocab *vocab, int32_t id)
{
    return id >= 0 && id < vocab->num && vocab->state[id] == TRI_VOCAB_ABSENT;
}

void tri_vocab_fini(tri_vocab *vocab)
{
    tri_bytes_fini(&vocab->blob);
    free(vocab->start);
    free(vocab->state);
    free(vocab->slot);
    *vocab = (tri_vocab){0};
}

/* ---- GPT-2's alphabet ---- */

/* Printable bytes stand for themselves; the other 68 are numbered from U+0100 on. */
static bool is_printable(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t tri_byte_to_char(unsigned char byte)
{
    if (is_printable(byte))
        return byte;
    if (byte <= 32)
        return 256u + byte;
    return byte == 173 ? 256 + 67 : 256u + 33 + (byte - 127u);
}

int tri_char_to_byte(uint32_t c)
{
    if (c < 256)
        return is_printable(c) ? (int)c : -1;
    if (c < 256 + 33)
        return (int)(c - 256);
    if (c < 256 + 67)
        return (int)(c - 256 - 33 + 127);
    return c == 256 + 67 ? 173 : -1;
}

bool tri_spelling_to_bytes(const char *text, size_t num_bytes, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    while (p < end) {
        int byte = tri_char_to_byte(tri_utf8_next(&p, end));
        if (byte < 0)
            return false;
        char one = (char)byte;
        tri_bytes_add(out, &one, 1);
    }
    return true;
}
