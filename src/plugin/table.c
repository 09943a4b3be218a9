/* The table of a plug-in: whatever of it can be looked at is looked at, before it is used. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/plugin.h"

enum { MAX_WORD = 40, MAX_SETTINGS = 64 };

/* Where an error is: "model.kind my_model". */
typedef struct place {
    const char *selector, *kind;
} place;

static tr_status fail_at(const place *at, const char *what, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT, "%s %s %s; mend the plug-in", at->selector,
                    at->kind ? at->kind : "without a name", what);
}

static bool is_word(const char *text)
{
    size_t length = text ? strnlen(text, MAX_WORD) : 0;
    for (size_t i = 0; i < length; i++)
        if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]) &&
            text[i] != '_' && text[i] != '-')
            return false;
    return length > 0 && length < MAX_WORD;
}

static tr_status take_setting(const place *at, const char *section, const tr_plugin_setting *from,
                              tri_setting *to, tr_error *err)
{
    static const tri_setting_type types[] = {
        [TR_SETTING_BOOL] = TRI_SETTING_BOOL,     [TR_SETTING_INT] = TRI_SETTING_INT,
        [TR_SETTING_FLOAT] = TRI_SETTING_FLOAT,   [TR_SETTING_STRING] = TRI_SETTING_STRING,
        [TR_SETTING_CHOICE] = TRI_SETTING_CHOICE,
    };
    size_t length = strlen(section);
    if (!from->name || strncmp(from->name, section, length) != 0 || !is_word(from->name + length))
        return fail_at(at, "has a setting whose name is not of its section and of small letters",
                       err);
    if (from->type < TR_SETTING_BOOL || from->type > TR_SETTING_CHOICE || !from->fallback ||
        !from->help || (from->type == TR_SETTING_CHOICE) != (from->choices != NULL))
        return tri_fail(err, TR_ERROR_INPUT,
                        "the setting %s has no type, default, help or choices; mend the plug-in",
                        from->name);
    if (!(fabs(from->min) <= 0x1p53 && fabs(from->max) <= 0x1p53))
        return tri_fail(err, TR_ERROR_INPUT, "the range of %s is not within 2^53; mend the plug-in",
                        from->name);
    *to = (tri_setting){.name = from->name,
                        .type = types[from->type],
                        .fallback = from->fallback,
                        .min = from->type == TR_SETTING_BOOL ? 0 : from->min,
                        .max = from->type == TR_SETTING_BOOL ? 1 : from->max,
                        .choices = from->choices,
                        .help = from->help};
    return TR_OK;
}

static tr_status take_own(tri_plugin *plugin, const place *at, const tr_plugin_own *from,
                          tri_owned *own, tr_error *err)
{
    const char *section = strncmp(at->selector, "model", 5) == 0 ? "model." : "optim.";
    if (!is_word(at->kind))
        return fail_at(at, "is not a name of small letters, digits, _ and -", err);
    if (from->num_settings > MAX_SETTINGS || (from->num_settings > 0 && !from->settings))
        return fail_at(at, "has settings at no address, or too many", err);
    *own = (tri_owned){.rows = plugin->settings + plugin->num_settings,
                       .num_rows = (int)from->num_settings,
                       .reads = from->reads,
                       .defaults = from->defaults};
    for (uint32_t i = 0; i < from->num_settings; i++)
        TRI_TRY(take_setting(at, section, &from->settings[i],
                             &plugin->settings[plugin->num_settings++], err));
    return TR_OK;
}

static tr_status take_model(tri_plugin *plugin, const tr_plugin_model *row, tr_error *err)
{
    place at = {"model.kind", row->kind};
    tri_outside_model *model = &plugin->models[plugin->num_models++];
    tri_owned own;
    TRI_TRY(take_own(plugin, &at, &row->own, &own, err));
    if (!row->params || !row->emit || !row->help)
        return fail_at(&at, "has no help, params or emit", err);
    model->row = row;
    tri_outside_model_def(model, own);
    return TR_OK;
}

static tr_status take_rule(tri_plugin *plugin, const tr_plugin_rule *row, tr_error *err)
{
    place at = {"optim.kind", row->kind};
    tri_outside_rule *rule = &plugin->rules[plugin->num_rules++];
    tri_owned own;
    TRI_TRY(take_own(plugin, &at, &row->own, &own, err));
    if (!row->emit || !row->help)
        return fail_at(&at, "has no help or emit", err);
    rule->row = row;
    tri_outside_rule_def(rule, own);
    return TR_OK;
}

static tr_status take_schedule(tri_plugin *plugin, const tr_plugin_schedule *row, tr_error *err)
{
    place at = {"optim.schedule", row->kind};
    tri_outside_lr *lr = &plugin->schedules[plugin->num_schedules++];
    tri_owned own;
    TRI_TRY(take_own(plugin, &at, &row->own, &own, err));
    if (!row->rate || !row->help)
        return fail_at(&at, "has no help or rate", err);
    lr->row = row;
    tri_outside_lr_def(lr, own);
    return TR_OK;
}

static bool is_list(const void *rows, uint32_t num)
{
    return num <= TRI_MAX_PLUGIN_ROWS && (num == 0 || rows);
}

tr_status tri_plugin_take(tri_plugin *plugin, const tr_plugin *table, tr_error *err)
{
    if (!table->name || !table->version || !*table->name)
        return tri_fail(err, TR_ERROR_INPUT, "its table has no name or version; mend the plug-in");
    if (!is_list(table->models, table->num_models) || !is_list(table->rules, table->num_rules) ||
        !is_list(table->schedules, table->num_schedules))
        return tri_fail(err, TR_ERROR_INPUT,
                        "its table has rows at no address, or more than %d of a kind; mend the "
                        "plug-in",
                        TRI_MAX_PLUGIN_ROWS);
    uint32_t num = table->num_models + table->num_rules + table->num_schedules;
    if (num == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "it brings no model, no rule and no schedule; mend the plug-in");
    plugin->name = table->name;
    plugin->version = table->version;
    plugin->settings = calloc((size_t)num * MAX_SETTINGS, sizeof *plugin->settings);
    if (!plugin->settings)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for its settings");
    for (uint32_t i = 0; i < table->num_models; i++)
        TRI_TRY(take_model(plugin, &table->models[i], err));
    for (uint32_t i = 0; i < table->num_rules; i++)
        TRI_TRY(take_rule(plugin, &table->rules[i], err));
    for (uint32_t i = 0; i < table->num_schedules; i++)
        TRI_TRY(take_schedule(plugin, &table->schedules[i], err));
    return TR_OK;
}
