#include "cli/sums/sums.h"

#include <stdio.h>
#include <string.h>

#include "config/settings_internal.h"

tr_status tri_sums_only(const tri_cli *cli, const char *form, const char *const *flags,
                        tr_error *err)
{
    for (int i = 0; i < cli->num_flags; i++) {
        const char *name = cli->flags[i].flag->name;
        bool known = strcmp(name, "json") == 0 || strcmp(name, form) == 0;
        for (int k = 0; flags[k]; k++)
            known |= strcmp(name, flags[k]) == 0;
        if (!known)
            return tri_fail(err, TR_ERROR_INPUT,
                            "--%s changes nothing beside --%s; leave one of them out", name, form);
    }
    return TR_OK;
}

tr_status tri_sums_alone(const tr_settings *settings, tr_settings **alone, tr_error *err)
{
    TRI_TRY(tri_settings_clone(settings, alone, err));
    const tri_table *table = tri_settings_table(settings);
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && i < table->num; i++) {
        char assignment[200];
        const tri_setting *row = table->row[i];
        if (strncmp(row->name, "layout.", 7) != 0 || !tr_settings_given(settings, row->name))
            continue;
        snprintf(assignment, sizeof assignment, "%s=%s", row->name, row->fallback);
        status = tr_settings_set(*alone, assignment, err);
    }
    if (status != TR_OK)
        tr_settings_destroy(*alone);
    return status;
}

const char *tri_sums_bytes(double bytes, int digits, char out[24])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int u = 0;
    for (; bytes >= 1000 && u < 5; u++)
        bytes /= 1000;
    snprintf(out, 24, "%.*g %s", digits, bytes, units[u]);
    return out;
}
