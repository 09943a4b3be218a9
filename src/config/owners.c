#include "config/owners.h"

#include <string.h>

#include "base/error.h"
#include "config/plugins.h"
#include "config/settings_internal.h"
#include "model/model.h"
#include "optim/optim.h"
#include "train/schedule_lr.h"

static bool model_at(const tri_plugins *plugins, size_t i, tri_owner *owner)
{
    size_t num = 0;
    while (tri_model_at(num))
        num++;
    const tri_model_def *def = i < num ? tri_model_at(i) : tri_plugins_model_at(plugins, i - num);
    if (def)
        *owner = (tri_owner){def->kind, &def->own};
    return def != NULL;
}

static bool rule_at(const tri_plugins *plugins, size_t i, tri_owner *owner)
{
    size_t num = 0;
    while (tri_optim_at(num))
        num++;
    const tri_optim_def *def = i < num ? tri_optim_at(i) : tri_plugins_rule_at(plugins, i - num);
    if (def)
        *owner = (tri_owner){def->kind, &def->own};
    return def != NULL;
}

static bool lr_at(const tri_plugins *plugins, size_t i, tri_owner *owner)
{
    size_t num = 0;
    while (tri_lr_def_at(num))
        num++;
    const tri_lr_def *def = i < num ? tri_lr_def_at(i) : tri_plugins_lr_at(plugins, i - num);
    if (def)
        *owner = (tri_owner){def->kind, &def->own};
    return def != NULL;
}

const tri_selector tri_selectors[] = {
    {&tri_model_kind_row, model_at}, {&tri_optim_kind_row, rule_at}, {&tri_lr_kind_row, lr_at}};
const int tri_num_selectors = sizeof tri_selectors / sizeof *tri_selectors;

static bool brings(const tri_owner *owner, const char *setting)
{
    for (int i = 0; i < owner->own->num_rows; i++)
        if (strcmp(owner->own->rows[i].name, setting) == 0)
            return true;
    return false;
}

bool tri_owner_reads(const tri_owner *owner, const char *setting)
{
    size_t length = strlen(setting);
    for (const char *at = owner->own->reads; at && *at; at += strspn(at, " ")) {
        if (strcspn(at, " ") == length && strncmp(at, setting, length) == 0)
            return true;
        at += strcspn(at, " ");
    }
    return brings(owner, setting);
}

const tri_selector *tri_selector_of(const tri_plugins *plugins, const char *setting)
{
    tri_owner owner;
    for (int k = 0; k < tri_num_selectors; k++)
        for (size_t i = 0; tri_selectors[k].at(plugins, i, &owner); i++)
            if (brings(&owner, setting))
                return &tri_selectors[k];
    return NULL;
}

static tr_status fill(tr_settings *settings, const char *assignments, tr_error *err)
{
    for (const char *at = assignments; at && *at; at += strspn(at, " ")) {
        char one[128];
        size_t length = strcspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        TRI_TRY(tr_settings_fill(settings, one, err));
        at += length;
    }
    return TR_OK;
}

tr_status tri_settings_fill_owned(tr_settings *settings, const char *selector, tr_error *err)
{
    tri_owner owner;
    const char *kind = tr_settings_string(settings, selector);
    for (int k = 0; k < tri_num_selectors; k++)
        for (size_t i = 0; tri_selectors[k].at(settings->plugins, i, &owner); i++)
            if (strcmp(tri_selectors[k].row->name, selector) == 0 && strcmp(owner.kind, kind) == 0)
                return fill(settings, owner.own->defaults, err);
    return TR_OK;
}
