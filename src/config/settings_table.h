/* The table of settings. Adding a setting is adding a row to settings_table.c, nothing else. */
#ifndef TRI_CONFIG_SETTINGS_TABLE_H
#define TRI_CONFIG_SETTINGS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tri_setting_type {
    TRI_SETTING_BOOL,
    TRI_SETTING_INT,
    TRI_SETTING_FLOAT,
    TRI_SETTING_STRING,
    TRI_SETTING_CHOICE
} tri_setting_type;

typedef struct tri_setting {
    const char *name; /* "section.key" */
    tri_setting_type type;
    const char *fallback; /* the default, written as a user would */
    double min, max;      /* INT and FLOAT, both included; at most 2^53, so a double holds them */
    const char *choices;  /* CHOICE: "one, two, three" */
    const char *help;     /* one line, without a full stop */
    const char *also;     /* other names people type, for suggestions only; may be NULL */
    /* It names code that is run. A settings file may come from anybody, so only who starts the
     * program gives it a value; files neither set nor keep it. */
    bool typed_only;
} tri_setting;

typedef struct tri_section {
    const char *name;
    const char *help;
} tri_section;

/* Rows of one section stand together, in the order of the sections. */
extern const tri_setting tri_settings_table[];
extern const int tri_num_settings;

extern const tri_section tri_sections[];
extern const int tri_num_sections;

/* Rows by name, or -1. */
int tri_setting_find(const char *name);
int tri_section_find(const char *name);

/* Whether a setting is one of these: sections and full names with blanks between; NULL is all. */
bool tri_setting_wanted(const tri_setting *row, const char *which);

/* What may be given, in few words: "1 to 1000", "relu, gelu", "true, false", "text". */
void tri_setting_values(const tri_setting *row, char *out, size_t size);

/* The setting that a person most likely meant; *far says that it is hardly more than a guess. */
int tri_setting_nearest(const char *name, bool *far);

#endif
