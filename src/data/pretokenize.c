/* The steps of a pre-tokenizer, each taking a piece of text and handing smaller ones to the next.
 */
#include "data/pretokenize.h"

#include <stdlib.h>
#include <string.h>

static void step(tri_pretokenize *run, int at, const char *text, size_t num_bytes);

static inline void hand_on(tri_pretokenize *run, int at, const char *begin, const char *end)
{
    if (end == begin)
        return;
    step(run, at + 1, begin, (size_t)(end - begin));
    run->first = false; /* what follows the first piece of a text is not its beginning */
}

static void cut_scan(tri_pretokenize *run, int at, const char *text, size_t num_bytes)
{
    const tri_cut *cut = &run->pretokenizer->cut[at];
    const char *end = text + num_bytes;
    bool last = at + 1 == run->pretokenizer->num;
    while (text < end) {
        const char *next = cut->scan(run->unicode, text, end);
        if (last)
            run->word(run->context, text, (size_t)(next - text));
        else
            hand_on(run, at, text, next);
        text = next;
    }
}

/* A cut by matches seen as a row of pieces, each a match or not. Behaviours join neighbours: what
 * is pending has not been handed on because the next piece may belong to it. */
typedef struct pieces {
    tri_pretokenize *run;
    int at;
    tri_behaviour behaviour;
    const char *pending, *pending_end; /* NULL for none */
    bool pending_is_match;
} pieces;

static void flush(pieces *p)
{
    if (p->pending)
        hand_on(p->run, p->at, p->pending, p->pending_end);
    p->pending = NULL;
}

static void piece(pieces *p, const char *begin, const char *end, bool is_match)
{
    if (begin == end)
        return;
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

static void cut_pattern(tri_pretokenize *run, int at, const char *text, size_t num_bytes)
{
    const tri_cut *cut = &run->pretokenizer->cut[at];
    pieces p = {run, at, cut->behaviour, NULL, NULL, false};
    size_t done = 0, begin, end;
    while (tri_pattern_find(cut->pattern, run->matcher, text, num_bytes, done, &begin, &end)) {
        piece(&p, text + done, text + begin, cut->invert);
        piece(&p, text + begin, text + end, !cut->invert);
        done = end;
    }
    piece(&p, text + done, text + num_bytes, cut->invert);
    flush(&p);
}

/* Cuts around every character of a class. */
static void cut_class(tri_pretokenize *run, int at, unsigned class, tri_behaviour behaviour,
                      const char *text, size_t num_bytes)
{
    pieces p = {run, at, behaviour, NULL, NULL, false};
    const char *end = text + num_bytes, *here = text, *plain = text;
    while (here < end) {
        const char *begin = here;
        uint32_t c = tri_utf8_next(&here, end);
        if (c >= TRI_BROKEN || !(tri_unicode_class(run->unicode, c) & class))
            continue;
        piece(&p, plain, begin, false);
        piece(&p, begin, here, true);
        plain = here;
    }
    piece(&p, plain, end, false);
    flush(&p);
}

static void cut_metaspace(tri_pretokenize *run, int at, const char *text, size_t num_bytes)
{
    const tri_cut *cut = &run->pretokenizer->cut[at];
    tri_bytes *out = &run->buffer[at];
    size_t length = (size_t)cut->text_bytes;
    out->num = 0;
    for (size_t i = 0; i < num_bytes;) {
        const char *space = memchr(text + i, ' ', num_bytes - i);
        size_t until = space ? (size_t)(space - text) : num_bytes;
        tri_bytes_add(out, text + i, until - i);
        if (space)
            tri_bytes_add(out, cut->text, length);
        i = until + (space != NULL);
    }
    bool has = out->num >= length && memcmp(out->data, cut->text, length) == 0;
    bool wanted =
        cut->prepend == TRI_PREPEND_ALWAYS || (cut->prepend == TRI_PREPEND_FIRST && run->first);
    if (wanted && !has && !out->failed) {
        tri_bytes_add(out, cut->text, length);
        if (!out->failed) {
            memmove(out->data + length, out->data, out->num - length);
            memcpy(out->data, cut->text, length);
        }
    }
    if (out->failed || out->num == 0)
        return;
    const char *begin = out->data, *end = out->data + out->num;
    while (cut->split && begin < end) {
        const char *next = tri_find(begin + 1, (size_t)(end - begin - 1), cut->text, length);
        if (!next)
            break;
        hand_on(run, at, begin, next);
        begin = next;
    }
    hand_on(run, at, begin, end);
}

static void cut_prefix(tri_pretokenize *run, int at, const char *text, size_t num_bytes)
{
    tri_bytes *out = &run->buffer[at];
    if (num_bytes > 0 && text[0] == ' ') {
        hand_on(run, at, text, text + num_bytes);
        return;
    }
    out->num = 0;
    tri_bytes_add(out, " ", 1);
    tri_bytes_add(out, text, num_bytes);
    if (!out->failed)
        hand_on(run, at, out->data, out->data + out->num);
}

static void step(tri_pretokenize *run, int at, const char *text, size_t num_bytes)
{
    if (at == run->pretokenizer->num) {
        run->word(run->context, text, num_bytes);
        return;
    }
    const tri_cut *cut = &run->pretokenizer->cut[at];
    switch (cut->kind) {
    case TRI_CUT_SCAN:
        cut_scan(run, at, text, num_bytes);
        break;
    case TRI_CUT_PATTERN:
        cut_pattern(run, at, text, num_bytes);
        break;
    case TRI_CUT_PREFIX:
        cut_prefix(run, at, text, num_bytes);
        break;
    case TRI_CUT_SPACES:
        cut_class(run, at, TRI_CLASS_SPACE, TRI_REMOVED, text, num_bytes);
        break;
    case TRI_CUT_PUNCTUATION:
        cut_class(run, at, TRI_CLASS_PUNCTUATION, cut->behaviour, text, num_bytes);
        break;
    case TRI_CUT_DIGITS:
        cut_class(run, at, TRI_CLASS_NUMBER, cut->individual ? TRI_ISOLATED : TRI_CONTIGUOUS, text,
                  num_bytes);
        break;
    case TRI_CUT_METASPACE:
        cut_metaspace(run, at, text, num_bytes);
        break;
    }
}

void tri_pretokenize_run(tri_pretokenize *run, const char *text, size_t num_bytes)
{
    if (num_bytes > 0)
        step(run, 0, text, num_bytes);
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
            return true;
        case TRI_CUT_METASPACE:
            return pretokenizer->cut[i].split;
        case TRI_CUT_PATTERN:
            return false;
        case TRI_CUT_PREFIX: /* what is cut off begins with a space already */
        case TRI_CUT_PUNCTUATION:
        case TRI_CUT_DIGITS:
            break;
        }
    return false;
}
