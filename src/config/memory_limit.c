/* run.memory_limit: an amount of memory as people write it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/resolve.h"
#include "config/settings_internal.h"

static const struct {
    const char *unit;
    double bytes;
} units[] = {
    {"", 1},         {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
    {"TB", 1e12},    {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
};

tr_status tri_memory_limit_from(const tr_settings *settings, uint64_t *bytes, tr_error *err)
{
    const char *text = tr_settings_string(settings, "run.memory_limit");
    char *end;
    *bytes = 0;
    if (!text[0])
        return TR_OK;
    double number = strtod(text, &end);
    bool is_number = end != text && isfinite(number) && number >= 0;
    while (*end == ' ')
        end++;
    for (size_t i = 0; is_number && i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].unit) == 0 && number * units[i].bytes < 0x1p62) {
            *bytes = (uint64_t)(number * units[i].bytes);
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.memory_limit is \"%s\"; give an amount such as 8GiB or 500MB, or leave it "
                    "out",
                    text);
}
