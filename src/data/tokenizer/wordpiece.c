/* WordPiece: the longest token that begins the word, then the longest that continues it, and so
 * on; a word that cannot be finished is unknown as a whole. */
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

bool tri_wordpiece_init(tri_wordpiece *w, const tri_vocab *spelling, const bool *skip,
                        const char *prefix, size_t prefix_bytes)
{
    w->whole_id = malloc(((size_t)spelling->num + 1) * sizeof *w->whole_id);
    w->rest_id = malloc(((size_t)spelling->num + 1) * sizeof *w->rest_id);
    if (!w->whole_id || !w->rest_id)
        return false;
    for (int32_t id = 0; id < spelling->num; id++) {
        size_t num;
        const char *text = tri_vocab_text(spelling, id, &num);
        if (!text || (skip && skip[id]))
            continue;
        /* "##" alone begins a word; "##a" does too, as the text it is. */
        w->whole_id[w->whole.num] = id;
        tri_vocab_add(&w->whole, text, num);
        w->longest = num > w->longest ? num : w->longest;
        if (num > prefix_bytes && memcmp(text, prefix, prefix_bytes) == 0) {
            w->rest_id[w->rest.num] = id;
            tri_vocab_add(&w->rest, text + prefix_bytes, num - prefix_bytes);
        }
    }
    tri_vocab_index(&w->whole);
    tri_vocab_index(&w->rest);
    return !w->whole.failed && !w->rest.failed;
}

void tri_wordpiece_fini(tri_wordpiece *w)
{
    tri_vocab_fini(&w->whole);
    tri_vocab_fini(&w->rest);
    free(w->whole_id);
    free(w->rest_id);
    *w = (tri_wordpiece){0};
}

static size_t num_chars(const char *word, size_t num_bytes)
{
    size_t num = 0;
    for (const char *p = word, *end = word + num_bytes; p < end; num++)
        tri_utf8_next(&p, end);
    return num;
}

static size_t unknown(const tri_wordpiece *w, tri_bpe_scratch *s)
{
    s->symbol[0].id = w->unk;
    return 1;
}

size_t tri_wordpiece_encode(const tri_wordpiece *w, tri_bpe_scratch *s, const char *word,
                            size_t num_bytes)
{
    if (s->symbol_capacity < num_bytes + 1) {
        tri_symbol *grown = realloc(s->symbol, (num_bytes + 64) * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return 0;
        }
        s->symbol = grown;
        s->symbol_capacity = num_bytes + 64;
    }
    if (num_bytes > (size_t)w->max_chars && num_chars(word, num_bytes) > (size_t)w->max_chars)
        return unknown(w, s);
    size_t num = 0;
    for (size_t at = 0; at < num_bytes;) {
        size_t end = num_bytes - at > w->longest ? at + w->longest : num_bytes;
        int32_t id = -1;
        for (; end > at; end--) {
            if (end < num_bytes && ((unsigned char)word[end] & 0xC0) == 0x80)
                continue; /* inside a character */
            int32_t found = tri_vocab_find(at == 0 ? &w->whole : &w->rest, word + at, end - at);
            if (found >= 0) {
                id = at == 0 ? w->whole_id[found] : w->rest_id[found];
                break;
            }
        }
        if (id < 0)
            return unknown(w, s);
        s->symbol[num++].id = id;
        at = end;
    }
    return num;
}
