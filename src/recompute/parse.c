/* The setting as a user writes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "recompute/recompute.h"

/* "8GiB", "500 MB", "1.5g", "123456"; false when it is none. */
static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},
                 {"b", 1},
                 {"k", 1024.0},
                 {"kib", 1024.0},
                 {"m", 1048576.0},
                 {"mib", 1048576.0},
                 {"g", 1073741824.0},
                 {"gib", 1073741824.0},
                 {"t", 1099511627776.0},
                 {"tib", 1099511627776.0},
                 {"kb", 1e3},
                 {"mb", 1e6},
                 {"gb", 1e9},
                 {"tb", 1e12}};
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double value = strtod(text, &end);
    end += strspn(end, " ");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].name) == 0 && value * units[i].factor >= 1 &&
            value * units[i].factor <= 1e18) {
            *bytes = (uint64_t)(value * units[i].factor);
            return true;
        }
    return false;
}

static bool parse_every(const char *text, int64_t *every)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < 1 || value > 1000000)
        return false;
    *every = value;
    return true;
}

tr_status tri_recompute_parse(const char *text, tri_recompute_config *config, tr_error *err)
{
    *config = (tri_recompute_config){.kind = TRI_RECOMPUTE_NONE, .every = 1};
    if (strcmp(text, "none") == 0)
        return TR_OK;
    if (strcmp(text, "selective") == 0)
        config->kind = TRI_RECOMPUTE_SELECTIVE;
    else if (strcmp(text, "full") == 0)
        config->kind = TRI_RECOMPUTE_FULL;
    else if (strncmp(text, "every:", 6) == 0 && parse_every(text + 6, &config->every))
        config->kind = TRI_RECOMPUTE_EVERY;
    else if (strncmp(text, "budget:", 7) == 0 && parse_bytes(text + 7, &config->budget_bytes))
        config->kind = TRI_RECOMPUTE_BUDGET;
    else
        return tri_fail(
            err, TR_ERROR_INPUT,
            "layout.recompute is \"%s\"; it can be none, selective, full, every:N (such "
            "as every:2, every second layer) or budget:BYTES (such as budget:8GiB)",
            text);
    return TR_OK;
}
