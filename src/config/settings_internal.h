/* What the files of the settings share. */
#ifndef TRI_CONFIG_SETTINGS_INTERNAL_H
#define TRI_CONFIG_SETTINGS_INTERNAL_H

#include "base/error.h"
#include "config/settings_table.h"
#include "trireme/settings.h"

typedef struct tri_setting_value {
    int64_t integer; /* BOOL as 0 or 1, INT, CHOICE as its place in the list */
    double real;     /* FLOAT */
    char *string;    /* STRING and CHOICE, owned; NULL otherwise */
    bool given;
} tri_setting_value;

struct tr_settings {
    tri_table table;
    tri_plugins *plugins;      /* NULL: none */
    tri_setting_value *values; /* one per row of the table */
};

/* settings.c */
const char *tri_setting_key(const tri_setting *row); /* after the dot */
const tri_setting *tri_section_first(const tri_table *table, const char *section); /* an example */
/* The setting that "SECTION: auto" turns on, a BOOL; -1: the section has none. */
int tri_section_auto(const tri_table *table, const char *section);
tr_status tri_settings_clone(const tr_settings *from, tr_settings **to, tr_error *err);

/* unknown.c */
/* The errors for names that the table does not have; they say what was meant. Where the second is
 * used, a section may stand as well as a setting. */
tr_status tri_setting_unknown(const tri_table *table, const char *name, tr_error *err);
tr_status tri_section_unknown(const tri_table *table, const char *name, tr_error *err);

/* settings_value.c: one value, from and to text. */

/* Replaces what value holds, except given; unchanged when the text is wrong. */
tr_status tri_setting_parse(const tri_setting *row, const char *text, tri_setting_value *value,
                            tr_error *err);
/* "a whole number from 1 to 1000", ...: what a value of this row looks like. */
void tri_setting_expected(const tri_setting *row, char *out, size_t size);
/* BOOL, INT and FLOAT so that they parse to the same value; size of 32 is enough. */
void tri_setting_format(const tri_setting *row, const tri_setting_value *value, char *out,
                        size_t size);
/* A bound of a range, as short as it is exact: 0.95, 1000, 1e9. */
void tri_setting_bound(double bound, char *out, size_t size);
/* Text from a user, made fit for a message: short, one line, no control characters. */
void tri_setting_show(const char *text, char *out, size_t size);

#endif
