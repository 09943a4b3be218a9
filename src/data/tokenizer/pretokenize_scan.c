/* The patterns of GPT-2, Llama 3 and Qwen as hand-written scanners. Each is equal to its regular
 * expression on valid UTF-8 (tests/data/test_tokenizer.c holds them against Oniguruma), and many
 * times faster. A word depends on nothing that stands before it. */
#include "data/tokenizer/pretokenize.h"

#include <string.h>

const char tri_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char tri_pattern_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char tri_pattern_qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { KNOWN = TRI_CLASS_LETTER | TRI_CLASS_NUMBER | TRI_CLASS_SPACE };

/* The class of the character at p < end, and where the next one begins. */
static inline unsigned class_at(const tri_unicode *u, const char *p, const char *end,
                                const char **next)
{
    unsigned char byte = (unsigned char)*p;
    if (byte < 0x80) {
        *next = p + 1;
        return u->plane0[byte] & KNOWN;
    }
    *next = p;
    return tri_unicode_class(u, tri_utf8_next_long(next, end)) & KNOWN;
}

/* The end of the run of characters of one class; 0 is everything else. */
static inline const char *run_of(const tri_unicode *u, unsigned class, const char *p,
                                 const char *end)
{
    const char *next;
    while (p < end && class_at(u, p, end, &next) == class)
        p = next;
    return p;
}

/* White space at p: all of it at the end of the text, otherwise all but the last character, which
 * belongs to the word behind it; a single one stands alone. */
static const char *space_run(const tri_unicode *u, const char *p, const char *end)
{
    const char *next, *last = p, *at = p;
    while (at < end && class_at(u, at, end, &next) == TRI_CLASS_SPACE) {
        last = at;
        at = next;
    }
    return at == end || last == p ? at : last;
}

const char *tri_scan_gpt2(const tri_unicode *u, const char *p, const char *end)
{
    const char *next;
    if (*p == '\'' && end - p >= 2) {
        char a = p[1], b = end - p >= 3 ? p[2] : 0;
        if (a == 's' || a == 't' || a == 'm' || a == 'd')
            return p + 2;
        if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
            return p + 3;
    }
    unsigned class = class_at(u, p, end, &next);
    if (*p == ' ' && next < end) {
        const char *second;
        unsigned class2 = class_at(u, next, end, &second);
        if (class2 != TRI_CLASS_SPACE)
            return run_of(u, class2, second, end);
    }
    if (class == TRI_CLASS_SPACE)
        return space_run(u, p, end);
    return run_of(u, class, next, end);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* The end of a contraction of any case at the apostrophe p, or NULL. U+017F, the long s, is an s
 * when case does not count. */
static const char *contraction(const char *p, const char *end)
{
    if (end - p < 2)
        return NULL;
    char a = lower(p[1]), b = end - p >= 3 ? lower(p[2]) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return p + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return p + 3;
    return a == '\xC5' && b == '\xBF' ? p + 3 : NULL;
}

static const char *newlines(const char *p, const char *end)
{
    while (p < end && (*p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* White space that has a line end in it goes up to its last line end. */
static const char *space_or_lines(const tri_unicode *u, const char *p, const char *end)
{
    const char *next, *after_line = NULL, *last = p, *at = p;
    while (at < end && class_at(u, at, end, &next) == TRI_CLASS_SPACE) {
        if (*at == '\r' || *at == '\n')
            after_line = next;
        last = at;
        at = next;
    }
    if (after_line)
        return after_line;
    return at == end || last == p ? at : last;
}

static inline const char *scan_modern(const tri_unicode *u, int max_digits, const char *p,
                                      const char *end)
{
    const char *next, *second, *found;
    if (*p == '\'' && (found = contraction(p, end)))
        return found;
    unsigned class = class_at(u, p, end, &next), class2 = TRI_CLASS_SPACE;
    if (class == TRI_CLASS_LETTER)
        return run_of(u, TRI_CLASS_LETTER, next, end);
    if (class == TRI_CLASS_NUMBER) {
        for (int i = 1; i < max_digits && next < end; i++) {
            if (class_at(u, next, end, &second) != TRI_CLASS_NUMBER)
                break;
            next = second;
        }
        return next;
    }
    if (next < end) {
        class2 = class_at(u, next, end, &second);
        if (class2 == TRI_CLASS_LETTER && *p != '\r' && *p != '\n')
            return run_of(u, TRI_CLASS_LETTER, second, end);
    }
    if (class == 0)
        return newlines(run_of(u, 0, next, end), end);
    if (*p == ' ' && class2 == 0)
        return newlines(run_of(u, 0, second, end), end);
    return space_or_lines(u, p, end);
}

const char *tri_scan_llama3(const tri_unicode *unicode, const char *p, const char *end)
{
    return scan_modern(unicode, 3, p, end);
}

const char *tri_scan_qwen(const tri_unicode *unicode, const char *p, const char *end)
{
    return scan_modern(unicode, 1, p, end);
}

tri_scan_fn tri_scan_find(const char *pattern, size_t num_bytes, const char **name)
{
    static const struct {
        const char *pattern, *name;
        tri_scan_fn scan;
    } known[] = {
        {tri_pattern_gpt2, "gpt2", tri_scan_gpt2},
        {tri_pattern_llama3, "llama3", tri_scan_llama3},
        {tri_pattern_qwen, "qwen", tri_scan_qwen},
    };
    for (int i = 0; i < 3; i++)
        if (strlen(known[i].pattern) == num_bytes &&
            memcmp(known[i].pattern, pattern, num_bytes) == 0) {
            *name = known[i].name;
            return known[i].scan;
        }
    return NULL;
}
