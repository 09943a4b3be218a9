/* Normalizers: what happens to text before it is cut into words. */
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

void tri_text_steps_fini(tri_text_steps *steps)
{
    for (int i = 0; i < steps->num; i++) {
        free(steps->step[i].text);
        tri_pattern_destroy(steps->step[i].pattern);
    }
    *steps = (tri_text_steps){0};
}

/* Steps keep account of `first`, the number of bytes at the beginning that come from the first
 * character of the user's text. */

/* BERT's: control characters away (also those that are white space, but for the usual three), and
 * every white space a space. */
static size_t clean(const tri_unicode *unicode, const char *text, size_t num_bytes, bool cjk,
                    bool all_white, size_t first, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    size_t kept = 0;
    while (p < end) {
        const char *at = p;
        kept = (size_t)(p - text) <= first ? out->num : kept;
        uint32_t c = tri_utf8_next(&p, end);
        unsigned class = c >= TRI_BROKEN ? 0 : tri_unicode_class(unicode, c);
        bool usual = c == '\t' || c == '\n' || c == '\r';
        if (all_white && (c == 0 || c == 0xFFFD || ((class & TRI_CLASS_OTHER) && !usual)))
            continue;
        if (all_white && (class & TRI_CLASS_SPACE)) {
            tri_bytes_add(out, " ", 1);
            continue;
        }
        bool ideograph = cjk && tri_is_cjk(c);
        if (ideograph)
            tri_bytes_add(out, " ", 1);
        tri_bytes_add(out, at, (size_t)(p - at));
        if (ideograph)
            tri_bytes_add(out, " ", 1);
    }
    return num_bytes <= first ? out->num : kept;
}

static size_t remove_class(const tri_unicode *unicode, unsigned class, const char *text,
                           size_t num_bytes, size_t first, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    size_t kept = 0;
    while (p < end) {
        const char *at = p;
        kept = (size_t)(p - text) <= first ? out->num : kept;
        uint32_t c = tri_utf8_next(&p, end);
        if (c >= TRI_BROKEN || !(tri_unicode_class(unicode, c) & class))
            tri_bytes_add(out, at, (size_t)(p - at));
    }
    return num_bytes <= first ? out->num : kept;
}

/* What stands for several characters counts as the last of them. */
static size_t replace(const tri_text_step *step, tri_matcher *matcher, const char *text,
                      size_t num_bytes, size_t first, tri_bytes *out)
{
    tri_matches matches;
    size_t done = 0, begin, end, kept = 0;
    tri_matches_begin(&matches, step->pattern, matcher, text, num_bytes);
    while (tri_matches_next(&matches, &begin, &end)) {
        if (done < first)
            kept = out->num + (begin < first ? begin : first) - done;
        tri_bytes_add(out, text + done, begin - done);
        tri_bytes_add(out, step->text, step->text_bytes);
        const char *last = text + end; /* the character that the match ends with */
        if (end > 0)
            tri_utf8_previous(text, &last);
        if (first > 0 && (size_t)(last - text) < first)
            kept = out->num;
        done = end;
    }
    tri_matches_end(&matches);
    if (done < first)
        kept = out->num + (num_bytes < first ? num_bytes : first) - done;
    tri_bytes_add(out, text + done, num_bytes - done);
    return kept;
}

static size_t letters(const char *text, size_t num_bytes, size_t first, tri_bytes *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < num_bytes; i++) {
        tri_bytes_add_char(out, tri_byte_to_char((unsigned char)text[i]));
        kept = i < first ? out->num : kept;
    }
    return kept;
}

/* Of forms and cases: what the first character alone becomes, and no more than all. */
static size_t first_alone(const tri_text_step *step, const char *text, size_t num_bytes,
                          size_t first, size_t num_out)
{
    tri_bytes alone = {0};
    if (first > num_bytes)
        first = num_bytes;
    if (step->kind == TRI_STEP_FORM)
        tri_unicode_normalize((tri_form)step->number, text, first, &alone);
    else
        tri_unicode_lower(text, first, &alone);
    size_t kept = alone.num < num_out ? alone.num : num_out;
    tri_bytes_fini(&alone);
    return kept;
}

static size_t strip(const tri_unicode *unicode, int sides, const char *text, size_t num_bytes,
                    size_t first, tri_bytes *out)
{
    const char *begin = text, *end = text + num_bytes;
    while ((sides & 1) && begin < end) {
        const char *next = begin;
        uint32_t c = tri_utf8_next(&next, end);
        if (c >= TRI_BROKEN || !(tri_unicode_class(unicode, c) & TRI_CLASS_SPACE))
            break;
        begin = next;
    }
    while ((sides & 2) && end > begin) {
        const char *before = end;
        uint32_t c = tri_utf8_previous(begin, &before);
        if (c >= TRI_BROKEN || !(tri_unicode_class(unicode, c) & TRI_CLASS_SPACE))
            break;
        end = before;
    }
    tri_bytes_add(out, begin, (size_t)(end - begin));
    size_t gone = (size_t)(begin - text);
    return first > gone ? first - gone : 0;
}

/* BERT's four parts, one after the other; the result is in *text. */
static size_t bert(int parts, const tri_unicode *unicode, const char **text, size_t *num_bytes,
                   size_t first, tri_bytes buffer[2], int *into)
{
    static const tri_text_step nfd = {.kind = TRI_STEP_FORM, .number = TRI_FORM_NFD};
    static const tri_text_step small = {.kind = TRI_STEP_LOWERCASE};
    for (int part = 0; part < 4; part++) {
        tri_bytes *out = &buffer[*into];
        bool accents = (parts & TRI_BERT_ACCENTS) && !tri_is_ascii(*text, *num_bytes);
        out->num = 0;
        if (part == 0 && (parts & (TRI_BERT_CLEAN | TRI_BERT_CJK))) {
            first = clean(unicode, *text, *num_bytes, parts & TRI_BERT_CJK, parts & TRI_BERT_CLEAN,
                          first, out);
        } else if (part == 1 && accents) {
            tri_unicode_normalize(TRI_FORM_NFD, *text, *num_bytes, out);
            first = first ? first_alone(&nfd, *text, *num_bytes, first, out->num) : 0;
        } else if (part == 2 && accents) {
            first = remove_class(unicode, TRI_CLASS_NONSPACING, *text, *num_bytes, first, out);
        } else if (part == 3 && (parts & TRI_BERT_LOWER)) {
            tri_unicode_lower(*text, *num_bytes, out);
            first = first ? first_alone(&small, *text, *num_bytes, first, out->num) : 0;
        } else {
            continue;
        }
        *text = out->num ? out->data : "";
        *num_bytes = out->num;
        *into = 1 - *into;
    }
    return first;
}

size_t tri_normalize(const tri_text_steps *steps, const tri_unicode *unicode, const char **text,
                     size_t *num_bytes, bool prepends, bool begins, tri_bytes buffer[2],
                     tri_matcher *matcher)
{
    int into = 0;
    const char *second = *text;
    if (begins && *num_bytes > 0)
        tri_utf8_next(&second, *text + *num_bytes);
    size_t first = (size_t)(second - *text);
    for (int i = 0; i < steps->num; i++) {
        const tri_text_step *step = &steps->step[i];
        tri_bytes *out = &buffer[into];
        out->num = 0;
        if (step->kind == TRI_STEP_BERT) {
            first = bert(step->number, unicode, text, num_bytes, first, buffer, &into);
            continue;
        }
        if (step->kind == TRI_STEP_FORM || step->kind == TRI_STEP_LOWERCASE) {
            if (step->kind == TRI_STEP_LOWERCASE)
                tri_unicode_lower(*text, *num_bytes, out);
            else if (tri_is_ascii(*text, *num_bytes))
                continue;
            else
                tri_unicode_normalize((tri_form)step->number, *text, *num_bytes, out);
            first = first ? first_alone(step, *text, *num_bytes, first, out->num) : 0;
        } else if (step->kind == TRI_STEP_STRIP_ACCENTS) {
            first = remove_class(unicode, TRI_CLASS_MARK, *text, *num_bytes, first, out);
        } else if (step->kind == TRI_STEP_PREPEND) {
            if (!prepends || *num_bytes == 0)
                continue;
            tri_bytes_add(out, step->text, step->text_bytes);
            tri_bytes_add(out, *text, *num_bytes);
            first += first ? step->text_bytes : 0;
        } else if (step->kind == TRI_STEP_REPLACE) {
            first = replace(step, matcher, *text, *num_bytes, first, out);
        } else if (step->kind == TRI_STEP_LETTERS) {
            first = letters(*text, *num_bytes, first, out);
        } else {
            first = strip(unicode, step->number, *text, *num_bytes, first, out);
        }
        *text = out->num ? out->data : "";
        *num_bytes = out->num;
        into = 1 - into;
    }
    return first;
}

bool tri_normalize_cuttable(const tri_text_steps *steps)
{
    for (int i = 0; i < steps->num; i++) {
        const tri_text_step *step = &steps->step[i];
        size_t num = 0;
        if (step->kind == TRI_STEP_STRIP || step->kind == TRI_STEP_LETTERS)
            return false;
        if (step->kind != TRI_STEP_REPLACE)
            continue;
        const char *literal = tri_pattern_literal(step->pattern, &num);
        if (!literal || (num > 1 && memchr(literal, ' ', num)))
            return false;
    }
    return true;
}
