#include "config/plugins.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "config/owners.h"
#include "config/settings_internal.h"

tri_plugins *tri_plugins_share(tri_plugins *plugins)
{
    if (plugins)
        plugins->refs++;
    return plugins;
}

void tri_plugins_release(tri_plugins *plugins)
{
    if (!plugins || --plugins->refs > 0)
        return;
    for (int i = 0; i < plugins->num; i++)
        tri_plugin_release(plugins->plugin[i]);
    free(plugins);
}

const tri_model_def *tri_plugins_model_at(const tri_plugins *plugins, size_t i)
{
    for (int k = 0; plugins && k < plugins->num; k++) {
        const tri_plugin *p = plugins->plugin[k];
        if (i < (size_t)p->num_models)
            return &p->models[i].def;
        i -= (size_t)p->num_models;
    }
    return NULL;
}

const tri_optim_def *tri_plugins_rule_at(const tri_plugins *plugins, size_t i)
{
    return plugins && i < (size_t)plugins->num_rules ? plugins->rule[i] : NULL;
}

const tri_lr_def *tri_plugins_lr_at(const tri_plugins *plugins, size_t i)
{
    for (int k = 0; plugins && k < plugins->num; k++) {
        const tri_plugin *p = plugins->plugin[k];
        if (i < (size_t)p->num_schedules)
            return &p->schedules[i].def;
        i -= (size_t)p->num_schedules;
    }
    return NULL;
}

uint64_t tri_plugins_hash(const tri_plugins *plugins)
{
    tri_checksum sum;
    tri_checksum_init(&sum);
    for (int i = 0; plugins && i < plugins->num; i++)
        tri_checksum_add(&sum, &plugins->plugin[i]->hash, sizeof plugins->plugin[i]->hash);
    return plugins ? tri_checksum_end(&sum) >> 12 | 1 : 0;
}

const tri_model_def *tri_settings_model(const tr_settings *settings)
{
    const char *kind = tr_settings_string(settings, "model.kind");
    for (size_t i = 0; tri_plugins_model_at(settings->plugins, i); i++)
        if (strcmp(tri_plugins_model_at(settings->plugins, i)->kind, kind) == 0)
            return tri_plugins_model_at(settings->plugins, i);
    return tri_model_find(kind);
}

/* ---- one more ---- */

static tr_status add_choice(tri_plugins *all, int k, const char *kind, tr_error *err)
{
    const char *selector = tri_selectors[k].row->name;
    char *choices = all->choices[k];
    size_t used = strlen(choices), length = strlen(kind);
    for (const char *c = choices; *c; c += strspn(c, ", ")) {
        if (strcspn(c, ",") == length && strncmp(c, kind, length) == 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "it brings the %s %s, which there is already; give it another name",
                            selector, kind);
        c += strcspn(c, ",");
    }
    if (used + length + 3 > sizeof all->choices[k])
        return tri_fail(err, TR_ERROR_INPUT, "there is no room for another %s", selector);
    snprintf(choices + used, sizeof all->choices[k] - used, ", %s", kind);
    return TR_OK;
}

static tr_status add_kinds(tri_plugins *all, const tri_plugin *p, tr_error *err)
{
    for (int i = 0; i < p->num_models; i++)
        TRI_TRY(add_choice(all, 0, p->models[i].def.kind, err));
    for (int i = 0; i < p->num_rules; i++) {
        TRI_TRY(add_choice(all, 1, p->rules[i].def.kind, err));
        if (all->num_rules == TRI_MAX_RULES_OUTSIDE)
            return tri_fail(err, TR_ERROR_INPUT, "there is no room for another optim.kind");
        all->rule[all->num_rules++] = &p->rules[i].def;
    }
    for (int i = 0; i < p->num_schedules; i++)
        TRI_TRY(add_choice(all, 2, p->schedules[i].def.kind, err));
    return TR_OK;
}

/* Those of old and one more, which it takes over when it succeeds. */
static tr_status join(const tri_plugins *old, tri_plugin *more, tri_plugins **out, tr_error *err)
{
    tri_plugins *all = calloc(1, sizeof *all);
    tr_status status = all ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a plug-in");
    for (int k = 0; status == TR_OK && k < TRI_NUM_SELECTORS; k++) {
        snprintf(all->choices[k], sizeof all->choices[k], "%s", tri_selectors[k].row->choices);
        all->selector_row[k] = *tri_selectors[k].row;
        all->selector_row[k].choices = all->choices[k];
    }
    for (int i = 0; status == TR_OK && old && i < old->num; i++) {
        all->plugin[all->num++] = tri_plugin_share(old->plugin[i]);
        status = add_kinds(all, old->plugin[i], err);
    }
    if (status == TR_OK && all->num == TRI_MAX_PLUGINS)
        status = tri_fail(err, TR_ERROR_INPUT, "a run has at most %d plug-ins", TRI_MAX_PLUGINS);
    if (status == TR_OK)
        status = add_kinds(all, more, err);
    if (status == TR_OK)
        all->plugin[all->num++] = more;
    if (all)
        all->refs = 1;
    if (status != TR_OK)
        tri_plugins_release(all);
    else
        *out = all;
    return status;
}

/* What it brings is new, and its defaults are of their types. */
static tr_status check_rows(const tr_settings *settings, const tri_plugin *p, tr_error *err)
{
    if (settings->table.num + p->num_settings > TRI_MAX_SETTINGS)
        return tri_fail(err, TR_ERROR_INPUT, "there is no room for %d more settings",
                        p->num_settings);
    for (int i = 0; i < p->num_settings; i++) {
        const tri_setting *row = &p->settings[i];
        tri_setting_value value = {0};
        bool twice = tri_setting_find(&settings->table, row->name) >= 0;
        for (int k = 0; k < i; k++)
            twice |= strcmp(p->settings[k].name, row->name) == 0;
        if (twice)
            return tri_fail(err, TR_ERROR_INPUT,
                            "it brings the setting %s, which there is already; give it another "
                            "name, or name it among those that are read",
                            row->name);
        tr_status status = tri_setting_parse(row, row->fallback, &value, err);
        free(value.string);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "its default");
    }
    return TR_OK;
}

static tr_status check_words(const tri_table *table, const tri_owned *own, const char *kind,
                             tr_error *err)
{
    const char *lists[] = {own->reads, own->defaults};
    for (int k = 0; k < 2; k++)
        for (const char *at = lists[k]; at && *at; at += strspn(at, " ")) {
            char name[64];
            size_t length = strcspn(at, " =");
            snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
            if (tri_setting_find(table, name) < 0)
                return tri_fail(err, TR_ERROR_INPUT,
                                "%s reads the setting \"%s\", which there is not; mend the plug-in",
                                kind, name);
            at += strcspn(at, " ");
        }
    return TR_OK;
}

static tr_status check_owned(const tri_table *table, const tri_plugin *p, tr_error *err)
{
    for (int i = 0; i < p->num_models; i++)
        TRI_TRY(check_words(table, &p->models[i].def.own, p->models[i].def.kind, err));
    for (int i = 0; i < p->num_rules; i++)
        TRI_TRY(check_words(table, &p->rules[i].def.own, p->rules[i].def.kind, err));
    for (int i = 0; i < p->num_schedules; i++)
        TRI_TRY(check_words(table, &p->schedules[i].def.own, p->schedules[i].def.kind, err));
    return TR_OK;
}

/* The values that are there go with their rows to the places of a larger table; new ones have their
 * defaults, which are known to be right. */
static tr_status move_values(tr_settings *settings, const tri_table *table, tr_error *err)
{
    tri_setting_value *values = calloc((size_t)table->num, sizeof *values);
    tr_status status = values ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for settings");
    for (int i = 0; status == TR_OK && i < table->num; i++)
        if (tri_setting_find(&settings->table, table->row[i]->name) < 0)
            status = tri_setting_parse(table->row[i], table->row[i]->fallback, &values[i], err);
    for (int i = 0; i < table->num && values; i++) {
        int old = tri_setting_find(&settings->table, table->row[i]->name);
        if (status != TR_OK)
            free(values[i].string);
        else if (old >= 0)
            values[i] = settings->values[old];
    }
    if (status != TR_OK) {
        free(values);
        return status;
    }
    free(settings->values);
    settings->values = values;
    settings->table = *table;
    return TR_OK;
}

/* run.plugins, as config.yaml keeps it. */
static tr_status name_plugins(tr_settings *settings, tr_error *err)
{
    size_t size = 1;
    const tri_plugins *all = settings->plugins;
    tri_setting_value *value = &settings->values[tri_setting_find(&settings->table, "run.plugins")];
    for (int i = 0; i < all->num; i++)
        size += strlen(all->plugin[i]->path) + 1;
    char *text = calloc(1, size);
    if (!text)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the names of plug-ins");
    for (int i = 0; i < all->num; i++) {
        strcat(text, i ? ";" : "");
        strcat(text, all->plugin[i]->path);
    }
    free(value->string);
    value->string = text;
    value->given = true;
    return TR_OK;
}

/* Takes the plug-in over when it succeeds. */
static tr_status add_plugin(tr_settings *settings, tri_plugin *more, tr_error *err)
{
    tri_plugins *all;
    tri_table table;
    TRI_TRY(check_rows(settings, more, err));
    TRI_TRY(join(settings->plugins, more, &all, err));
    tri_table_init(&table, all);
    tr_status status = check_owned(&table, more, err);
    if (status == TR_OK)
        status = move_values(settings, &table, err);
    if (status != TR_OK) {
        tri_plugin_share(more); /* the caller's still */
        tri_plugins_release(all);
        return status;
    }
    tri_plugins_release(settings->plugins);
    settings->plugins = all;
    return name_plugins(settings, err);
}

static tr_status load_one(tr_settings *settings, const char *path, tr_error *err)
{
    tri_plugin *plugin;
    TRI_TRY(tri_plugin_open(path, &plugin, err));
    for (int i = 0; settings->plugins && i < settings->plugins->num; i++)
        if (strcmp(settings->plugins->plugin[i]->path, plugin->path) == 0) {
            tri_plugin_release(plugin);
            return TR_OK;
        }
    if (strchr(plugin->path, ';')) {
        tri_plugin_release(plugin);
        return tri_fail(err, TR_ERROR_INPUT,
                        "plug-in %s: a ; in the path divides names of plug-ins; rename it", path);
    }
    tr_status status = add_plugin(settings, plugin, err);
    if (status == TR_OK)
        return TR_OK;
    tri_plugin_release(plugin);
    return tri_fail_prefix(err, status, "plug-in %s", path);
}

tr_status tri_settings_load_plugins(tr_settings *settings, const char *paths, tr_error *err)
{
    tr_settings *draft;
    TRI_TRY(tri_settings_clone(settings, &draft, err));
    char *copy = strdup(paths), *rest = copy, *path;
    tr_status status = copy ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    while (status == TR_OK && (path = strsep(&rest, ";")))
        if (*path)
            status = load_one(draft, path, err);
    free(copy);
    if (status == TR_OK) {
        tr_settings old = *settings;
        *settings = *draft;
        *draft = old;
    }
    tr_settings_destroy(draft);
    return status;
}
