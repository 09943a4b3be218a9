#include "base/python_json.h"

#include "base/json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DIGITS = 300 }; /* a longer number is no double */

/* The text, rewritten where it must be. */
typedef struct json_rewriter {
    const char *done; /* everything before it has been copied */
    char *data;
    size_t num, capacity;
    bool failed, has_nul;
} json_rewriter;

static void add(json_rewriter *w, const char *text, size_t num)
{
    if (w->num + num > w->capacity) {
        size_t capacity = 2 * w->capacity + num + 256;
        char *grown = realloc(w->data, capacity);
        if (!grown) {
            w->failed = true;
            return;
        }
        w->data = grown;
        w->capacity = capacity;
    }
    if (num > 0)
        memcpy(w->data + w->num, text, num);
    w->num += num;
}

/* What stands between from and to becomes text. */
static void replace(json_rewriter *w, const char *from, const char *to, const char *text)
{
    add(w, w->done, (size_t)(from - w->done));
    add(w, text, strlen(text));
    w->done = to;
}

static bool starts(const char *p, const char *end, const char *with)
{
    size_t num = strlen(with);
    return (size_t)(end - p) >= num && memcmp(p, with, num) == 0;
}

/* Behind the string at p. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\' && p + 1 < end;
    return p < end ? p + 1 : end;
}

static bool is_name(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p < end && *p == ':';
}

static void rewrite_name(json_rewriter *w, const char *p, const char *end)
{
    for (; p < end; p++) {
        if (*p != '\\')
            continue;
        if (starts(p, end, "\\u0000")) {
            replace(w, p, p + 6, TRI_JSON_NUL);
            w->has_nul = true;
        }
        p++;
    }
}

static const char *number(json_rewriter *w, const char *p, const char *end)
{
    const char *from = p;
    bool whole = true;
    char digits[32];
    for (p += *p == '-'; p < end && strchr("0123456789.eE+-", *p) && *p; p++)
        whole = whole && *p >= '0' && *p <= '9';
    size_t num = (size_t)(p - from);
    if (!whole || num < 19)
        return p;
    if (num > MOST_DIGITS) {
        replace(w, from, p, *from == '-' ? "\"-Infinity\"" : "\"Infinity\"");
        return p;
    }
    snprintf(digits, sizeof digits, "%.*s", (int)num, from);
    errno = 0;
    strtoll(digits, NULL, 10);
    if (num >= sizeof digits || errno == ERANGE)
        replace(w, p, p, ".0");
    return p;
}

static void rewrite(json_rewriter *w, const char *text, const char *end)
{
    static const char *const constants[] = {"NaN", "Infinity", "-Infinity"};
    for (const char *p = text; p < end;) {
        const char *from = p;
        if (*p == '"') {
            p = skip_string(p, end);
            if (is_name(p, end))
                rewrite_name(w, from, p);
            continue;
        }
        for (int i = 0; i < 3; i++)
            if (p == from && starts(p, end, constants[i])) {
                char quoted[16];
                snprintf(quoted, sizeof quoted, "\"%s\"", constants[i]);
                p += strlen(constants[i]);
                replace(w, from, p, quoted);
            }
        if (p == from && (*p == '-' || (*p >= '0' && *p <= '9')))
            p = number(w, p, end);
        p += p == from;
    }
}

/* U+FDDE, written out or as an escape. */
static bool has_stand_in(const char *text, const char *end)
{
    for (const char *p = text; p < end; p++)
        if (starts(p, end, TRI_JSON_NUL) ||
            (end - p >= 6 && *p == '\\' && p[1] == 'u' && strncasecmp(p + 2, "fdde", 4) == 0))
            return true;
    return false;
}

static json_t *fail(json_error_t *error, const char *why)
{
    *error = (json_error_t){.line = 1};
    snprintf(error->text, sizeof error->text - 1, "%s", why);
    return NULL;
}

json_t *tri_python_json_load(const char *text, size_t num_bytes, bool *nul_names,
                             json_error_t *error)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    const char *end = text + num_bytes;
    if (nul_names)
        *nul_names = false;
    if (num_bytes == 0)
        return fail(error, "it is empty");
    json_rewriter w = {.done = text};
    json_t *json = NULL;
    tri_json_begin();
    rewrite(&w, text, end);
    if (nul_names)
        *nul_names = w.has_nul;
    if (w.has_nul && has_stand_in(text, end)) {
        fail(error, "it has names with U+0000 and the character U+FDDE");
    } else if (w.done == text) {
        json = json_loadb(text, num_bytes, flags, error);
    } else {
        add(&w, w.done, (size_t)(end - w.done));
        if (!w.failed)
            json = json_loadb(w.data, w.num, flags, error);
    }
    if (w.failed || !tri_json_built()) { /* the library may have left something out; see json.h */
        json_decref(json);
        json = NULL;
        fail(error, "out of memory");
        error->text[sizeof error->text - 1] = json_error_out_of_memory;
    }
    free(w.data);
    return json;
}
