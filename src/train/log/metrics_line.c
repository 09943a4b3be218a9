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

/* A list of numbers. */
static const char *read_list(const char *at)
{
    bool is_whole;
    int64_t whole;
    double real;
    if (*++at == ']')
        return at + 1;
    for (;; at++) {
        at = strncmp(at, "null", 4) == 0 ? at + 4 : read_number(at, &is_whole, &whole, &real);
        if (!at || (*at != ',' && *at != ']'))
            return NULL;
        if (*at == ']')
            return at + 1;
    }
}

static const char *read_value(const char *at, tri_metrics_member *member)
{
    const char *from = at;
    member->is_whole = false;
    member->whole = 0;
    member->real = NAN;
    if (*at == '"') {
        member->kind = TRI_MEMBER_TEXT;
        at = read_text(at + 1);
        return at ? at + 1 : NULL;
    }
    if (*at == '[') {
        member->kind = TRI_MEMBER_LIST;
        member->text = at;
        at = read_list(at);
        member->text_length = at ? (size_t)(at - from) : 0;
        return at;
    }
    member->kind = TRI_MEMBER_NULL;
    if (strncmp(at, "null", 4) == 0)
        return at + 4;
    member->kind = TRI_MEMBER_NUMBER;
    return read_number(at, &member->is_whole, &member->whole, &member->real);
}

enum { MOST_MEMBERS = 64 };

/* The text ends in a newline, at which whatever reads it stops. Returns how many members there are;
 * -1: it takes the other way. */
static int read_quick(const char *at, tri_metrics_member members[MOST_MEMBERS])
{
    int num = 0;
    if (*at != '{')
        return -1;
    do {
        const char *name = ++at + 1, *end = *at == '"' ? read_text(name) : NULL;
        if (!end || end[1] != ':' || num == MOST_MEMBERS)
            return -1;
        tri_metrics_member *member = &members[num++];
        member->name = name;
        member->name_length = (size_t)(end - name);
        if (!(at = read_value(end + 2, member)))
            return -1;
    } while (*at == ',');
    return at[0] == '}' && at[1] == '\n' ? num : -1;
}

/* ---- any way ---- */

static tri_metrics_member member_of(const char *name, const json_t *value)
{
    char *list = json_is_array(value) ? json_dumps(value, JSON_COMPACT) : NULL;
    return (tri_metrics_member){
        .name = name,
        .name_length = strlen(name),
        .kind = json_is_number(value) ? TRI_MEMBER_NUMBER
                : json_is_null(value) ? TRI_MEMBER_NULL
                : list                ? TRI_MEMBER_LIST
                                      : TRI_MEMBER_TEXT,
        .is_whole = json_is_integer(value),
        .whole = json_integer_value(value),
        .real = json_is_number(value) ? json_number_value(value) : (double)NAN,
        .text = list,
        .text_length = list ? strlen(list) : 0,
    };
}

static tr_status visit_json(const char *text, size_t num_bytes, tri_metrics_visit_members visit,
                            void *context, tr_error *err)
{
    json_t *object = NULL, *value;
    const char *name;
    if (tri_json_load("metrics.jsonl", text, num_bytes, 0, &object, NULL, err) == TR_ERROR_RUNTIME)
        return TR_ERROR_RUNTIME;
    size_t num = 0, most = json_object_size(object);
    tri_metrics_member *members = calloc(most + 1, sizeof *members);
    json_object_foreach(object, name, value)
    {
        if (members && num < most)
            members[num++] = member_of(name, value);
    }
    if (members && object)
        visit(context, members, num);
    for (size_t i = 0; i < num; i++)
        free((char *)(uintptr_t)members[i].text);
    bool failed = !members;
    free(members);
    json_decref(object);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a line of metrics.jsonl")
                  : TR_OK;
}

tr_status tri_metrics_members(const char *text, size_t num_bytes, tri_metrics_visit_members visit,
                              void *context, tr_error *err)
{
    tri_metrics_member members[MOST_MEMBERS];
    bool ends = num_bytes > 0 && memchr(text, '\n', num_bytes) == text + num_bytes - 1;
    int num = ends ? read_quick(text, members) : -1;
    if (num < 0)
        return visit_json(text, num_bytes, visit, context, err);
    visit(context, members, (size_t)num);
    return TR_OK;
}

static void take_members(void *context, const tri_metrics_member *given, size_t num)
{
    for (size_t k = 0; k < num; k++)
        for (int i = 0; i < NUM_MEMBERS; i++)
            if (members[i].length == given[k].name_length &&
                memcmp(members[i].name, given[k].name, given[k].name_length) == 0)
                set_member(context, i, given[k].is_whole, given[k].whole, given[k].real);
}

tr_status tri_metrics_line_read(const char *text, size_t num_bytes, tri_metrics_line *line,
                                bool *ours, tr_error *err)
{
    *ours = false;
    set_nothing(line);
    TRI_TRY(tri_metrics_members(text, num_bytes, take_members, line, err));
    if (line->step >= 0 && line->step < INT64_MAX && isnan(line->time))
        line->step++; /* version 1: no time, and steps from 0 */
    if (line->epoch < 0)
        line->epoch = 0;
    *ours = line->step > 0;
    return TR_OK;
}
