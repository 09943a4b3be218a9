/* Normalizers: what happens to text before it is cut into words. */
#include "data/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

void tri_steps_fini(tri_steps *steps)
{
    for (int i = 0; i < steps->num; i++) {
        free(steps->step[i].text);
        tri_pattern_destroy(steps->step[i].pattern);
    }
    *steps = (tri_steps){0};
}

/* BERT's: control characters away (also those that are white space, but for the usual three), and
 * every white space a space. */
static void clean(const tri_unicode *unicode, const char *text, size_t num_bytes, bool cjk,
                  bool all_white, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    while (p < end) {
        const char *at = p;
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
}

static void remove_class(const tri_unicode *unicode, unsigned class, const char *text,
                         size_t num_bytes, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    while (p < end) {
        const char *at = p;
        uint32_t c = tri_utf8_next(&p, end);
        if (c >= TRI_BROKEN || !(tri_unicode_class(unicode, c) & class))
            tri_bytes_add(out, at, (size_t)(p - at));
    }
}

static void replace(const tri_step *step, tri_matcher *matcher, const char *text, size_t num_bytes,
                    tri_bytes *out)
{
    size_t done = 0, begin, end;
    while (tri_pattern_find(step->pattern, matcher, text, num_bytes, done, &begin, &end)) {
        tri_bytes_add(out, text + done, begin - done);
        tri_bytes_add(out, step->text, step->text_bytes);
        done = end;
    }
    tri_bytes_add(out, text + done, num_bytes - done);
}

static void strip(const tri_unicode *unicode, int sides, const char *text, size_t num_bytes,
                  tri_bytes *out)
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
}

/* BERT's four parts, one after the other; the result is in *text. */
static void bert(int parts, const tri_unicode *unicode, const char **text, size_t *num_bytes,
                 tri_bytes buffer[2], int *into)
{
    for (int part = 0; part < 4; part++) {
        tri_bytes *out = &buffer[*into];
        out->num = 0;
        if (part == 0 && (parts & (TRI_BERT_CLEAN | TRI_BERT_CJK)))
            clean(unicode, *text, *num_bytes, parts & TRI_BERT_CJK, parts & TRI_BERT_CLEAN, out);
        else if (part == 1 && (parts & TRI_BERT_ACCENTS) && !tri_is_ascii(*text, *num_bytes))
            tri_unicode_normalize(TRI_FORM_NFD, *text, *num_bytes, out);
        else if (part == 2 && (parts & TRI_BERT_ACCENTS) && !tri_is_ascii(*text, *num_bytes))
            remove_class(unicode, TRI_CLASS_NONSPACING, *text, *num_bytes, out);
        else if (part == 3 && (parts & TRI_BERT_LOWER))
            tri_unicode_lower(*text, *num_bytes, out);
        else
            continue;
        *text = out->num ? out->data : "";
        *num_bytes = out->num;
        *into = 1 - *into;
    }
}

void tri_normalize(const tri_steps *steps, const tri_unicode *unicode, const char **text,
                   size_t *num_bytes, bool first, tri_bytes buffer[2], tri_matcher *matcher)
{
    int into = 0;
    for (int i = 0; i < steps->num; i++) {
        const tri_step *step = &steps->step[i];
        tri_bytes *out = &buffer[into];
        out->num = 0;
        if (step->kind == TRI_STEP_BERT) {
            bert(step->number, unicode, text, num_bytes, buffer, &into);
            continue;
        }
        if (step->kind == TRI_STEP_FORM) {
            if (tri_is_ascii(*text, *num_bytes))
                continue;
            tri_unicode_normalize((tri_form)step->number, *text, *num_bytes, out);
        } else if (step->kind == TRI_STEP_LOWERCASE) {
            tri_unicode_lower(*text, *num_bytes, out);
        } else if (step->kind == TRI_STEP_STRIP_ACCENTS) {
            remove_class(unicode, TRI_CLASS_MARK, *text, *num_bytes, out);
        } else if (step->kind == TRI_STEP_PREPEND) {
            if (!first || *num_bytes == 0)
                continue;
            tri_bytes_add(out, step->text, step->text_bytes);
            tri_bytes_add(out, *text, *num_bytes);
        } else if (step->kind == TRI_STEP_REPLACE) {
            replace(step, matcher, *text, *num_bytes, out);
        } else {
            strip(unicode, step->number, *text, *num_bytes, out);
        }
        *text = out->num ? out->data : "";
        *num_bytes = out->num;
        into = 1 - into;
    }
}

bool tri_normalize_cuttable(const tri_steps *steps)
{
    for (int i = 0; i < steps->num; i++) {
        const tri_step *step = &steps->step[i];
        size_t num = 0;
        if (step->kind == TRI_STEP_STRIP)
            return false;
        if (step->kind != TRI_STEP_REPLACE)
            continue;
        const char *literal = tri_pattern_literal(step->pattern, &num);
        if (!literal || (num > 1 && memchr(literal, ' ', num)))
            return false;
    }
    return true;
}
