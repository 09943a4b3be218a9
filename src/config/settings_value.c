/* One value: text in, number out, and back.
 *
 * The same parser serves YAML scalars, --set and the defaults in the table, so a value means the
 * same wherever it is written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/settings/nearest.h"
#include "base/text.h"
#include "config/settings_internal.h"

enum { MAX_NUMBER = 64 }; /* characters of a number; no sensible one is longer */

void tri_setting_show(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + 4 < size && n < 60; text++)
        out[n++] = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    if (*text) {
        while (n > 0 && ((unsigned char)*text & 0xC0) == 0x80) { /* not half a character */
            text--;
            n--;
        }
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n] = 0;
}

void tri_setting_bound(double bound, char *out, size_t size)
{
    /* 1000000 reads well; with more digits people count zeros. */
    if (bound > 1e6 && fmod(bound, 1e6) == 0)
        snprintf(out, size, "%ge%d", bound / pow(10, floor(log10(bound))),
                 (int)floor(log10(bound)));
    else
        snprintf(out, size, "%.16g", bound);
}

void tri_setting_expected(const tri_setting *row, char *out, size_t size)
{
    char min[32], max[32];
    tri_setting_bound(row->min, min, sizeof min);
    tri_setting_bound(row->max, max, sizeof max);
    switch (row->type) {
    case TRI_SETTING_BOOL:
        snprintf(out, size, "true or false");
        break;
    case TRI_SETTING_INT:
        snprintf(out, size, "a whole number from %s to %s", min, max);
        break;
    case TRI_SETTING_FLOAT:
        snprintf(out, size, "a number from %s to %s", min, max);
        break;
    case TRI_SETTING_STRING:
        snprintf(out, size, "text");
        break;
    case TRI_SETTING_CHOICE:
        snprintf(out, size, "%s%s", strchr(row->choices, ',') ? "one of " : "", row->choices);
        break;
    }
}

static tr_status wrong_type(const tri_setting *row, const char *text, tr_error *err)
{
    char expected[200], shown[80], example[80] = "";
    tri_setting_expected(row, expected, sizeof expected);
    tri_setting_show(text, shown, sizeof shown);
    if (row->type == TRI_SETTING_INT || row->type == TRI_SETTING_FLOAT)
        snprintf(example, sizeof example, ", for example %s", row->fallback);
    if (!*text)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no value; expected %s%s", row->name, expected,
                        example);
    return tri_fail(err, TR_ERROR_INPUT, "%s is \"%s\"; expected %s%s", row->name, shown, expected,
                    example);
}

static tr_status out_of_range(const tri_setting *row, const char *text, tr_error *err)
{
    char min[32], max[32], shown[80];
    tri_setting_bound(row->min, min, sizeof min);
    tri_setting_bound(row->max, max, sizeof max);
    tri_setting_show(text, shown, sizeof shown);
    return tri_fail(err, TR_ERROR_INPUT, "%s is %s, out of range; it must be from %s to %s",
                    row->name, shown, min, max);
}

/* Copies text without the blanks around it and without underscores between digits. False when it
 * cannot be a number: too long, or an underscore elsewhere. */
static bool strip_number(const char *text, char out[MAX_NUMBER])
{
    static const char digits[] = "0123456789", blanks[] = " \t\r\n";
    size_t n = 0;
    text += strspn(text, blanks);
    for (size_t i = 0; text[i]; i++) {
        if (strspn(text + i, blanks) == strlen(text + i))
            break;
        if (text[i] == '_') {
            if (i == 0 || !strchr(digits, text[i - 1]) || !text[i + 1] ||
                !strchr(digits, text[i + 1]))
                return false;
            continue;
        }
        if (n + 1 >= MAX_NUMBER)
            return false;
        out[n++] = text[i];
    }
    out[n] = 0;
    return n > 0;
}

/* Is it [sign] digits [. digits] [e [sign] digits]? strtod alone would take hex, inf and nan too.
 * *whole says that there is neither a point nor a negative exponent. */
static bool is_decimal(const char *s, bool *whole)
{
    static const char digits[] = "0123456789";
    *whole = true;
    s += *s == '+' || *s == '-';
    size_t before = strspn(s, digits), after = 0;
    s += before;
    if (*s == '.') {
        *whole = false;
        after = strspn(++s, digits);
        s += after;
    }
    if (before + after == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        *whole = *whole && *s != '-';
        s += *s == '+' || *s == '-';
        size_t exponent = strspn(s, digits);
        if (exponent == 0)
            return false;
        s += exponent;
    }
    return *s == 0;
}

static tr_status parse_number(const tri_setting *row, const char *text, tri_setting_value *value,
                              tr_error *err)
{
    char number[MAX_NUMBER];
    bool whole;
    if (!strip_number(text, number) || !is_decimal(number, &whole))
        return wrong_type(row, text, err);
    if (row->type == TRI_SETTING_INT && !whole)
        return wrong_type(row, text, err);
    /* Every bound is at most 2^53 and below that a double holds each integer exactly. 2^53 + 1
     * would round down to it, which the digits of a plain integer tell. */
    double real = strtod(number, NULL);
    if (!(real >= row->min && real <= row->max))
        return out_of_range(row, text, err);
    if (row->type == TRI_SETTING_INT) {
        if (!strpbrk(number, "eE") && strtoll(number, NULL, 10) != (long long)real)
            return out_of_range(row, text, err);
        value->integer = (int64_t)real;
    } else {
        value->real = real == 0 ? 0 : real; /* no negative zero: it would be written as -0 */
    }
    return TR_OK;
}

static tr_status parse_bool(const tri_setting *row, const char *text, tri_setting_value *value,
                            tr_error *err)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < 6; i++)
        if (strcasecmp(text, words[i]) == 0) {
            value->integer = i & 1;
            return TR_OK;
        }
    return wrong_type(row, text, err);
}

static tr_status replace_string(tri_setting_value *value, const char *text, size_t num_bytes,
                                tr_error *err)
{
    char *copy = strndup(text, num_bytes);
    if (!copy)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading the settings");
    free(value->string);
    value->string = copy;
    return TR_OK;
}

/* Values that others have for a setting, where the nearest by spelling would be the wrong answer.
 * NULL: there is nothing to say about this one. */
static const char *known_elsewhere(const tri_setting *row, const char *text)
{
    static const struct {
        const char *name, *words, *answer;
    } rows[] = {
        {"precision.kind", "fp8 float8 e4m3 e5m2",
         "8-bit numbers are for linear layers: set precision.kind=bf16 and precision.linear=fp8"},
        {"precision.kind", "bfloat16", "did you mean bf16?"},
        {"precision.kind", "float16 half", "did you mean fp16?"},
        {"precision.kind", "float32 float single", "did you mean fp32?"},
        {"precision.linear", "e4m3 e5m2 float8 hybrid", "did you mean fp8?"},
        {"run.device", "gpu nvidia", "did you mean cuda?"},
    };
    size_t length = strlen(text);
    for (size_t i = 0; length > 0 && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, row->name) == 0)
            for (const char *word = rows[i].words; *word;) {
                size_t own = strcspn(word, " ");
                if (own == length && strncasecmp(word, text, length) == 0)
                    return rows[i].answer;
                word += own;
                word += strspn(word, " ");
            }
    return NULL;
}

static tr_status parse_choice(const tri_setting *row, const char *text, tri_setting_value *value,
                              tr_error *err)
{
    char nearest[40] = "";
    int best = 3, index = 0; /* further than 2 edits is not a typing error */
    for (const char *c = row->choices; *c; index++) {
        size_t length = strcspn(c, ",");
        if (strlen(text) == length && memcmp(text, c, length) == 0) {
            TRI_TRY(replace_string(value, c, length, err));
            value->integer = index;
            return TR_OK;
        }
        char choice[40];
        snprintf(choice, sizeof choice, "%.*s", (int)length, c);
        int distance = tri_edit_distance(text, choice);
        if (distance < best && distance < (int)length) {
            best = distance;
            memcpy(nearest, choice, sizeof nearest);
        }
        c += length;
        c += strspn(c, ", ");
    }
    const char *answer = known_elsewhere(row, text);
    if (!answer && (!*nearest || !*text))
        return wrong_type(row, text, err);
    char expected[200], shown[80], meant[80];
    snprintf(meant, sizeof meant, "did you mean %s?", nearest);
    tri_setting_expected(row, expected, sizeof expected);
    tri_setting_show(text, shown, sizeof shown);
    return tri_fail(err, TR_ERROR_INPUT, "%s is \"%s\"; expected %s; %s", row->name, shown,
                    expected, answer ? answer : meant);
}

static tr_status parse_string(const tri_setting *row, const char *text, tri_setting_value *value,
                              tr_error *err)
{
    /* Anything else could not be written into config.yaml and read back. */
    for (const char *s = text; *s;) {
        uint32_t code;
        int length = tri_utf8_decode(s, &code);
        if (length == 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s is not valid UTF-8 text (byte %zu is 0x%02x); convert it to UTF-8",
                            row->name, (size_t)(s - text) + 1, (unsigned char)*s);
        s += length;
    }
    return replace_string(value, text, strlen(text), err);
}

tr_status tri_setting_parse(const tri_setting *row, const char *text, tri_setting_value *value,
                            tr_error *err)
{
    switch (row->type) {
    case TRI_SETTING_BOOL:
        return parse_bool(row, text, value, err);
    case TRI_SETTING_INT:
    case TRI_SETTING_FLOAT:
        return parse_number(row, text, value, err);
    case TRI_SETTING_STRING:
        return parse_string(row, text, value, err);
    case TRI_SETTING_CHOICE:
        return parse_choice(row, text, value, err);
    }
    return tri_fail(err, TR_ERROR_INTERNAL, "the setting %s has no known type", row->name);
}

void tri_setting_format(const tri_setting *row, const tri_setting_value *value, char *out,
                        size_t size)
{
    if (row->type == TRI_SETTING_BOOL) {
        snprintf(out, size, "%s", value->integer ? "true" : "false");
    } else if (row->type == TRI_SETTING_INT) {
        snprintf(out, size, "%lld", (long long)value->integer);
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, size, "%.*g", digits, value->real);
            if (strtod(out, NULL) == value->real)
                break;
        }
    }
}
