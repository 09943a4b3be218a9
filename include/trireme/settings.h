/* Settings: everything a run can be told, as "section.key" names with values.
 *
 * All of them stand in one table: the parser, the help, the reference page and the error messages
 * are made from it. A settings object starts with every default, is changed by YAML files and by
 * "section.key=value" assignments (the later one wins), and can be written back as YAML that loads
 * to the same values. A setting that names code to run (run.nccl_library) is the exception: files
 * neither set nor keep it; run.plugins, which loads code when it is set, is kept by files as what
 * they need, and not loaded by them. */
#ifndef TRIREME_SETTINGS_H
#define TRIREME_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_settings tr_settings;

/* All settings at their defaults. */
tr_status tr_settings_create(tr_settings **settings, tr_error *err);
void tr_settings_destroy(tr_settings *settings);

/* Reads a YAML file whose top level is sections and whose sections hold keys. All or nothing: when
 * it fails, the settings are as they were. Errors name the file, the line and the key. */
tr_status tr_settings_load(tr_settings *settings, const char *yaml_path, tr_error *err);

/* The same from memory; name stands for the file in messages. */
tr_status tr_settings_load_text(tr_settings *settings, const char *name, const char *text,
                                size_t num_bytes, tr_error *err);

/* One assignment, "section.key=value". A string value is taken as it stands; a list of strings is
 * written with ';' between its parts. */
tr_status tr_settings_set(tr_settings *settings, const char *assignment, tr_error *err);

/* A better default, for presets and for defaults that depend on other settings: assigns unless a
 * file or tr_settings_set gave the setting a value, and does not count as given. */
tr_status tr_settings_fill(tr_settings *settings, const char *assignment, tr_error *err);

/* Was the value given by a file or by tr_settings_set, and not left at its default? */
bool tr_settings_given(const tr_settings *settings, const char *name);

/* Typed reads. A name that is not known, or is of another type, reads as false, 0, "" or, for a
 * choice, -1; tr_settings_set says of such a name what is wrong with it. Strings live until the
 * setting changes or the settings are destroyed. */
bool tr_settings_bool(const tr_settings *settings, const char *name);
int64_t tr_settings_int(const tr_settings *settings, const char *name);
double tr_settings_float(const tr_settings *settings, const char *name);
const char *tr_settings_string(const tr_settings *settings, const char *name); /* also a choice */
int tr_settings_choice(const tr_settings *settings, const char *name); /* its place in the list */

/* The resolved settings as YAML, by section; loading it gives the same values, bit for bit. */
tr_status tr_settings_write_yaml(const tr_settings *settings, FILE *file, tr_error *err);

/* And as one JSON object, by their full names. */
tr_status tr_settings_write_json(const tr_settings *settings, FILE *file, tr_error *err);

/* YAML into a file, replaced as a whole: a reader sees the old one or the new one. */
tr_status tr_settings_save(const tr_settings *settings, const char *path, tr_error *err);

/* A readable list of settings, wrapped to width columns. which is NULL for all of them, or sections
 * and full names with spaces between ("optim run.dir"); one that is not known is an error. */
tr_status tr_settings_help(FILE *file, const char *which, int width, tr_error *err);

/* The reference page, docs/settings.md. */
void tr_settings_markdown(FILE *file);

#ifdef __cplusplus
}
#endif
#endif
