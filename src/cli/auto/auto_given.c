/* Settings of the layout that are given beside layout.auto: the search keeps them. */
#include <stdio.h>
#include <string.h>

#include "cli/auto/auto_parts.h"
#include "config/settings_internal.h"

/* What the search chooses that has most to say. */
static const char *const chosen[] = {"layout.dp",       "layout.tp",           "layout.cp",
                                     "layout.ep",       "layout.pp",           "layout.sp",
                                     "layout.schedule", "layout.microbatches", "layout.recompute"};

static tr_status check_open(const tr_settings *settings, tr_error *err)
{
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        if (!tr_settings_given(settings, chosen[i]))
            return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.auto has nothing to choose, since every setting of the layout is "
                    "given, as in the config.yaml of a run; start from the recipe, or leave "
                    "layout.auto out");
}

static tr_status refuse(const char *assignment, tr_error *err)
{
    if (strncmp(assignment, "layout.schedule=", 16) == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%.80s is given beside layout.auto, which does not try this order; it "
                        "knows 1f1b, interleaved, zb-h1, 1f1b-v, zb-v, v-half, v-min and gpipe",
                        assignment);
    if (strncmp(assignment, "layout.recompute=", 17) == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%.80s is given beside layout.auto, which tries none, selective, full, "
                        "every:2 and every:4, "
                        "and as little as run.memory_limit allows; give one of them, or leave "
                        "it out",
                        assignment);
    return tri_fail(err, TR_ERROR_INPUT,
                    "%.80s is given beside layout.auto, which divides layers by cost; leave it out",
                    assignment);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static tr_status keep(tri_auto *a, const char *assignment, tr_error *err)
{
    bool known = tri_space_fix(&a->fixed, assignment);
    bool budget = starts_with(assignment, "layout.recompute=budget");
    bool words =
        starts_with(assignment, "layout.schedule=") || starts_with(assignment, "layout.recompute=");
    bool stages = starts_with(assignment, "layout.stages=") && assignment[14];
    return (words && !known) || budget || stages ? refuse(assignment, err) : TR_OK;
}

tr_status tri_auto_read_given(tri_auto *a, tr_error *err)
{
    static const char *const axes[] = {"layout.dp", "layout.tp", "layout.cp", "layout.pp"};
    const tr_settings *settings = a->cli->settings;
    a->fixed = tri_space_all_free();
    a->product = 1;
    TRI_TRY(check_open(settings, err));
    for (int i = 0; i < settings->table.num; i++) {
        const tri_setting *row = settings->table.row[i];
        const tri_setting_value *value = &settings->values[i];
        char text[32], assignment[200];
        if (!tri_setting_in(row, "layout") || !value->given ||
            strcmp(row->name, "layout.auto") == 0)
            continue;
        tri_setting_format(row, value, text, sizeof text);
        snprintf(assignment, sizeof assignment, "%s=%s", row->name,
                 value->string ? value->string : text);
        TRI_TRY(keep(a, assignment, err));
    }
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (tr_settings_given(settings, axes[i]))
            a->product *= (uint32_t)tr_settings_int(settings, axes[i]);
    return TR_OK;
}
