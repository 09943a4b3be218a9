/* Candidates come from the tables that --help is made from. Nothing here fails: what cannot be read
 * is not offered, since a shell has nowhere to show an error. */
#include "cli/words/completion.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/recipe.h"
#include "cli/runs/run_find.h"
#include "cli/short_forms.h"
#include "cli/words/usage.h"
#include "config/settings_table.h"
#include "mesh/devices.h"
#include "model/model.h"
#include "schedule/schedule.h"

/* The word to complete: what stands fast, and the begin of what is looked for. */
typedef struct begun_word {
    const char *word;
    int fixed;        /* bytes of word: "--set=", "optim.kind=" */
    bool files, dirs; /* said already */
    const tri_verb *verb;
} begun_word;

static void offer(const begun_word *w, const char *candidate, const char *end, const char *help)
{
    const char *begun = w->word + w->fixed;
    if (strncmp(candidate, begun, strlen(begun)) == 0)
        printf("%.*s%s%s\t%s\n", w->fixed, w->word, candidate, end, help);
}

static void offer_files(begun_word *w)
{
    if (!w->files)
        printf(":files %.*s\n", w->fixed, w->word);
    w->files = true;
}

static void offer_dirs(begun_word *w)
{
    if (!w->dirs && !w->files)
        printf(":dirs %.*s\n", w->fixed, w->word);
    w->dirs = true;
}

static void offer_verbs(const begun_word *w)
{
    for (const tri_verb *verb = tri_verbs; verb->name; verb++)
        offer(w, verb->name, "", verb->help);
}

static void offer_recipe(void *context, const char *name)
{
    offer(context, name, "", "a recipe");
}

/* What a person may name beside a run is a directory anywhere. */
static void offer_runs(begun_word *w)
{
    tri_run_list list = {0};
    if (tri_path_is_dir(TRI_RUNS_FOLDER))
        (void)tri_runs_find(&list, TRI_RUNS_FOLDER, NULL);
    for (size_t i = 0; i < list.num; i++)
        if (!strpbrk(list.dirs[i], "\n\t"))
            offer(w, list.dirs[i], "", "a run");
    tri_run_list_free(&list);
}

/* "one, two, three" */
static void offer_list(const begun_word *w, const char *list)
{
    while (*list) {
        char choice[64];
        size_t length = strcspn(list, ", ");
        snprintf(choice, sizeof choice, "%.*s", (int)length, list);
        offer(w, choice, "", "");
        list += length;
        list += strspn(list, ", ");
    }
}

static void offer_schedules(const begun_word *w)
{
    for (size_t i = 0; tri_order_at(i); i++)
        offer(w, tri_order_at(i)->name, "", tri_order_at(i)->help);
}

/* Numbers are for people to choose; a text may be the name of a file. */
static void offer_values(begun_word *w, const tri_setting *row)
{
    if (strcmp(row->name, "layout.schedule") == 0)
        offer_schedules(w);
    else if (strcmp(row->name, "model.preset") == 0)
        for (size_t i = 0; tri_preset_at(i); i++)
            offer(w, tri_preset_at(i)->name, "", tri_preset_at(i)->kind);
    else if (row->type == TRI_SETTING_BOOL)
        offer_list(w, "true, false");
    else if (row->type == TRI_SETTING_CHOICE)
        offer_list(w, row->choices);
    else if (row->type == TRI_SETTING_STRING)
        offer_files(w);
}

/* What --set takes: a name first, then one of its values. */
static void offer_assignment(begun_word *w)
{
    const char *begun = w->word + w->fixed, *equals = strchr(begun, '=');
    char name[64] = "";
    tri_table table;
    tri_table_init(&table, NULL);
    if (!equals) {
        for (int i = 0; i < table.num; i++)
            if (tri_setting_wanted(table.row[i], w->verb->sections))
                offer(w, table.row[i]->name, "=", table.row[i]->help);
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(equals - begun), begun);
    int row = tri_setting_find(&table, name);
    w->fixed = (int)(equals + 1 - w->word);
    if (row >= 0)
        offer_values(w, table.row[row]);
}

static void offer_names(const begun_word *w)
{
    tri_table table;
    tri_table_init(&table, NULL);
    for (int i = 0; i < tri_num_sections; i++)
        offer(w, tri_sections[i].name, "", tri_sections[i].help);
    for (int i = 0; i < table.num; i++)
        offer(w, table.row[i]->name, "", table.row[i]->help);
}

/* What a usage line names next: a word of its own, or a kind. */
static void offer_operand(void *context, const char *word, int length)
{
    begun_word *w = context;
    char kind[64];
    snprintf(kind, sizeof kind, "%.*s", length, word);
    if (!isupper((unsigned char)kind[0]))
        offer(w, kind, "", "");
    else if (strcmp(kind, "VERB") == 0)
        offer_verbs(w);
    else if (strcmp(kind, "NAME") == 0)
        offer_names(w);
    else if (strcmp(kind, "RECIPE") == 0)
        tri_recipes_list(offer_recipe, w);
    else if (strncmp(kind, "RUN", 3) == 0 || strlen(kind) == 1) /* diff A B */
        offer_runs(w);
    if (strncmp(kind, "FILE", 4) == 0 || strcmp(kind, "PATH") == 0 || strcmp(kind, "TEXT") == 0 ||
        strlen(kind) == 1)
        offer_files(w);
    else if (strncmp(kind, "RUN", 3) == 0 || strstr(kind, "DIR"))
        offer_dirs(w);
}

static void offer_flag_value(begun_word *w, const tri_flag *flag)
{
    const char *setting = tri_short_form_setting(w->verb, flag->name);
    bool device = strcmp(flag->name, "device") == 0, link = strcmp(flag->name, "link") == 0;
    tri_table table;
    tri_table_init(&table, NULL);
    if (setting && strcmp(flag->name, "name") != 0)
        offer_values(w, tri_setting_named(&table, setting));
    else if (strcmp(flag->name, "schedule") == 0)
        offer_schedules(w);
    for (size_t i = 0; device && tri_device_spec_at(i); i++)
        offer(w, tri_device_spec_at(i)->name, "", tri_device_spec_at(i)->title);
    for (size_t i = 0; link && tri_link_spec_at(i); i++)
        offer(w, tri_link_spec_at(i)->name, "", tri_link_spec_at(i)->title);
    if (strstr(flag->argument, "RUN"))
        offer_runs(w);
    if (strstr(flag->argument, "FILE") || strstr(flag->argument, "PATH"))
        offer_files(w);
    else if (strstr(flag->argument, "DIR"))
        offer_dirs(w);
}

static void offer_flags(const begun_word *w)
{
    char name[64];
    for (const tri_flag *flag = w->verb->flags; flag && flag->name; flag++) {
        snprintf(name, sizeof name, "--%s", flag->name);
        if (flag->help)
            offer(w, name, "", flag->help);
    }
    if (tri_verb_has_settings(w->verb))
        offer(w, "--set", "", "change one setting");
    if (tri_verb_takes_plugins(w->verb))
        offer(w, "--plugin", "", "load models, rules and schedules from outside");
    offer(w, "--help", "", "what the verb does, its flags and settings");
}

/* The flag that a word with dashes is, as far as its '='; NULL: --set, or none. */
static const tri_flag *flag_of(const tri_verb *verb, const char *word)
{
    size_t length = strcspn(word, "=");
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++)
        if (length == strlen(flag->name) + 2 && strncmp(word + 2, flag->name, length - 2) == 0)
            return flag;
    return NULL;
}

/* What was typed before the word to complete. */
typedef struct typed_before {
    const char **operands;
    int num_operands;
    bool flags_end, wants_assignment, wants_plugin;
    const tri_flag *wants_value;
} typed_before;

static void read_before(typed_before *b, const tri_verb *verb, int num_words, char **words)
{
    for (int i = 0; i < num_words; i++) {
        const char *word = words[i];
        bool valued = b->wants_value || b->wants_assignment || b->wants_plugin;
        b->wants_value = NULL;
        b->wants_assignment = b->wants_plugin = false;
        if (valued)
            continue;
        if (b->flags_end || word[0] != '-' || !word[1]) {
            b->operands[b->num_operands++] = word;
        } else if (strcmp(word, "--") == 0) {
            b->flags_end = true;
        } else if (!strchr(word, '=')) {
            const tri_flag *flag = flag_of(verb, word);
            b->wants_assignment = strcmp(word, "--set") == 0;
            b->wants_plugin = strcmp(word, "--plugin") == 0;
            b->wants_value = flag && flag->argument && flag->argument[0] != '[' ? flag : NULL;
        }
    }
}

static void complete_verb(begun_word *w, const typed_before *b)
{
    const char *equals = strchr(w->word, '=');
    bool dashed = !b->flags_end && w->word[0] == '-';
    if (b->wants_assignment) {
        offer_assignment(w);
    } else if (b->wants_plugin) {
        offer_files(w);
    } else if (b->wants_value) {
        offer_flag_value(w, b->wants_value);
    } else if (dashed && equals) {
        const tri_flag *flag = flag_of(w->verb, w->word);
        w->fixed = (int)(equals + 1 - w->word);
        if (strncmp(w->word, "--set=", 6) == 0)
            offer_assignment(w);
        else if (flag && flag->argument)
            offer_flag_value(w, flag);
    } else if (dashed) {
        offer_flags(w);
    } else {
        tri_usage_next(w->verb->usage, b->operands, b->num_operands, offer_operand, w);
    }
}

int tri_complete(int num_words, char **words)
{
    begun_word w = {.word = num_words > 0 ? words[num_words - 1] : ""};
    if (num_words < 2) {
        offer_verbs(&w);
        offer(&w, "help", "", "this program, or one of its verbs, in a few lines");
        offer(&w, "--help", "", "this program in a few lines");
        offer(&w, "--version", "", "which one it is");
        return TRI_EXIT_OK;
    }
    if (strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0) {
        if (num_words == 2)
            offer_verbs(&w);
        else if (num_words == 3)
            offer(&w, "all", "", "with every setting");
        return TRI_EXIT_OK;
    }
    w.verb = tri_verb_find(words[0]);
    typed_before before = {.operands = calloc((size_t)num_words, sizeof *before.operands)};
    if (w.verb && before.operands) {
        read_before(&before, w.verb, num_words - 2, words + 1);
        complete_verb(&w, &before);
    }
    free(before.operands);
    return TRI_EXIT_OK;
}
