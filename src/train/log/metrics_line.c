/* One line of metrics.jsonl.
 *
 * Lists and curves read millions of them, so there is a quick way for what our own writer makes:
 * one flat object of plain texts and numbers. Whatever else a line is, base/json.h reads it; both
 * ways give the same (tests/fuzz/fuzz_metrics_line.c). */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/log/metrics_read.h"

static const struct {
    const char *name;
    size_t length, at;
    bool count; /* a whole number from 0 on; -1 where there is none */
} members[] = {
#define MEMBER(name, count)                                                                        \
    {                                                                                              \
#name, sizeof #name - 1, offsetof(tri_metrics_line, name), count                           \
    }
    MEMBER(step, true),     MEMBER(tokens, true),        MEMBER(epoch, true),
    MEMBER(loss, false),    MEMBER(grad_norm, false),    MEMBER(lr, false),
    MEMBER(step_ms, false), MEMBER(tokens_per_s, false), MEMBER(eval_loss, false),
    MEMBER(time, false),
#undef MEMBER
};
enum { NUM_MEMBERS = sizeof members / sizeof *members };

static void set_member(tri_metrics_line *line, int which, bool is_whole, int64_t whole, double real)
{
    int64_t count = is_whole && whole >= 0 ? whole : -1;
    if (members[which].count)
        memcpy((char *)line + members[which].at, &count, sizeof count);
    else
        memcpy((char *)line + members[which].at, &real, sizeof real);
}

static void set_nothing(tri_metrics_line *line)
{
    for (int i = 0; i < NUM_MEMBERS; i++)
        set_member(line, i, false, 0, NAN);
}

/* ---- the quick way ---- */

/* Past the digits; they are added to *value as long as it holds them, and counted. */
static const char *read_digits(const char *at, uint64_t *value, int *num)
{
    for (; *at >= '0' && *at <= '9'; at++, ++*num)
        if (*num < 18)
            *value = *value * 10 + (uint64_t)(*at - '0');
    return at;
}

/* A number as JSON has it. NULL: it is none, or too long for here. */
static const char *read_number(const char *at, bool *is_whole, int64_t *whole, double *real)
{
    static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *from = at;
    uint64_t value = 0, power = 0;
    int digits = 0, before = 0, num_power = 0;
    bool minus = *at == '-', less = false;
    at += minus;
    bool zero = *at == '0';
    at = read_digits(at, &value, &digits);
    before = digits;
    *is_whole = *at != '.' && *at != 'e' && *at != 'E';
    if (digits == 0 || (zero && digits > 1))
        return NULL;
    if (*at == '.' && (at = read_digits(at + 1, &value, &digits)) && digits == before)
        return NULL;
    if (*at == 'e' || *at == 'E') {
        less = *++at == '-';
        at = read_digits(at + (*at == '-' || *at == '+'), &power, &num_power);
        if (num_power == 0 || num_power > 3)
            return NULL;
    }
    if (digits > 18)
        return NULL;
    *whole = minus ? -(int64_t)value : (int64_t)value;
    int exponent = (less ? -(int)power : (int)power) - (digits - before);
    /* Both factors are exact, so one rounding is all there is. */
    if (value <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22)
        *real = exponent < 0 ? (double)value / tens[-exponent] : (double)value * tens[exponent];
    else
        *real = fabs(strtod(from, NULL));
    *real = minus ? -*real : *real;
    return isfinite(*real) ? at : NULL;
}

/* The end of a text without escapes and other letters than ASCII's, or NULL. */
static const char *read_text(const char *at)
{
    while (*at >= ' ' && *at <= '~' && *at != '"' && *at != '\\')
        at++;
    return *at == '"' ? at : NULL;
}

static const char *read_value(const char *at, bool *is_whole, int64_t *whole, double *real)
{
    *is_whole = false;
    *real = NAN;
    if (*at == '"') {
        at = read_text(at + 1);
        return at ? at + 1 : NULL;
    }
    if (strncmp(at, "null", 4) == 0)
        return at + 4;
    return read_number(at, is_whole, whole, real);
}

/* The text ends in a newline, at which whatever reads it stops. False: it takes the other way. */
static bool read_quick(const char *at, tri_metrics_line *line)
{
    if (*at != '{')
        return false;
    do {
        const char *name = ++at + 1, *end = *at == '"' ? read_text(name) : NULL;
        bool is_whole;
        int64_t whole = 0;
        double real;
        if (!end || end[1] != ':' || !(at = read_value(end + 2, &is_whole, &whole, &real)))
            return false;
        for (int i = 0; i < NUM_MEMBERS; i++)
            if (members[i].length == (size_t)(end - name) &&
                memcmp(members[i].name, name, members[i].length) == 0)
                set_member(line, i, is_whole, whole, real);
    } while (*at == ',');
    return at[0] == '}' && at[1] == '\n';
}

/* ---- any way ---- */

tr_status tri_metrics_line_read(const char *text, size_t num_bytes, tri_metrics_line *line,
                                bool *ours, tr_error *err)
{
    json_t *object = NULL;
    *ours = false;
    set_nothing(line);
    bool quick = num_bytes > 0 && memchr(text, '\n', num_bytes) == text + num_bytes - 1 &&
                 read_quick(text, line);
    if (!quick &&
        tri_json_load("metrics.jsonl", text, num_bytes, 0, &object, NULL, err) == TR_ERROR_RUNTIME)
        return TR_ERROR_RUNTIME;
    for (int i = 0; i < NUM_MEMBERS && !quick; i++) {
        const json_t *value = json_object_get(object, members[i].name);
        set_member(line, i, json_is_integer(value), json_integer_value(value),
                   json_is_number(value) ? json_number_value(value) : NAN);
    }
    json_decref(object);
    if (line->step >= 0 && line->step < INT64_MAX && isnan(line->time))
        line->step++; /* version 1: no time, and steps from 0 */
    if (line->epoch < 0)
        line->epoch = 0;
    *ours = line->step > 0;
    return TR_OK;
}
