/* The table of settings. Adding a setting is adding a row, nothing else: to settings_table.c, or to
 * the model, update rule or schedule that alone reads it. */
#ifndef TRI_CONFIG_SETTINGS_TABLE_H
#define TRI_CONFIG_SETTINGS_TABLE_H

#include "base/settings/row.h"
#include "trireme/settings.h"

typedef struct tri_plugins tri_plugins;

typedef struct tri_section {
    const char *name;
    const char *help;
} tri_section;

extern const tri_section tri_sections[];
extern const int tri_num_sections;
int tri_section_find(const char *name); /* or -1 */

enum { TRI_MAX_SETTINGS = 512 };

/* settings_generate.c: rows of the section `generate`. */
extern const tri_setting tri_generate_settings[];
extern const int tri_num_generate_settings;

/* Rows of one section stand together, in the order of the sections. */
typedef struct tri_table {
    const tri_setting *row[TRI_MAX_SETTINGS];
    int num;
} tri_table;

/* NULL: without plug-ins. */
void tri_table_init(tri_table *table, const tri_plugins *plugins);
const tri_table *tri_settings_table(const tr_settings *settings); /* that of these */
int tri_setting_find(const tri_table *table, const char *name);   /* or -1 */
/* The row of a name that is there. */
const tri_setting *tri_setting_named(const tri_table *table, const char *name);
/* tr_settings_help of these settings, with what their plug-ins bring. */
tr_status tri_table_help(const tri_table *table, FILE *file, const char *which, int width,
                         tr_error *err);
/* tr_settings_load for who lists, compares or removes runs and starts none: plug-ins that the file
 * needs may be missing, and settings and kinds that only they know are left at their defaults. */
tr_status tri_settings_look(tr_settings *settings, const char *yaml_path, tr_error *err);
bool tri_setting_in(const tri_setting *row, const char *section_name);

/* Whether a setting is one of these: sections and full names with blanks between; NULL is all. */
bool tri_setting_wanted(const tri_setting *row, const char *which);

/* What may be given, in few words: "1 to 1000", "relu, gelu", "true, false", "text". */
void tri_setting_values(const tri_setting *row, char *out, size_t size);

/* The setting that a person most likely meant; *far says that it is hardly more than a guess. */
int tri_setting_nearest(const tri_table *table, const char *name, bool *far);

#endif
