/* A row of the table of settings. It stands where it is read: what all runs have in
 * config/settings_table.c, what one model, update rule or schedule has beside that. */
#ifndef TRI_BASE_SETTINGS_ROW_H
#define TRI_BASE_SETTINGS_ROW_H

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
    /* What other trainers call it, so that a newcomer's first guess leads here: for suggestions
     * only; may be NULL. */
    const char *also;
    /* It names code that is run. A settings file may come from anybody, so only who starts the
     * program gives it a value; files neither set nor keep it. */
    bool typed_only;
    /* So does this one, and it is run when the setting is given. A file keeps it, as what it needs,
     * and does not load it. */
    bool loads;
} tri_setting;

#define TRI_BOOL_ROW(name, fallback, help, also)                                                   \
    {                                                                                              \
        name, TRI_SETTING_BOOL, fallback, 0, 1, NULL, help, also, false, false                     \
    }
#define TRI_INT_ROW(name, fallback, min, max, help, also)                                          \
    {                                                                                              \
        name, TRI_SETTING_INT, fallback, min, max, NULL, help, also, false, false                  \
    }
#define TRI_FLOAT_ROW(name, fallback, min, max, help, also)                                        \
    {                                                                                              \
        name, TRI_SETTING_FLOAT, fallback, min, max, NULL, help, also, false, false                \
    }
#define TRI_TYPED_ROW(name, help, also)                                                            \
    {                                                                                              \
        name, TRI_SETTING_STRING, "", 0, 0, NULL, help, also, true, false                          \
    }
#define TRI_LOADED_ROW(name, help, also)                                                           \
    {                                                                                              \
        name, TRI_SETTING_STRING, "", 0, 0, NULL, help, also, false, true                          \
    }
#define TRI_STRING_ROW(name, fallback, help, also)                                                 \
    {                                                                                              \
        name, TRI_SETTING_STRING, fallback, 0, 0, NULL, help, also, false, false                   \
    }
#define TRI_CHOICE_ROW(name, fallback, choices, help, also)                                        \
    {                                                                                              \
        name, TRI_SETTING_CHOICE, fallback, 0, 0, choices, help, also, false, false                \
    }

#define TRI_BILLION 1e9 /* what a count is at most */

/* The settings of a model, an update rule or a schedule beside those that all of them have. */
typedef struct tri_owned {
    const tri_setting *rows; /* that it brings */
    int num_rows;
    const char *reads;    /* names of those that others bring and it reads, too, blanks between */
    const char *defaults; /* where its own are others: assignments, blanks between */
} tri_owned;

#endif
