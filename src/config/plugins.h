/* The plug-ins of a settings object, and what they add to the tables. */
#ifndef TRI_CONFIG_PLUGINS_H
#define TRI_CONFIG_PLUGINS_H

#include "config/settings_table.h"
#include "plugin/plugin.h"

enum { TRI_NUM_SELECTORS = 3, TRI_MAX_RULES_OUTSIDE = 64 };

/* Immutable: one more plug-in makes another of these. Clones of settings share it. */
struct tri_plugins {
    _Atomic int refs;
    tri_plugin *plugin[TRI_MAX_PLUGINS];
    int num;
    tri_setting selector_row[TRI_NUM_SELECTORS]; /* with the kinds of all plug-ins */
    char choices[TRI_NUM_SELECTORS][800];
    const tri_optim_def *rule[TRI_MAX_RULES_OUTSIDE]; /* of all of them */
    int num_rules;
};

tri_plugins *tri_plugins_share(tri_plugins *plugins); /* NULL is fine, as below */
void tri_plugins_release(tri_plugins *plugins);

/* Kinds by their place among those of all plug-ins; NULL past the end. */
const tri_model_def *tri_plugins_model_at(const tri_plugins *plugins, size_t i);
const tri_optim_def *tri_plugins_rule_at(const tri_plugins *plugins, size_t i);
const tri_lr_def *tri_plugins_lr_at(const tri_plugins *plugins, size_t i);

/* One number for the bytes of all of them, below 2^52 so that a double holds it; 0: there are none.
 */
uint64_t tri_plugins_hash(const tri_plugins *plugins);

/* What run.plugins is given: files with ';' between. Each that is not loaded is, and what it brings
 * is in the table from then on. All or nothing. */
tr_status tri_settings_load_plugins(tr_settings *settings, const char *paths, tr_error *err);

/* A settings file names plug-ins as what it needs (run.plugins). They must be loaded: a file may
 * come from anybody, and so does not run code. One of the same file name does, wherever it lies. */
tr_status tri_settings_check_needs(const tr_settings *settings, const char *name, const char *text,
                                   size_t num_bytes, tr_error *err);

/* The model that is chosen. */
const tri_model_def *tri_settings_model(const tr_settings *settings);

#endif
