/* Who brings settings, and reads them, besides what all runs have: models, update rules, schedules
 * of the learning rate. Each is chosen by a setting of its own. */
#ifndef TRI_CONFIG_OWNERS_H
#define TRI_CONFIG_OWNERS_H

#include "config/settings_table.h"
#include "trireme/settings.h"

typedef struct tri_owner {
    const char *kind;
    const tri_owned *own;
} tri_owner;

typedef struct tri_selector {
    const tri_setting *row; /* the setting that chooses */
    /* Those of the tree, then those of plug-ins (NULL: none); false past the end. */
    bool (*at)(const tri_plugins *plugins, size_t i, tri_owner *owner);
} tri_selector;

extern const tri_selector tri_selectors[]; /* model.kind, optim.kind, optim.schedule */
extern const int tri_num_selectors;

bool tri_owner_reads(const tri_owner *owner, const char *setting);
/* The selector on whose kind it depends whether a setting is read; NULL: it is for all. */
const tri_selector *tri_selector_of(const tri_plugins *plugins, const char *setting);

/* The defaults of what is chosen. */
tr_status tri_settings_fill_owned(tr_settings *settings, const char *selector, tr_error *err);

#endif
