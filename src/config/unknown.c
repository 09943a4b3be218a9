/* What to answer to a name that the table does not have. */
#include <string.h>
#include <strings.h>

#include "base/settings/nearest.h"
#include "config/aliases.h"
#include "config/settings_internal.h"

enum { MAX_NAME = 64 }; /* longer than any name in the table */

/* The section that a person most likely meant, or -1 when it is like none of them. */
static int section_meant(const char *name)
{
    int best = -1, least = 1000;
    for (int i = 0; i < tri_num_sections; i++) {
        const char *section = tri_sections[i].name;
        int distance = tri_edit_distance(name, section);
        if (strncasecmp(name, section, strlen(section)) == 0)
            distance = 0; /* optimizer, training, dataset */
        if (distance < least && 3 * distance <= (int)strlen(name)) {
            least = distance;
            best = i;
        }
    }
    return best;
}

/* Is word one of the words of list? */
static bool is_among(const char *word, const char *list)
{
    size_t length = strlen(word);
    while (list && *list) {
        size_t n = strcspn(list, " ");
        if (n == length && strncasecmp(list, word, n) == 0)
            return true;
        list += n;
        list += strspn(list, " ");
    }
    return false;
}

/* How far a row is from what was typed, in half edits. Four ways to be near it: a typing error in
 * the key, the right key in another section, another trainer's word, a part of the key. */
static int distance_to(const tri_setting *row, const char *section, const char *key)
{
    enum { NOT_MEANT = 1000 };
    bool elsewhere = !tri_setting_in(row, section);
    const char *row_key = tri_setting_key(row);
    int edits = tri_edit_distance(key, row_key);
    int least = 2 * edits + elsewhere;
    /* In another section only a good match counts, or layout.tp would lead to optim.lr. */
    if (elsewhere && *section && 3 * edits > (int)strlen(key))
        least = NOT_MEANT;
    if (is_among(key, row->also) && 1 + elsewhere < least)
        least = 1 + elsewhere;
    else if (strlen(key) >= 3 && (strcasestr(row_key, key) || strcasestr(key, row_key)))
        least -= elsewhere ? 1 : 2;
    return least;
}

/* The section that was meant ("" for none) and the key of a name as typed. */
static void split(const char *name, char section[MAX_NAME], char key[MAX_NAME])
{
    const char *dot = strchr(name, '.');
    section[0] = 0;
    if (dot)
        snprintf(section, MAX_NAME, "%.*s", (int)(dot - name < MAX_NAME ? dot - name : 0), name);
    snprintf(key, MAX_NAME, "%s", dot ? dot + 1 : name);
    if (tri_section_find(section) < 0) {
        int meant = section_meant(section);
        snprintf(section, MAX_NAME, "%s", meant < 0 ? "" : tri_sections[meant].name);
    }
}

/* Is the key another word for a setting of the very section it was typed in? */
static bool is_own_word(const tri_table *table, const char *name)
{
    char section[MAX_NAME], key[MAX_NAME];
    split(name, section, key);
    for (int i = 0; i < table->num; i++)
        if (*section && tri_setting_in(table->row[i], section) &&
            is_among(key, table->row[i]->also))
            return true;
    return false;
}

int tri_setting_nearest(const tri_table *table, const char *name, bool *far)
{
    char section[MAX_NAME], key[MAX_NAME];
    split(name, section, key);
    int best = 0, least = 10000;
    for (int i = 0; i < table->num; i++) {
        int distance = distance_to(table->row[i], section, key);
        if (distance < least) {
            least = distance;
            best = i;
        }
    }
    *far = least > 2 * (int)strlen(key) / 3 + 1;
    return best;
}

/* What a name of another trainer is here; false when it is none. A key that is right for the
 * section before it comes first: batch_size is generate.batch in generate. */
static bool fail_alias(const tri_table *table, const char *name, const char *shown, tr_error *err)
{
    const tri_alias *alias = tri_alias_find(name);
    if (!alias || is_own_word(table, name))
        return false;
    if (!alias->setting)
        tri_fail(err, TR_ERROR_INPUT, "there is no setting \"%s\": %s", shown, alias->how);
    else
        tri_fail(err, TR_ERROR_INPUT, "unknown setting \"%s\"; did you mean %s (%s)?", shown,
                 alias->setting,
                 alias->how ? alias->how : tri_setting_named(table, alias->setting)->help);
    return true;
}

tr_status tri_setting_unknown(const tri_table *table, const char *name, tr_error *err)
{
    char shown[80], section[MAX_NAME] = "";
    bool far;
    tri_setting_show(name, shown, sizeof shown);
    if (fail_alias(table, name, shown, err))
        return TR_ERROR_INPUT;
    const tri_setting *row = table->row[tri_setting_nearest(table, name, &far)];
    if (!far)
        return tri_fail(err, TR_ERROR_INPUT, "unknown setting \"%s\"; did you mean %s (%s)?", shown,
                        row->name, row->help);
    size_t length = strcspn(name, ".");
    snprintf(section, sizeof section, " %.*s", (int)(length < 32 ? length : 32), name);
    return tri_fail(err, TR_ERROR_INPUT,
                    "unknown setting \"%s\"; trireme settings%s lists what there is, and trireme "
                    "settings --aliases what other trainers call it",
                    shown, tri_section_find(section + 1) >= 0 ? section : "");
}

tr_status tri_section_unknown(const tri_table *table, const char *name, tr_error *err)
{
    char shown[80];
    const char *meant = strchr(name, '.') ? NULL : tri_alias_section(name);
    int section = strchr(name, '.') || meant ? -1 : section_meant(name);
    if (section < 0 && !meant)
        return tri_setting_unknown(table, name, err);
    tri_setting_show(name, shown, sizeof shown);
    return tri_fail(err, TR_ERROR_INPUT, "unknown section \"%s\"; did you mean %s?", shown,
                    meant ? meant : tri_sections[section].name);
}
