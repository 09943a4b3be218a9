/* Two tables. The first is data alone, in needs.c: a setting, and what another one must be for it
 * to matter; where that is a kind of model, update rule or schedule, these say what they read. The
 * second is for what takes a look at more than one setting. */
#include "config/notes_parts.h"

#include <stdlib.h>
#include <string.h>

#include "config/needs.h"
#include "config/owners.h"
#include "config/settings_internal.h"

/* ---- settings that belong to values of others ---- */

static const tri_setting_value *value_of(const tr_settings *settings, const char *name)
{
    return &settings->values[tri_setting_find(&settings->table, name)];
}

void tri_note_show(const tr_settings *settings, const char *name, char out[64])
{
    const tri_setting *row = tri_setting_named(&settings->table, name);
    const tri_setting_value *value = value_of(settings, name);
    if (value->string)
        snprintf(out, 64, "%s", value->string);
    else if (row->type == TRI_SETTING_FLOAT)
        snprintf(out, 64, "%.6g", value->real);
    else
        tri_setting_format(row, value, out, 64);
}

/* Given, and as something else than the default: a file may list all settings. */
bool tri_note_is_set(const tr_settings *settings, const char *name)
{
    const tri_setting *row = tri_setting_named(&settings->table, name);
    const tri_setting_value *value = value_of(settings, name);
    tri_setting_value fallback = {0};
    if (!value->given || tri_setting_parse(row, row->fallback, &fallback, NULL) != TR_OK)
        return false;
    bool same = value->string ? strcmp(value->string, fallback.string) == 0
                              : value->integer == fallback.integer && value->real == fallback.real;
    free(fallback.string);
    return !same;
}

static void first_name(const char *names, char name[64])
{
    snprintf(name, 64, "%.*s", (int)strcspn(names, "|"), names);
}

static bool is_met(const tr_settings *settings, const tri_need *n)
{
    char have[64], name[64];
    if (n->is == '>') { /* it, or another that does as well */
        const char *bar = strchr(n->other, '|');
        first_name(n->other, name);
        const tri_setting_value *value = value_of(settings, name);
        return (double)value->integer + value->real > atof(n->value) ||
               (bar && is_met(settings, &(tri_need){n->setting, bar + 1, '>', n->value}));
    }
    tri_note_show(settings, n->other, have);
    bool among = false;
    for (const char *at = n->value; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        among |= strlen(have) == length && strncmp(have, at, length) == 0;
        at += length;
    }
    return among == (n->is == '=');
}

/* Groups of parameters may have rules of their own. */
static bool is_other_rule(const tr_settings *settings, const tri_need *n)
{
    return strcmp(n->other, "optim.kind") == 0 &&
           strstr(tr_settings_string(settings, "optim.groups"), "kind=");
}

static void tell_need(const tr_settings *settings, const tri_need *n, char note[TRI_MAX_NOTE])
{
    char have[64], value[64], fix[160], other[64];
    const char *bar = strchr(n->other, '|');
    first_name(n->other, other);
    tri_note_show(settings, other, have);
    tri_note_show(settings, n->setting, value);
    const char *comma = strchr(n->value, ','), *last = strrchr(n->value, ',');
    int first = comma ? (int)(comma - n->value) : (int)strlen(n->value);
    char middle[32] = "";
    if (comma != last)
        snprintf(middle, sizeof middle, "%.*s", (int)(last - comma - 1), comma + 1);
    if (n->is == '>')
        snprintf(fix, sizeof fix, "set %s%s%s above %s", other, bar ? " or " : "",
                 bar ? bar + 1 : "", n->value);
    else if (n->is == '!')
        snprintf(fix, sizeof fix, "choose another %s", n->other);
    else
        /* "a", "a or b", "a, b or c" */
        snprintf(fix, sizeof fix, "set %s=%.*s%s%s%s%s", n->other, first, n->value,
                 comma && comma != last ? ", " : "", middle, last ? " or " : "",
                 last ? last + 1 : "");
    snprintf(note, TRI_MAX_NOTE, "%s=%s has no effect with %s=%s; %s, or leave it out", n->setting,
             value, other, have, fix);
}

/* ---- settings that a model, an update rule or a schedule brings ---- */

enum { MAX_KINDS = 400 };

/* The same for one of these: who reads it, or, where all but one do, who does not. False where it
 * is for all. */
static bool owned_need(const tri_plugins *plugins, const char *setting, tri_need *n,
                       char kinds[MAX_KINDS])
{
    const tri_selector *of = tri_selector_of(plugins, setting);
    tri_owner owner;
    int without = 0;
    if (!of)
        return false;
    for (size_t i = 0; of->at(plugins, i, &owner); i++)
        without += !tri_owner_reads(&owner, setting);
    kinds[0] = 0;
    for (size_t i = 0; of->at(plugins, i, &owner); i++)
        if (tri_owner_reads(&owner, setting) == (without != 1)) {
            strncat(kinds, *kinds ? "," : "", MAX_KINDS - strlen(kinds) - 1);
            strncat(kinds, owner.kind, MAX_KINDS - strlen(kinds) - 1);
        }
    *n = (tri_need){setting, of->row->name, without == 1 ? '!' : '=', kinds};
    return true;
}

int tri_num_notes(void)
{
    tri_table table;
    tri_need n;
    char kinds[MAX_KINDS];
    int num = tri_num_note_rules + tri_num_needs;
    tri_table_init(&table, NULL);
    for (int i = 0; i < table.num; i++)
        num += owned_need(NULL, table.row[i]->name, &n, kinds);
    return num;
}

static bool is_idle(const tr_settings *settings, const tri_need *n)
{
    return tri_note_is_set(settings, n->setting) && !is_met(settings, n) &&
           !is_other_rule(settings, n);
}

/* Those that the second table has told of are not told of again. */
static void tell_owned(const tr_settings *settings, tri_note_fn say, void *context)
{
    char note[TRI_MAX_NOTE], kinds[MAX_KINDS];
    tri_need n;
    int row = tri_num_note_rules + tri_num_needs;
    for (int i = 0; i < settings->table.num; i++) {
        if (!owned_need(settings->plugins, settings->table.row[i]->name, &n, kinds))
            continue;
        bool told = false;
        for (int k = 0; k < tri_num_needs && !told; k++)
            told = strcmp(tri_needs[k].setting, n.setting) == 0 && is_idle(settings, &tri_needs[k]);
        if (!told && is_idle(settings, &n)) {
            tell_need(settings, &n, note);
            say(context, row, note);
        }
        row++;
    }
}

void tri_notes(const tr_settings *settings, const tri_session *session, tri_note_fn say,
               void *context)
{
    char note[TRI_MAX_NOTE];
    tri_note_facts f = {.settings = settings,
                        .session = session,
                        .compile = &session->config.compile,
                        .num_steps = session->row ? session->num_steps
                                                  : tr_settings_int(settings, "train.steps"),
                        .has_data = session->row != NULL};
    for (int i = 0; i < tri_num_note_rules; i++)
        if ((!tri_note_rules[i].setting || tri_note_is_set(settings, tri_note_rules[i].setting)) &&
            tri_note_rules[i].tells(&f, note))
            say(context, i, note);
    const char *told = "";
    for (int i = 0; i < tri_num_needs; i++) {
        const tri_need *n = &tri_needs[i];
        if (strcmp(told, n->setting) == 0 || !is_idle(settings, n))
            continue;
        tell_need(settings, n, note);
        say(context, tri_num_note_rules + i, note);
        told = n->setting; /* once each */
    }
    tell_owned(settings, say, context);
}
