#include "ckpt/hf/hf_reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 * 1000 * 1000 };

/* ---- typed reads: absent and null give the fallback ---- */

const json_t *tri_hf_value(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

tr_status tri_hf_read_int(const tri_hf_reader *r, const json_t *object, const char *key,
                          int64_t fallback, int64_t *out)
{
    const json_t *value = tri_hf_value(object, key);
    *out = fallback;
    if (!value && fallback != TRI_HF_NEEDED)
        return TR_OK;
    if (!value)
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: has no \"%s\", which a %s needs", r->path, key,
                        r->family->model_type);
    *out = json_integer_value(value);
    if (!json_is_integer(value) || *out < 1 || *out > MOST)
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is not a whole number from 1 to %d",
                        r->path, key, MOST);
    return TR_OK;
}

tr_status tri_hf_read_real(const tri_hf_reader *r, const json_t *object, const char *key,
                           double fallback, double *out)
{
    const json_t *value = tri_hf_value(object, key);
    *out = value ? json_number_value(value) : fallback;
    if (value && (!json_is_number(value) || !isfinite(*out) || *out < 0))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is not a number >= 0", r->path, key);
    return TR_OK;
}

tr_status tri_hf_read_bool(const tri_hf_reader *r, const char *key, bool fallback, bool *out)
{
    const json_t *value = tri_hf_value(r->root, key);
    *out = value ? json_is_true(value) : fallback;
    if (value && !json_is_boolean(value))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is not true or false", r->path, key);
    return TR_OK;
}

tr_status tri_hf_read_text(const tri_hf_reader *r, const json_t *object, const char *key,
                           const char *fallback, const char **out)
{
    const json_t *value = tri_hf_value(object, key);
    *out = value ? json_string_value(value) : fallback;
    if (!*out)
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is not a text", r->path, key);
    return TR_OK;
}

tr_status tri_hf_demand(const tri_hf_reader *r, const char *key, bool fallback, bool wanted)
{
    bool value;
    TRI_TRY(tri_hf_read_bool(r, key, fallback, &value));
    if (value == wanted)
        return TR_OK;
    return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is %s, which is not supported for %s",
                    r->path, key, value ? "true" : "false", r->family->model_type);
}

tr_status tri_hf_demand_text(const tri_hf_reader *r, const char *key, const char *wanted)
{
    const char *value;
    TRI_TRY(tri_hf_read_text(r, r->root, key, wanted, &value));
    if (strcmp(value, wanted) == 0)
        return TR_OK;
    return tri_fail(r->err, TR_ERROR_INPUT,
                    "%s: \"%s\" is \"%.60s\"; for %s only \"%s\" is supported", r->path, key, value,
                    r->family->model_type, wanted);
}

/* ---- what is handed on ---- */

void tri_hf_add(const tri_hf_reader *r, bool fixed, const char *name, const char *key,
                const char *format, ...)
{
    if (r->out->num_settings == TRI_HF_MAX_SETTINGS)
        return;
    tri_hf_setting *setting = &r->out->setting[r->out->num_settings++];
    *setting = (tri_hf_setting){.name = name, .key = key, .fixed = fixed};
    va_list args;
    va_start(args, format);
    vsnprintf(setting->text, sizeof setting->text, format, args);
    va_end(args);
    setting->value = setting->text;
}

void tri_hf_add_int(const tri_hf_reader *r, bool fixed, const char *name, const char *key,
                    int64_t value)
{
    tri_hf_add(r, fixed, name, key, "%lld", (long long)value);
}

/* The shortest text that is this number. */
static void number_text(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
}

void tri_hf_add_real(const tri_hf_reader *r, const char *name, const char *key, double value)
{
    char text[40];
    number_text(value, text, sizeof text);
    tri_hf_add(r, false, name, key, "%s", text);
}

tr_status tri_hf_add_list(const tri_hf_reader *r, int which, const char *name, const char *key,
                          const json_t *list)
{
    char *text = r->out->list[which];
    size_t used = 0, i;
    const json_t *item;
    if (!json_is_array(list))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"%s\" is not a list of numbers", r->path,
                        key);
    text[0] = '\0';
    json_array_foreach(list, i, item)
    {
        char number[40];
        if (!json_is_number(item) || !(json_number_value(item) > 0) ||
            !isfinite(json_number_value(item)))
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: \"%s\" has something that is no number above 0", r->path, key);
        number_text(json_number_value(item), number, sizeof number);
        if (used + strlen(number) + 2 > sizeof r->out->list[which])
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s: \"%s\" has more numbers than heads have pairs", r->path, key);
        used += (size_t)snprintf(text + used, sizeof r->out->list[which] - used, "%s%s",
                                 i ? "," : "", number);
    }
    tri_hf_add(r, false, name, key, "%s", "");
    r->out->setting[r->out->num_settings - 1].value = text;
    return TR_OK;
}

void tri_hf_add_bool(const tri_hf_reader *r, const char *name, const char *key, bool value)
{
    tri_hf_add(r, true, name, key, "%s", value ? "true" : "false");
}

tr_status tri_hf_add_init(const tri_hf_reader *r)
{
    double std;
    TRI_TRY(tri_hf_read_real(r, r->root, "initializer_range", 0.02, &std));
    tri_hf_add_real(r, "model.init_std", "initializer_range", std);
    return TR_OK;
}

tr_status tri_hf_add_sizes(const tri_hf_reader *r, const tri_hf_size_key *sizes, int num)
{
    for (int i = 0; i < num; i++) {
        int64_t value;
        TRI_TRY(tri_hf_read_int(r, r->root, sizes[i].key, TRI_HF_NEEDED, &value));
        tri_hf_add_int(r, true, sizes[i].name, sizes[i].key, value);
    }
    return TR_OK;
}
