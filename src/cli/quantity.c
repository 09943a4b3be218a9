#include "cli/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings/nearest.h"

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* Letter case counts: "Mb" is not "MB". */
static const unit counts[] = {
    {"", 1},    {"k", 1e3},  {"K", 1e3},  {"M", 1e6},  {"B", 1e9},
    {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18}, {NULL, 0},
};
static const unit byte_units[] = {
    {"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0},
};
static const unit times[] = {{"", 1e-6},   {"us", 1e-6}, {"ns", 1e-9},
                             {"ms", 1e-3}, {"s", 1},     {NULL, 0}};
static const unit durations[] = {{"ms", 1e-3}, {"s", 1},     {"min", 60},     {"m", 60},
                                 {"h", 3600},  {"d", 86400}, {"days", 86400}, {"y", 365.25 * 86400},
                                 {NULL, 0}};
static const unit rates[] = {{"MB/s", 1e6},     {"GB/s", 1e9},     {"TB/s", 1e12},
                             {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8},
                             {NULL, 0}};
static const unit shares[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};
static const unit none[] = {{"", 1}, {NULL, 0}};

/* Whether the text is a finite number with one of the units. */
static bool read_in(const char *text, const unit *units, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number))
        return false;
    while (*end == ' ')
        end++;
    for (int i = 0; units[i].name; i++)
        if (strcmp(end, units[i].name) == 0) {
            *value = number * units[i].factor;
            return isfinite(*value);
        }
    return false;
}

static tr_status expected(const char *flag, const char *text, const char *what, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT, "--%s is \"%.40s\"; expected %s", flag, text, what);
}

tr_status tri_quantity_count(const char *flag, const char *text, double *value, tr_error *err)
{
    if (!read_in(text, counts, value) || !(*value > 0 && *value <= 1e30))
        return expected(flag, text, "a number above 0, such as 300e9, 175B or 15.6T", err);
    return TR_OK;
}

tr_status tri_quantity_bytes(const char *flag, const char *text, double *bytes, tr_error *err)
{
    if (!read_in(text, byte_units, bytes) || !(*bytes > 0 && *bytes <= 1e30))
        return expected(flag, text, "bytes, such as 1GB, 10kB or 64MiB", err);
    return TR_OK;
}

tr_status tri_quantity_seconds(const char *flag, const char *text, double *seconds, tr_error *err)
{
    if (!read_in(text, times, seconds) || !(*seconds >= 0 && *seconds <= 1e9))
        return expected(flag, text, "a time of 0 or more, such as 5us or 0.1ms", err);
    return TR_OK;
}

tr_status tri_quantity_duration(const char *flag, const char *text, double *seconds, tr_error *err)
{
    if (!read_in(text, durations, seconds) || !(*seconds > 0 && *seconds <= 1e15))
        return expected(flag, text, "a time above 0 with its unit, such as 5.2s, 10min, 3h or 30d",
                        err);
    return TR_OK;
}

tr_status tri_quantity_rate(const char *flag, const char *text, double *bytes_per_s, tr_error *err)
{
    if (!read_in(text, rates, bytes_per_s) || !(*bytes_per_s > 0 && *bytes_per_s <= 1e30))
        return expected(flag, text, "a rate above 0, such as 50GB/s or 400Gb/s", err);
    return TR_OK;
}

tr_status tri_quantity_share(const char *flag, const char *text, double *share, tr_error *err)
{
    if (!read_in(text, shares, share) || !(*share > 0 && *share <= 1))
        return expected(flag, text, "a share above 0 and at most 1, such as 0.5 or 50%", err);
    return TR_OK;
}

tr_status tri_quantity_part(const char *flag, const char *text, double *part, tr_error *err)
{
    if (!read_in(text, shares, part) || !(*part >= 0 && *part <= 1))
        return expected(flag, text, "a share from 0 to 1, such as 0.1 or 10%", err);
    return TR_OK;
}

tr_status tri_quantity_number(const char *flag, const char *text, double least, double most,
                              double *value, tr_error *err)
{
    if (!read_in(text, none, value) || !(*value >= least && *value <= most))
        return tri_fail(err, TR_ERROR_INPUT, "--%s is \"%.40s\"; expected a number from %g to %g",
                        flag, text, least, most);
    return TR_OK;
}

static const char *link_at(size_t i)
{
    return tri_link_spec_at(i) ? tri_link_spec_at(i)->name : NULL;
}

static tr_status unknown_name(const char *flag, const char *word, const char *(*name_at)(size_t),
                              const char *besides, tr_error *err)
{
    const char *best = name_at(0);
    for (size_t i = 1; name_at(i); i++)
        if (tri_edit_distance(word, name_at(i)) < tri_edit_distance(word, best))
            best = name_at(i);
    bool slip = tri_is_slip(word, best);
    return tri_fail(err, TR_ERROR_INPUT,
                    "--%s: \"%.40s\" is not known; %s%s%strireme place --devices lists them%s",
                    flag, word, slip ? "did you mean " : "", slip ? best : "", slip ? "? " : "",
                    besides);
}

tr_status tri_quantity_device(const char *text, tri_device_spec *own,
                              const tri_device_spec **device, tr_error *err)
{
    *device = tri_device_spec_find(text);
    if (*device)
        return TR_OK;
    TRI_TRY(tri_device_spec_parse(text, own, err));
    *device = own;
    return TR_OK;
}

tr_status tri_quantity_link(const char *text, tri_link_spec *own, const tri_link_spec **link,
                            tr_error *err)
{
    double rate;
    *link = tri_link_spec_find(text);
    if (*link)
        return TR_OK;
    if (!read_in(text, rates, &rate))
        return unknown_name("link", text, link_at, ", and --link 50GB/s gives a figure", err);
    if (!(rate >= 1 && rate <= 1e18))
        return tri_fail(err, TR_ERROR_INPUT, "--link is %.40s; it must be positive and finite",
                        text);
    *own = (tri_link_spec){.name = "given", .title = "link", .bytes_per_s = rate};
    *link = own;
    return TR_OK;
}
