/* The steps of a pre-tokenizer, each taking a piece of text and handing smaller ones to the next.
 */
#include "data/tokenizer/pretokenize.h"

#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

/* A piece between two steps. */
typedef struct word_part {
    const char *text;
    size_t num_bytes;
    size_t first; /* so many of its bytes come from the first character of the user's text */
} word_part;

static void step(tri_pretokenize *run, int at, word_part p);

static inline void hand_on(tri_pretokenize *run, int at, const word_part *from, const char *begin,
                           const char *end)
{
    size_t skipped = (size_t)(begin - from->text);
    if (end > begin)
        step(run, at + 1,
             (word_part){begin, (size_t)(end - begin),
                         from->first > skipped ? from->first - skipped : 0});
}

static void cut_scan(tri_pretokenize *run, int at, word_part from)
{
    const char *text = from.text;
    const tri_word_cut *cut = &run->pretokenizer->cut[at];
    const char *end = text + from.num_bytes;
    bool last = at + 1 == run->pretokenizer->num;
    while (text < end) {
        const char *next = cut->scan(run->unicode, text, end);
        if (last)
            run->word(run->context, text, (size_t)(next - text));
        else
            hand_on(run, at, &from, text, next);
        text = next;
    }
}

/* A cut by matches seen as a row of pieces, each a match or not. Behaviours join neighbours: what
 * is pending has not been handed on because the next piece may belong to it. */
typedef struct pieces {
    tri_pretokenize *run;
    int at;
    word_part from;
    tri_behaviour behaviour;
    const char *pending, *pending_end; /* NULL for none */
    bool pending_is_match;
} pieces;

static void flush(pieces *p)
{
    if (p->pending)
        hand_on(p->run, p->at, &p->from, p->pending, p->pending_end);
    p->pending = NULL;
}

/* A match of nothing has no text to hand on, but separates its neighbours like any other. */
static void piece(pieces *p, const char *begin, const char *end, bool is_match)
{
    bool joined = false;
    if (p->pending && p->behaviour == TRI_CONTIGUOUS)
        joined = p->pending_is_match == is_match;
    else if (p->pending && p->behaviour == TRI_MERGED_WITH_PREVIOUS)
        joined = is_match && !p->pending_is_match;
    else if (p->pending && p->behaviour == TRI_MERGED_WITH_NEXT)
        joined = !is_match && p->pending_is_match;
    if (joined) {
        p->pending_end = end;
    } else {
        flush(p);
        if (p->behaviour == TRI_REMOVED && is_match)
            return;
        p->pending = begin;
        p->pending_end = end;
    }
    p->pending_is_match = is_match;
}

static void cut_pattern(tri_pretokenize *run, int at, word_part from)
{
    const tri_word_cut *cut = &run->pretokenizer->cut[at];
    const char *text = from.text;
    size_t num_bytes = from.num_bytes;
    pieces p = {run, at, from, cut->behaviour, NULL, NULL, false};
    tri_matches matches;
    size_t done = 0, begin, end;
    tri_matches_begin(&matches, cut->pattern, run->matcher, text, num_bytes);
    while (tri_matches_next(&matches, &begin, &end)) {
        if (begin > done)
            piece(&p, text + done, text + begin, cut->invert);
        piece(&p, text + begin, text + end, !cut->invert);
        done = end;
    }
    tri_matches_end(&matches);
    if (done < num_bytes)
        piece(&p, text + done, text + num_bytes, cut->invert);
    flush(&p);
}

/* Cuts around every character of a class. */
static void cut_class(tri_pretokenize *run, int at, unsigned class, tri_behaviour behaviour,
                      word_part from)
{
    pieces p = {run, at, from, behaviour, NULL, NULL, false};
    const char *end = from.text + from.num_bytes, *here = from.text, *plain = from.text;
    while (here < end) {
        const char *begin = here;
        uint32_t c = tri_utf8_next(&here, end);
        bool belongs = c < TRI_BROKEN && (tri_unicode_class(run->unicode, c) & class);
        if (!belongs && !(class == TRI_CLASS_NUMBER && tri_is_late_number(c)))
            continue;
        if (begin > plain)
            piece(&p, plain, begin, false);
        piece(&p, begin, here, true);
        plain = here;
    }
    if (end > plain)
        piece(&p, plain, end, false);
    flush(&p);
}

static void cut_words(tri_pretokenize *run, int at, word_part from)
{
    enum { KNOWN = TRI_CLASS_WORD | TRI_CLASS_SPACE };
    const char *end = from.text + from.num_bytes, *begin = from.text;
    unsigned class = TRI_CLASS_SPACE; /* of what is between begin and here */
    for (const char *here = begin; here < end;) {
        const char *before = here;
        uint32_t c = tri_utf8_next(&here, end);
        unsigned next = c >= TRI_BROKEN ? 0 : tri_unicode_class(run->unicode, c) & KNOWN;
        if (next == class)
            continue;
        if (class != TRI_CLASS_SPACE)
            hand_on(run, at, &from, begin, before);
        begin = before;
        class = next;
    }
    if (class != TRI_CLASS_SPACE)
        hand_on(run, at, &from, begin, end);
}

static void cut_bytes(tri_pretokenize *run, int at, word_part from)
{
    tri_bytes *out = &run->buffer[at];
    size_t first = 0;
    out->num = 0;
    for (size_t i = 0; i < from.num_bytes; i++) {
        tri_bytes_add_char(out, tri_byte_to_char((unsigned char)from.text[i]));
        first = i < from.first ? out->num : first;
    }
    word_part to = {out->data, out->num, first};
    if (!out->failed)
        hand_on(run, at, &to, to.text, to.text + to.num_bytes);
}

static void cut_metaspace(tri_pretokenize *run, int at, word_part from)
{
    const tri_word_cut *cut = &run->pretokenizer->cut[at];
    tri_bytes *out = &run->buffer[at];
    size_t length = (size_t)cut->text_bytes, first = 0;
    out->num = 0;
    for (size_t i = 0; i < from.num_bytes;) {
        const char *space = memchr(from.text + i, ' ', from.num_bytes - i);
        size_t until = space ? (size_t)(space - from.text) : from.num_bytes;
        if (i < from.first)
            first = out->num + (until < from.first ? until : from.first) - i;
        tri_bytes_add(out, from.text + i, until - i);
        if (space)
            tri_bytes_add(out, cut->text, length);
        if (space && until < from.first)
            first = out->num;
        i = until + (space != NULL);
    }
    bool has = out->num >= length && memcmp(out->data, cut->text, length) == 0;
    bool wanted =
        cut->prepend == TRI_PREPEND_ALWAYS || (cut->prepend == TRI_PREPEND_FIRST && first > 0);
    if (wanted && !has && !out->failed) {
        tri_bytes_add(out, cut->text, length);
        if (!out->failed) {
            memmove(out->data + length, out->data, out->num - length);
            memcpy(out->data, cut->text, length);
        }
        first += first > 0 ? length : 0;
    }
    if (out->failed || out->num == 0)
        return;
    const char *begin = out->data, *end = out->data + out->num;
    word_part to = {out->data, out->num, first};
    while (cut->split && begin < end) {
        const char *next = tri_find(begin + 1, (size_t)(end - begin - 1), cut->text, length);
        if (!next)
            break;
        hand_on(run, at, &to, begin, next);
        begin = next;
    }
    hand_on(run, at, &to, begin, end);
}

static void cut_prefix(tri_pretokenize *run, int at, word_part from)
{
    tri_bytes *out = &run->buffer[at];
    if (from.num_bytes > 0 && from.text[0] == ' ') {
        hand_on(run, at, &from, from.text, from.text + from.num_bytes);
        return;
    }
    out->num = 0;
    tri_bytes_add(out, " ", 1);
    tri_bytes_add(out, from.text, from.num_bytes);
    word_part to = {out->data, out->num, from.first > 0 ? from.first + 1 : 0};
    if (!out->failed)
        hand_on(run, at, &to, to.text, to.text + to.num_bytes);
}

static void step(tri_pretokenize *run, int at, word_part p)
{
    if (at == run->pretokenizer->num) {
        run->word(run->context, p.text, p.num_bytes);
        return;
    }
    const tri_word_cut *cut = &run->pretokenizer->cut[at];
    switch (cut->kind) {
    case TRI_CUT_SCAN:
        cut_scan(run, at, p);
        break;
    case TRI_CUT_PATTERN:
        cut_pattern(run, at, p);
        break;
    case TRI_CUT_PREFIX:
        cut_prefix(run, at, p);
        break;
    case TRI_CUT_SPACES:
        cut_class(run, at, TRI_CLASS_SPACE, TRI_REMOVED, p);
        break;
    case TRI_CUT_PUNCTUATION:
        cut_class(run, at, TRI_CLASS_PUNCTUATION, cut->behaviour, p);
        break;
    case TRI_CUT_DIGITS:
        cut_class(run, at, TRI_CLASS_NUMBER, cut->individual ? TRI_ISOLATED : TRI_CONTIGUOUS, p);
        break;
    case TRI_CUT_WORDS:
        cut_words(run, at, p);
        break;
    case TRI_CUT_BYTES:
        cut_bytes(run, at, p);
        break;
    case TRI_CUT_METASPACE:
        cut_metaspace(run, at, p);
        break;
    }
}

void tri_pretokenize_run(tri_pretokenize *run, const char *text, size_t num_bytes)
{
    if (num_bytes > 0)
        step(run, 0, (word_part){text, num_bytes, run->first});
}

void tri_pretokenizer_fini(tri_pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->num; i++)
        tri_pattern_destroy(pretokenizer->cut[i].pattern);
    *pretokenizer = (tri_pretokenizer){0};
}

bool tri_pretokenizer_cuttable(const tri_pretokenizer *pretokenizer)
{
    /* The first step that cuts must have the border; those behind it work inside pieces. */
    for (int i = 0; i < pretokenizer->num; i++)
        switch (pretokenizer->cut[i].kind) {
        case TRI_CUT_SCAN:
        case TRI_CUT_SPACES:
        case TRI_CUT_WORDS:
            return true;
        case TRI_CUT_METASPACE:
            return pretokenizer->cut[i].split;
        case TRI_CUT_PATTERN:
        case TRI_CUT_BYTES: /* no space is left of spaces */
            return false;
        case TRI_CUT_PREFIX: /* what is cut off begins with a space already */
        case TRI_CUT_PUNCTUATION:
        case TRI_CUT_DIGITS:
            break;
        }
    return false;
}
