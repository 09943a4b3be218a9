/* A pattern is written for the Oniguruma that Hugging Face tokenizers has in it, whose tables are
 * those of Unicode 16. The library of this system may have older ones, down to Unicode 14. Here
 * each name of a set of characters is joined by what that set has gained since, so that both find
 * the same; in a newer library these additions add nothing. What cannot be put right this way is
 * refused by name.
 *
 * Three things of Oniguruma matter here:
 *   1. A property outside brackets is not folded under (?i), one inside brackets is.
 *   2. \w and \p{Word} outside brackets, and \b, count six Latin-1 numbers as word characters;
 * inside they do not.
 *   3. [:punct:] became \p{P} and \p{S} in 6.9.9; \p{Punct} stayed \p{P}. */
#include "data/tokenizer/pretokenize.h"
#include "data/unicode/pattern_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16, MOST_TRANSLATED = 1 << 22, FOLD = 1, EXTENDED = 2 };

static const char latin_words[] = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

typedef struct translator {
    const char *begin, *p, *end;
    tri_bytes *out;
    tri_bytes groups; /* the flags outside each group that is open */
    unsigned flags;   /* FOLD, EXTENDED */
    tr_error *err;
} translator;

static tr_status refuse(const translator *t, const char *what, size_t num_bytes)
{
    return tri_fail(t->err, TR_ERROR_INPUT,
                    "the pattern \"%.200s\" has %.*s in it, which is not supported", t->begin,
                    (int)(num_bytes < 60 ? num_bytes : 60), what);
}

static void put(translator *t, const char *text)
{
    tri_bytes_add(t->out, text, strlen(text));
}

/* ---- sets of characters ---- */

static bool is_taken_away(int bit, const tri_property_run *run)
{
    return bit == TRI_PROPERTY_C || bit == TRI_PROPERTY_CN ||
           (bit == TRI_PROPERTY_MN && (run->bits & UINT64_C(1) << TRI_PROPERTY_MC));
}

/* What the set has gained (or lost), as ranges for brackets. */
static void put_runs(translator *t, int bit, bool lost)
{
    for (int i = 0; i < TRI_NUM_PROPERTY_RUNS; i++) {
        const tri_property_run *run = &tri_property_runs[i];
        uint32_t first = run->first;
        if (!(run->bits & UINT64_C(1) << bit) || is_taken_away(bit, run) != lost)
            continue;
        while (i + 1 < TRI_NUM_PROPERTY_RUNS && run[1].first == run->last + 1 &&
               (run[1].bits & UINT64_C(1) << bit) && is_taken_away(bit, run + 1) == lost) {
            run++;
            i++;
        }
        char text[40];
        snprintf(text, sizeof text, first < run->last ? "\\x{%X}-\\x{%X}" : "\\x{%X}",
                 (unsigned)first, (unsigned)run->last);
        put(t, text);
    }
}

static bool has_lost(int bit)
{
    return bit == TRI_PROPERTY_C || bit == TRI_PROPERTY_CN || bit == TRI_PROPERTY_MN;
}

/* A set: `name` as Oniguruma has it, and its bit. more: ranges that belong to it besides. */
typedef struct set {
    const char *name;
    size_t num_bytes;
    int bit;
    bool negated;
    const char *more;
} set;

static void put_brackets(translator *t, const set *s)
{
    put(t, s->negated ? "[^" : "[");
    put_runs(t, s->bit, false);
    if (s->more)
        put(t, s->more);
    tri_bytes_add(t->out, s->name, s->num_bytes);
    if (has_lost(s->bit)) {
        put(t, "&&[^");
        put_runs(t, s->bit, true);
        put(t, "]");
    }
    put(t, "]");
}

static void put_outside(translator *t, const set *s)
{
    put(t, t->flags & FOLD ? "(?-i:" : "");
    put_brackets(t, s);
    put(t, t->flags & FOLD ? ")" : "");
}

static tr_status put_inside(translator *t, const set *s, const char *from, bool after_dash)
{
    size_t num_bytes = (size_t)(t->p - from);
    bool has_case =
        s->bit == TRI_PROPERTY_LU || s->bit == TRI_PROPERTY_LL || s->bit == TRI_PROPERTY_LOWER;
    if (after_dash || (has_case && (t->flags & FOLD)))
        return refuse(t, from, num_bytes);
    bool nested = s->negated || has_lost(s->bit);
    if (nested && t->p + 1 < t->end && *t->p == '-' && t->p[1] != ']')
        return refuse(t, from, num_bytes);
    if (nested) {
        put_brackets(t, s);
        return TR_OK;
    }
    put_runs(t, s->bit, false); /* before it: what follows meets the same neighbour as ever */
    tri_bytes_add(t->out, s->name, s->num_bytes);
    return TR_OK;
}

/* ---- names ---- */

static int find_property(const char *name)
{
    for (int i = 0; i < TRI_NUM_PROPERTY_NAMES; i++)
        if (strcmp(tri_property_names[i].name, name) == 0)
            return tri_property_names[i].bit;
    return -1;
}

/* p stands behind \p or \P. bit is -1 for a property that has not changed. */
static tr_status read_property(translator *t, const char *from, set *s)
{
    char name[64];
    size_t num = 0;
    const char *close =
        t->p < t->end && *t->p == '{' ? memchr(t->p, '}', (size_t)(t->end - t->p)) : NULL;
    if (!close)
        return refuse(t, from, (size_t)(t->p - from));
    const char *p = t->p + 1;
    s->negated = from[1] == 'P';
    if (*p == '^') {
        s->negated = !s->negated;
        p++;
    }
    s->bit = -1;
    t->p = close + 1;
    for (; p < close; p++)
        if (*p != ' ' && *p != '-' && *p != '_' && num + 1 < sizeof name)
            name[num++] = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
    name[num] = 0;
    for (int i = 0; i < TRI_NUM_PROPERTY_REFUSED; i++)
        if (strcmp(name, tri_property_refused[i]) == 0)
            return refuse(t, from, (size_t)(t->p - from));
    s->bit = find_property(name);
    return TR_OK;
}

/* ---- escapes ---- */

static void put_boundary(translator *t, bool inside_word)
{
    const set word = {"\\w", 2, TRI_PROPERTY_WORD, false, latin_words};
    static const char *const before[2][2] = {{"(?<=", "(?!"}, {"(?<!", "(?="}};
    put(t, "(?-i:");
    for (int i = 0; i < 2; i++) {
        put(t, i ? "|" : "");
        put(t, before[i][0]);
        put_brackets(t, &word);
        put(t, ")");
        put(t, before[inside_word ? 1 - i : i][1]);
        put_brackets(t, &word);
        put(t, ")");
    }
    put(t, ")");
}

/* Control characters by name are refused, and outside brackets what depends on tables of grapheme
 * clusters or on where a search began. */
static bool is_supported_escape(char c, bool in_class)
{
    return !strchr(in_class ? "cCM" : "cCMXyYG", c) || c == 0;
}

/* An escape at p. In a class, after_dash says that a range is open. */
static tr_status escape(translator *t, bool in_class, bool after_dash)
{
    const char *from = t->p;
    if (t->end - t->p < 2)
        return refuse(t, "a backslash at its end", 22);
    char c = t->p[1];
    t->p += 2;
    set s = {from, 2, -1, c == 'W' || c == 'D', NULL};
    char plain[80];
    if (!is_supported_escape(c, in_class))
        return refuse(t, from, 2);
    if (c == 'p' || c == 'P') {
        TRI_TRY(read_property(t, from, &s));
        s.name = from;
        s.num_bytes = (size_t)(t->p - from);
        if (s.bit >= 0 && s.negated) { /* the set itself: brackets negate it */
            const char *name = from[3] == '^' ? from + 4 : from + 3;
            s.num_bytes = (size_t)snprintf(plain, sizeof plain, "\\p{%.*s",
                                           (int)(t->p - name < 70 ? t->p - name : 70), name);
            s.name = plain;
        }
        s.more = s.bit == TRI_PROPERTY_WORD && !in_class ? latin_words : NULL;
    } else if (c == 'w' || c == 'W') {
        s.bit = TRI_PROPERTY_WORD;
        s.name = "\\w";
        s.more = in_class ? NULL : latin_words;
    } else if (c == 'd' || c == 'D') {
        s.bit = TRI_PROPERTY_ND;
        s.name = "\\d";
    } else if (c == 'R' && !in_class) { /* as it is defined: 6.9.8 loses matches of \R* */
        put(t, "(?>\\x0D\\x0A|[\\x0A-\\x0D\\x{85}\\x{2028}\\x{2029}])");
        return TR_OK;
    } else if ((c == 'b' || c == 'B') && !in_class) {
        put_boundary(t, c == 'B');
        return TR_OK;
    }
    if (s.bit < 0)
        tri_bytes_add(t->out, from, (size_t)(t->p - from));
    else if (in_class)
        return put_inside(t, &s, from, after_dash);
    else
        put_outside(t, &s);
    return TR_OK;
}

/* ---- brackets ---- */

/* [:name:] at p; false when it is something else. */
static tr_status posix(translator *t, bool *found)
{
    static const char *const names[] = {"alnum", "alpha", "ascii", "blank", "cntrl",
                                        "digit", "graph", "lower", "print", "punct",
                                        "space", "upper", "word",  "xdigit"};
    const char *from = t->p, *p = t->p + 2;
    bool negated = p < t->end && *p == '^';
    p += negated;
    *found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t num = strlen(names[i]);
        if ((size_t)(t->end - p) < num + 2 || memcmp(p, names[i], num) != 0 ||
            memcmp(p + num, ":]", 2) != 0)
            continue;
        *found = true;
        t->p = p + num + 2;
        char plain[16];
        snprintf(plain, sizeof plain, "[:%s:]", names[i]);
        set s = {plain, strlen(plain), find_property(names[i]), negated, NULL};
        if (strcmp(names[i], "punct") == 0) {
            put(t, negated ? "[^" : "");
            put_runs(t, TRI_PROPERTY_P, false);
            put_runs(t, TRI_PROPERTY_S, false);
            put(t, negated ? "\\p{P}\\p{S}]" : "\\p{P}\\p{S}");
            return TR_OK;
        }
        if (s.bit >= 0)
            return put_inside(t, &s, from, false);
        tri_bytes_add(t->out, from, (size_t)(t->p - from));
        return TR_OK;
    }
    return TR_OK;
}

/* Characters whose other case an older library does not know. */
static bool has_late_case(uint32_t first, uint32_t last)
{
    static const uint32_t late[][2] = {{0x19B, 0x19B},   {0x264, 0x264},   {0x1C89, 0x1C8A},
                                       {0xA7CB, 0xA7CD}, {0xA7DA, 0xA7DC}, {0x10D50, 0x10D85}};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (first <= late[i][1] && last >= late[i][0])
            return true;
    return false;
}

/* The character that a piece of a pattern stands for: itself, \xHH, \x{H...} or \uHHHH; 0 for what
 * has no late case at any rate. */
static uint32_t value_of(const char *from, const char *end)
{
    if (*from != '\\')
        return tri_utf8_next(&from, end);
    if (end - from < 3 || (from[1] != 'x' && from[1] != 'u'))
        return 0;
    char digits[16] = "";
    from += from[2] == '{' ? 3 : 2;
    size_t num = (size_t)(end - from) < sizeof digits ? (size_t)(end - from) : sizeof digits - 1;
    memcpy(digits, from, num);
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* One piece: a character, or an escape with its digits. */
static size_t piece_bytes(const translator *t)
{
    const char *p = t->p;
    if (*p != '\\') {
        tri_utf8_next(&p, t->end);
        return (size_t)(p - t->p);
    }
    size_t left = (size_t)(t->end - p), num = 2;
    if (left < 2)
        return left;
    size_t most = p[1] == 'u' ? 6 : 4;
    if (left >= 3 && p[1] == 'x' && p[2] == '{') {
        const char *close = memchr(p, '}', left);
        return close ? (size_t)(close - p) + 1 : left;
    }
    while ((p[1] == 'x' || p[1] == 'u') && num < most && num < left &&
           strchr("0123456789abcdefABCDEF", p[num]) && p[num])
        num++;
    return num;
}

static tr_status class_piece(translator *t, uint32_t *last, bool after_dash)
{
    const char *from = t->p;
    size_t num = piece_bytes(t);
    uint32_t value = value_of(from, from + num), first = after_dash ? *last : value;
    if ((t->flags & FOLD) && has_late_case(first, value))
        return refuse(t, from, num);
    tri_bytes_add(t->out, from, num);
    t->p += num;
    *last = value;
    return TR_OK;
}

/* Brackets at p, nested ones too: depth counts those that are open. */
static tr_status brackets(translator *t)
{
    int depth = 0;
    bool first = false, dash = false; /* first: nothing but ^ stands behind [ */
    uint32_t last = 0;
    do {
        if (t->p >= t->end)
            return refuse(t, "brackets without an end", 23);
        bool after_dash = dash, was_first = first, found = false;
        char c = *t->p;
        dash = first = false;
        if (c == '[' && depth > 0 && t->p + 1 < t->end && t->p[1] == ':')
            TRI_TRY(posix(t, &found));
        if (found)
            continue;
        if (c == '[' || (c == ']' && !was_first)) {
            depth += c == '[' ? 1 : -1;
            first = c == '[';
            t->p++;
            tri_bytes_add(t->out, &c, 1);
            if (first && t->p < t->end && *t->p == '^')
                tri_bytes_add(t->out, t->p++, 1);
        } else if (c == '\\' && t->p + 1 < t->end && !strchr("xu", t->p[1])) {
            TRI_TRY(escape(t, true, after_dash));
        } else if (c == '-' && !was_first && !after_dash) {
            dash = true;
            tri_bytes_add(t->out, t->p++, 1);
        } else {
            TRI_TRY(class_piece(t, &last, after_dash));
        }
    } while (depth > 0);
    return TR_OK;
}

/* ---- groups ---- */

/* (?imx-imx) or (?imx-imx: at p. */
static tr_status options(translator *t)
{
    const char *from = t->p;
    unsigned flags = t->flags;
    bool on = true;
    for (t->p += 2; t->p < t->end && *t->p != ')' && *t->p != ':'; t->p++) {
        unsigned flag = *t->p == 'i' ? FOLD : *t->p == 'x' ? EXTENDED : 0;
        if (*t->p == '-')
            on = false;
        else if (flag == 0 && *t->p != 'm')
            return refuse(t, from, (size_t)(t->p - from) + 1);
        flags = on ? flags | flag : flags & ~flag;
    }
    if (t->p >= t->end)
        return refuse(t, from, (size_t)(t->p - from));
    char outside = (char)t->flags;
    if (*t->p == ':')
        tri_bytes_add(&t->groups, &outside, 1);
    t->flags = flags;
    t->p++;
    tri_bytes_add(t->out, from, (size_t)(t->p - from));
    return TR_OK;
}

static tr_status group(translator *t)
{
    size_t left = (size_t)(t->end - t->p);
    char outside = (char)t->flags;
    if (left >= 2 && t->p[1] == '*')
        return refuse(t, t->p, left < 12 ? left : 12);
    if (left >= 3 && t->p[1] == '?') {
        char c = t->p[2];
        if (c == '#') {
            while (t->p < t->end && *t->p != ')')
                t->p += *t->p == '\\' && t->p + 1 < t->end ? 2 : 1;
            t->p += t->p < t->end;
            return TR_OK; /* a comment says nothing */
        }
        if (c == '{')
            return refuse(t, t->p, left < 12 ? left : 12);
        if (c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
            return options(t);
        tri_bytes_add(&t->groups, &outside, 1);
        tri_bytes_add(t->out, t->p, 3);
        t->p += 3;
        if (c == '(') /* a condition is a group of its own */
            tri_bytes_add(&t->groups, &outside, 1);
        return TR_OK;
    }
    tri_bytes_add(&t->groups, &outside, 1);
    tri_bytes_add(t->out, t->p++, 1);
    return TR_OK;
}

static tr_status translate(translator *t)
{
    while (t->p < t->end) {
        char c = *t->p;
        if (c == '\\' && (t->p + 1 == t->end || !strchr("xu", t->p[1]))) {
            TRI_TRY(escape(t, false, false));
        } else if (c == '[') {
            TRI_TRY(brackets(t));
        } else if (c == '(') {
            TRI_TRY(group(t));
        } else if (c == ')') {
            if (t->groups.num > 0)
                t->flags = (unsigned char)t->groups.data[--t->groups.num];
            tri_bytes_add(t->out, t->p++, 1);
        } else if (c == '#' && (t->flags & EXTENDED)) {
            while (t->p < t->end && *t->p != '\n')
                t->p++;
        } else {
            uint32_t last = 0;
            TRI_TRY(class_piece(t, &last, false));
        }
        if (t->out->num > MOST_TRANSLATED)
            return tri_fail(t->err, TR_ERROR_INPUT, "the pattern \"%.200s\" is too long", t->begin);
    }
    return TR_OK;
}

tr_status tri_pattern_translate(const char *text, size_t num_bytes, tri_bytes *out, tr_error *err)
{
    translator t = {.begin = text, .p = text, .end = text + num_bytes, .out = out, .err = err};
    if (num_bytes > MOST_BYTES)
        return tri_fail(err, TR_ERROR_INPUT, "the pattern \"%.200s\" is longer than %d bytes", text,
                        MOST_BYTES);
    tr_status status = translate(&t);
    if (status == TR_OK && (out->failed || t.groups.failed))
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    tri_bytes_fini(&t.groups);
    return status;
}
