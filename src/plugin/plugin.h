/* Plug-ins (trireme/plugin.h) as the rest of the library sees them: rows of its own tables.
 *
 * A plug-in is opened once for each settings object that names it, and is the settings' own: other
 * runs of the program do not see what it brings. Clones share it. Everything here is immutable once
 * it is made, and may be used from several threads. */
#ifndef TRI_PLUGIN_PLUGIN_H
#define TRI_PLUGIN_PLUGIN_H

#include "comm/transport/library.h"
#include "model/model.h"
#include "optim/optim.h"
#include "train/schedule_lr.h"
#include "trireme/plugin.h"

enum { TRI_MAX_PLUGIN_ROWS = 32, TRI_MAX_PLUGINS = 16 }; /* models, rules, schedules; files */

/* What stands in the tables comes first, so that its address leads to the plug-in's own row. */
typedef struct tri_outside_model {
    tri_model_def def;
    const tr_plugin_model *row;
} tri_outside_model;

typedef struct tri_outside_rule {
    tri_optim_def def;
    const tr_plugin_rule *row;
} tri_outside_rule;

typedef struct tri_outside_lr {
    tri_lr_def def;
    const tr_plugin_schedule *row;
} tri_outside_lr;

typedef struct tri_plugin {
    _Atomic int refs;
    char *path; /* without links */
    const char *name, *version;
    uint64_t hash; /* of its bytes, as they were checked and opened */
    tri_library library;
    tri_outside_model models[TRI_MAX_PLUGIN_ROWS];
    tri_outside_rule rules[TRI_MAX_PLUGIN_ROWS];
    tri_outside_lr schedules[TRI_MAX_PLUGIN_ROWS];
    int num_models, num_rules, num_schedules;
    tri_setting *settings; /* of all of them, one after the other */
    int num_settings;
} tri_plugin;

/* Opens a file as a plug-in and looks at its table, without calling anything of it. The file and
 * the folders above it must be those of root or of the user, with nobody else to write to them. */
tr_status tri_plugin_open(const char *path, tri_plugin **plugin, tr_error *err);
tri_plugin *tri_plugin_share(tri_plugin *plugin);
void tri_plugin_release(tri_plugin *plugin); /* NULL is fine */

/* table.c: the rows of a plug-in's table become those of ours. */
tr_status tri_plugin_take(tri_plugin *plugin, const tr_plugin *table, tr_error *err);

/* What plug-ins may call, and how the library calls them. */
extern const tr_tools tri_plugin_tools;
void tri_outside_model_def(tri_outside_model *model, tri_owned own); /* tools_model.c */
void tri_outside_rule_def(tri_outside_rule *rule, tri_owned own);    /* tools_update.c */
void tri_outside_lr_def(tri_outside_lr *schedule, tri_owned own);
tr_value tri_tool_moment(tr_updates *updates, const char *name);
tr_value tri_tool_momentum(tr_updates *updates, tr_value state, double beta, bool nesterov);
tr_value tri_tool_unit_norm(tr_updates *updates, const char *name, tr_value x, double eps);
tr_value tri_tool_sum(tr_updates *updates, const char *name, double a, tr_value x, double b,
                      tr_value y);
void tri_tool_apply(tr_updates *updates, tr_value x, double scale);

#endif
