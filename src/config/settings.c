/* The settings object: one value per row of the table, looked up by name.
 *
 * Names are searched from the front each time. There are a few dozen of them, read once at start,
 * so anything cleverer would cost more to read than it saves. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/plugins.h"
#include "config/settings_internal.h"

enum { MAX_NAME = 64 }; /* longer than any name in the table */

int tri_setting_find(const tri_table *table, const char *name)
{
    for (int i = 0; i < table->num; i++)
        if (strcmp(table->row[i]->name, name) == 0)
            return i;
    return -1;
}

const tri_setting *tri_setting_named(const tri_table *table, const char *name)
{
    int index = tri_setting_find(table, name);
    assert(index >= 0 && "no such setting");
    return table->row[index];
}

int tri_section_find(const char *name)
{
    for (int i = 0; i < tri_num_sections; i++)
        if (strcmp(tri_sections[i].name, name) == 0)
            return i;
    return -1;
}

const char *tri_setting_key(const tri_setting *row)
{
    return strchr(row->name, '.') + 1;
}

bool tri_setting_in(const tri_setting *row, const char *section_name)
{
    size_t length = strlen(section_name);
    return strncmp(row->name, section_name, length) == 0 && row->name[length] == '.';
}

const tri_setting *tri_section_first(const tri_table *table, const char *section)
{
    int i = 0;
    while (i < table->num - 1 && !tri_setting_in(table->row[i], section))
        i++;
    return table->row[i];
}

int tri_section_auto(const tri_table *table, const char *section)
{
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s.auto", section);
    return tri_setting_find(table, name);
}

const tri_table *tri_settings_table(const tr_settings *settings)
{
    return &settings->table;
}

void tr_settings_destroy(tr_settings *settings)
{
    if (!settings)
        return;
    for (int i = 0; settings->values && i < settings->table.num; i++)
        free(settings->values[i].string);
    free(settings->values);
    tri_plugins_release(settings->plugins);
    free(settings);
}

static tr_settings *allocate(const tri_table *table, tr_error *err)
{
    tr_settings *settings = calloc(1, sizeof *settings);
    if (settings) {
        settings->table = *table;
        settings->values = calloc((size_t)table->num, sizeof *settings->values);
    }
    if (settings && settings->values)
        return settings;
    tr_settings_destroy(settings);
    tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading the settings");
    return NULL;
}

tr_status tr_settings_create(tr_settings **settings, tr_error *err)
{
    tri_table table;
    tri_table_init(&table, NULL);
    *settings = NULL;
    tr_settings *made = allocate(&table, err);
    if (!made)
        return TR_ERROR_RUNTIME;
    for (int i = 0; i < table.num; i++) {
        const tri_setting *row = table.row[i];
        tr_status status = tri_setting_parse(row, row->fallback, &made->values[i], err);
        if (status != TR_OK) {
            assert(status == TR_ERROR_RUNTIME && "a default in the table is not valid");
            tr_settings_destroy(made);
            return status;
        }
    }
    *settings = made;
    return TR_OK;
}

tr_status tri_settings_clone(const tr_settings *from, tr_settings **to, tr_error *err)
{
    *to = NULL;
    tr_settings *made = allocate(&from->table, err);
    if (!made)
        return TR_ERROR_RUNTIME;
    made->plugins = tri_plugins_share(from->plugins);
    for (int i = 0; i < from->table.num; i++) {
        const tri_setting_value *value = &from->values[i];
        made->values[i] = *value;
        if (value->string && !(made->values[i].string = strdup(value->string))) {
            tr_settings_destroy(made);
            return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading the settings");
        }
    }
    *to = made;
    return TR_OK;
}

/* Cuts "section.key=value" into its row and the place of the value. */
static tr_status split_assignment(const tri_table *table, const char *assignment, int *index,
                                  const char **value, tr_error *err)
{
    char name[2 * MAX_NAME], shown[80];
    const char *equals = strchr(assignment, '=');
    const char *from = assignment + strspn(assignment, " \t");
    const char *to = equals ? equals : from;
    while (to > from && strchr(" \t", to[-1]))
        to--;
    if (to == from) {
        tri_setting_show(assignment, shown, sizeof shown);
        return tri_fail(err, TR_ERROR_INPUT,
                        "\"%s\" does not assign a value; write section.key=value, for example "
                        "optim.lr=3e-4",
                        shown);
    }
    size_t length = (size_t)(to - from);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), from);
    *index = tri_setting_find(table, name);
    if (*index < 0 && tri_section_find(name) >= 0 && strcmp(equals + 1, "auto") == 0 &&
        tri_section_auto(table, name) >= 0) {
        *index = tri_section_auto(table, name);
        *value = "true";
        return TR_OK;
    }
    if (*index < 0 && tri_section_find(name) >= 0) {
        const tri_setting *row = tri_section_first(table, name);
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is a section; name one of its settings, for example %s=%s", name,
                        row->name, row->fallback);
    }
    if (*index < 0)
        return tri_setting_unknown(table, name, err);
    *value = equals + 1;
    /* Blanks may belong to a text; around anything else they are only typing. */
    if (table->row[*index]->type != TRI_SETTING_STRING)
        *value += strspn(*value, " \t");
    return TR_OK;
}

tr_status tr_settings_set(tr_settings *settings, const char *assignment, tr_error *err)
{
    int index;
    const char *value;
    TRI_TRY(split_assignment(&settings->table, assignment, &index, &value, err));
    if (settings->table.row[index]->loads)
        return tri_settings_load_plugins(settings, value, err);
    TRI_TRY(tri_setting_parse(settings->table.row[index], value, &settings->values[index], err));
    settings->values[index].given = true;
    return TR_OK;
}

tr_status tr_settings_fill(tr_settings *settings, const char *assignment, tr_error *err)
{
    int index;
    const char *value;
    TRI_TRY(split_assignment(&settings->table, assignment, &index, &value, err));
    if (settings->values[index].given || settings->table.row[index]->loads)
        return TR_OK;
    return tri_setting_parse(settings->table.row[index], value, &settings->values[index], err);
}

/* NULL: there is no such setting, or it has another type. In the library that would be a bug, which
 * tests/cli/test_settings_names.c looks for in the source; in a program that embeds it, a typing
 * error that must not end the program. */
static const tri_setting_value *lookup(const tr_settings *settings, const char *name,
                                       tri_setting_type type, tri_setting_type or_type)
{
    int index = tri_setting_find(&settings->table, name);
    if (index < 0)
        return NULL;
    tri_setting_type found = settings->table.row[index]->type;
    return found == type || found == or_type ? &settings->values[index] : NULL;
}

bool tr_settings_given(const tr_settings *settings, const char *name)
{
    int index = tri_setting_find(&settings->table, name);
    return index >= 0 && settings->values[index].given;
}

bool tr_settings_bool(const tr_settings *settings, const char *name)
{
    const tri_setting_value *value = lookup(settings, name, TRI_SETTING_BOOL, TRI_SETTING_BOOL);
    return value && value->integer != 0;
}

int64_t tr_settings_int(const tr_settings *settings, const char *name)
{
    const tri_setting_value *value = lookup(settings, name, TRI_SETTING_INT, TRI_SETTING_INT);
    return value ? value->integer : 0;
}

double tr_settings_float(const tr_settings *settings, const char *name)
{
    const tri_setting_value *value = lookup(settings, name, TRI_SETTING_FLOAT, TRI_SETTING_FLOAT);
    return value ? value->real : 0;
}

const char *tr_settings_string(const tr_settings *settings, const char *name)
{
    const tri_setting_value *value = lookup(settings, name, TRI_SETTING_STRING, TRI_SETTING_CHOICE);
    return value ? value->string : "";
}

int tr_settings_choice(const tr_settings *settings, const char *name)
{
    const tri_setting_value *value = lookup(settings, name, TRI_SETTING_CHOICE, TRI_SETTING_CHOICE);
    return value ? (int)value->integer : -1;
}
