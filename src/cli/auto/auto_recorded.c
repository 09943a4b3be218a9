/* A run that goes on has a layout already. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/ckpt_dir.h"
#include "cli/auto/auto_parts.h"
#include "config/settings_internal.h"

static bool goes_on(const tr_settings *settings, const char *run_dir)
{
    char *dir = tri_path_join(run_dir, "ckpt");
    tri_ckpt_steps steps = {0};
    bool any = strcmp(tr_settings_string(settings, "run.resume"), "false") != 0 && dir &&
               tri_ckpt_steps_read(&steps, dir, NULL) == TR_OK && steps.num > 0;
    tri_ckpt_steps_free(&steps);
    free(dir);
    return any;
}

/* All that the search chooses, but for what is given now, by a person who wants it otherwise. */
static tr_status take(const tr_settings *from, tr_settings *settings, tr_error *err)
{
    for (int i = 0; i < from->table.num; i++) {
        const tri_setting *row = from->table.row[i];
        const tri_setting_value *value = &from->values[i];
        char text[32], *assignment = NULL;
        bool chosen = tri_setting_in(row, "layout") || strcmp(row->name, "run.lanes") == 0;
        if (!chosen || strcmp(row->name, "layout.auto") == 0 ||
            tr_settings_given(settings, row->name))
            continue;
        tri_setting_format(row, value, text, sizeof text);
        if (asprintf(&assignment, "%s=%s", row->name, value->string ? value->string : text) < 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a setting");
        tr_status status = tr_settings_set(settings, assignment, err);
        free(assignment);
        TRI_TRY(status);
    }
    return tr_settings_set(settings, "layout.auto=false", err);
}

tr_status tri_auto_recorded(tr_settings *settings, const char *run_dir, bool *found, tr_error *err)
{
    tr_settings *recorded = NULL;
    *found = goes_on(settings, run_dir) && tri_dir_has(run_dir, "config.yaml");
    if (!*found)
        return TR_OK;
    char *path = tri_path_join(run_dir, "config.yaml");
    tr_status status =
        path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", run_dir);
    if (status == TR_OK)
        status = tr_settings_create(&recorded, err);
    if (status == TR_OK)
        status = tri_settings_look(recorded, path, err);
    if (status == TR_OK)
        status = take(recorded, settings, err);
    tr_settings_destroy(recorded);
    free(path);
    return status;
}
