/* Reading a command. Two passes: first what was typed is sorted into operands, flags and
 * assignments, then the file is loaded and the assignments are made, so that --set wins over the
 * file wherever it stands. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/settings/nearest.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf/hf.h"
#include "cli/cli.h"
#include "cli/launch/environment.h"
#include "cli/recipe.h"
#include "cli/short_forms.h"
#include "config/aliases.h"
#include "config/settings_table.h"

/* argv as it is read: where we are, and the assignments for the second pass. */
typedef struct argument_cursor {
    int num_args;
    char **args;
    int at;
    const char **assignments, **plugins;
    int num_assignments, num_plugins;
} argument_cursor;

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool is_yaml(const char *name)
{
    return ends_with(name, ".yaml") || ends_with(name, ".yml");
}

tr_status tri_verb_unknown(const char *name, tr_error *err)
{
    if (is_yaml(name) || tri_recipe_exists(name))
        return tri_fail(err, TR_ERROR_INPUT,
                        "\"%s\" is not a verb; say first what to do with it: trireme train %s",
                        name, name);
    if (*name == '-')
        return tri_fail(err, TR_ERROR_INPUT,
                        "\"%s\" stands before the verb; flags come after it: trireme VERB "
                        "[FILE.yaml] [flags]; trireme --help lists the verbs",
                        name);
    const char *best = "help";
    int least = tri_edit_distance(name, best);
    for (const tri_verb *verb = tri_verbs; verb->name; verb++) {
        int distance = tri_edit_distance(name, verb->name);
        if (distance < least) {
            least = distance;
            best = verb->name;
        }
    }
    if (2 * least > (int)strlen(best))
        return tri_fail(err, TR_ERROR_INPUT,
                        "unknown verb \"%.60s\"; trireme --help lists the verbs", name);
    return tri_fail(err, TR_ERROR_INPUT,
                    "unknown verb \"%.60s\"; did you mean %s? trireme --help lists the verbs", name,
                    best);
}

static const tri_flag *find_flag(const tri_verb *verb, const char *name, size_t length)
{
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++)
        if (strlen(flag->name) == length && memcmp(flag->name, name, length) == 0)
            return flag;
    return NULL;
}

/* The name of a verb that has this flag, or NULL. */
static const char *verb_with(const char *word)
{
    for (const tri_verb *other = tri_verbs; other->name; other++)
        if (find_flag(other, word, strlen(word)))
            return other->name;
    return NULL;
}

/* Whether a word is the name of a setting, with or without its section. */
static bool names(const tri_setting *row, const char *word)
{
    const char *dot = strchr(row->name, '.');
    return strcmp(row->name, word) == 0 || (dot && strcmp(dot + 1, word) == 0);
}

/* A flag that is like none of the verb's: --model.dim=64 and --lr 1e-3, since other programs make a
 * flag of every setting; or one of another verb. */
static tr_status foreign_flag(const tri_verb *verb, const char *arg, const char *word,
                              const char *value, tr_error *err)
{
    bool far;
    tri_table table;
    tri_table_init(&table, NULL);
    const tri_setting *row = table.row[tri_setting_nearest(&table, word, &far)];
    const char *other = verb_with(word);
    const tri_alias *alias = other ? NULL : tri_alias_find(word);
    if (alias && !alias->setting)
        return tri_fail(err, TR_ERROR_INPUT, "unknown flag \"%.60s\": %s", arg, alias->how);
    if (alias && alias->how)
        return tri_fail(err, TR_ERROR_INPUT,
                        "unknown flag \"%.60s\"; settings are changed with --set, and this one is "
                        "%s (%s)",
                        arg, alias->setting, alias->how);
    if (alias) {
        row = tri_setting_named(&table, alias->setting);
        far = false;
    }
    if (!far && (!other || names(row, word)))
        return tri_fail(err, TR_ERROR_INPUT,
                        "unknown flag \"%.60s\"; settings are changed with --set: --set %s=%.60s",
                        arg, row->name, value ? value : "VALUE");
    if (other)
        return tri_fail(err, TR_ERROR_INPUT,
                        "unknown flag \"%.60s\"; it is one of trireme %s. trireme %s --help "
                        "lists the flags",
                        arg, other, verb->name);
    return tri_fail(err, TR_ERROR_INPUT,
                    "unknown flag \"%.60s\"; trireme %s --help lists the flags", arg, verb->name);
}

/* value is the word after it, or NULL. */
static tr_status unknown_flag(const tri_verb *verb, const char *arg, const char *value,
                              tr_error *err)
{
    const char *name = arg + strspn(arg, "-");
    char word[64] = "";
    size_t length = strcspn(name, "=");
    memcpy(word, name, length < sizeof word - 1 ? length : sizeof word - 1);
    const char *best = "help";
    if (tri_edit_distance(word, "set") < tri_edit_distance(word, best))
        best = "set";
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++)
        if (flag->help && tri_edit_distance(word, flag->name) < tri_edit_distance(word, best))
            best = flag->name;
    if (!tri_is_slip(word, best))
        return foreign_flag(verb, arg, word, name[length] == '=' ? name + length + 1 : value, err);
    return tri_fail(err, TR_ERROR_INPUT,
                    "unknown flag \"%.60s\"; did you mean --%s? trireme %s --help lists the flags",
                    arg, best, verb->name);
}

/* The value of a flag: after '=' in the same word, or the next word. */
static tr_status flag_value(argument_cursor *c, const char *arg, const char *example,
                            const char **value, tr_error *err)
{
    const char *equals = strchr(arg, '=');
    if (equals) {
        *value = equals + 1;
        return TR_OK;
    }
    if (c->at >= c->num_args)
        return tri_fail(err, TR_ERROR_INPUT, "%s needs a value: %s %s", arg, arg, example);
    *value = c->args[c->at++];
    return TR_OK;
}

static tr_status read_assignment(const tri_verb *verb, argument_cursor *c, const char *arg,
                                 tr_error *err)
{
    const char *assignment = "";
    TRI_TRY(flag_value(c, arg, "optim.lr=3e-4", &assignment, err));
    if (!tri_verb_has_settings(verb))
        return tri_fail(err, TR_ERROR_INPUT,
                        "trireme %s reads no settings, so --set %.60s would change nothing; leave "
                        "it out (trireme %s --help lists its flags)",
                        verb->name, assignment, verb->name);
    if (!strchr(assignment, '=')) /* "--set optim.lr 3e-4": the value became a word of its own */
        return tri_fail(err, TR_ERROR_INPUT,
                        "--set %.60s gives no value; write --set %.60s=%.60s, without a blank",
                        assignment, assignment, c->at < c->num_args ? c->args[c->at] : "VALUE");
    c->assignments[c->num_assignments++] = assignment;
    return TR_OK;
}

static tr_status read_plugin(argument_cursor *c, const char *arg, tr_error *err)
{
    return flag_value(c, arg, "my_model.so", &c->plugins[c->num_plugins++], err);
}

/* Whether a value that may be left out is there: a number, and not the name of a file. */
static bool number_follows(const argument_cursor *c)
{
    const char *next = c->at < c->num_args ? c->args[c->at] : "";
    return isdigit((unsigned char)next[0]) && !is_yaml(next) && !strchr(next, '/') &&
           !tri_recipe_exists(next);
}

/* One word that begins with a dash; the cursor stands behind it. */
static tr_status read_flag(tri_cli *cli, argument_cursor *c, const char *arg, tr_error *err)
{
    if (strcmp(arg, "-o") == 0 && find_flag(cli->verb, "output", strlen("output")))
        arg = "--output"; /* as compilers have it: the only flag with a short name */
    const char *name = arg + strspn(arg, "-");
    size_t length = strcspn(name, "=");
    bool two_dashes = strncmp(arg, "--", 2) == 0; /* no flag of ours has one only */
    if (two_dashes && length == 3 && memcmp(name, "set", 3) == 0)
        return read_assignment(cli->verb, c, arg, err);
    if (two_dashes && length == 6 && memcmp(name, "plugin", 6) == 0)
        return read_plugin(c, arg, err);
    const tri_flag *flag = two_dashes ? find_flag(cli->verb, name, length) : NULL;
    if (!flag)
        return unknown_flag(cli->verb, arg, c->at < c->num_args ? c->args[c->at] : NULL, err);
    tri_flag_value *given = &cli->flags[cli->num_flags++];
    given->flag = flag;
    given->value = "";
    if (flag->argument && flag->argument[0] == '[' && name[length] != '=' && !number_follows(c))
        return TR_OK;
    if (flag->argument)
        return flag_value(c, arg, flag->argument, &given->value, err);
    if (name[length] == '=')
        return tri_fail(err, TR_ERROR_INPUT, "--%s takes no value; write --%s alone", flag->name,
                        flag->name);
    return TR_OK;
}

static tr_status sort_words(tri_cli *cli, argument_cursor *c, tr_error *err)
{
    bool flags_end = false;
    while (c->at < c->num_args) {
        const char *arg = c->args[c->at++];
        if (!flags_end && strcmp(arg, "--") == 0) {
            flags_end = true;
        } else if (!flags_end && arg[0] == '-' && arg[1]) {
            TRI_TRY(read_flag(cli, c, arg, err));
        } else if (!flags_end && strchr(arg, '=') && !is_yaml(arg)) {
            return tri_fail(err, TR_ERROR_INPUT,
                            "\"%.60s\" looks like an assignment; put --set before it: --set %.60s",
                            arg, arg);
        } else {
            cli->operands[cli->num_operands++] = arg;
        }
    }
    return TR_OK;
}

/* A file that is empty, or has nothing but comments, is allowed: --set may give all there is. But
 * it may also be one that was never filled in, or was cut off, and a run with the defaults is then
 * not what anybody wanted. Ranks that were started by others say so once. */
static tr_status load_settings(tri_cli *cli, const char *path, tr_error *err)
{
    TRI_TRY(tr_settings_load(cli->settings, path, err));
    const tri_table *table = tri_settings_table(cli->settings);
    for (int i = 0; i < table->num; i++)
        if (tr_settings_given(cli->settings, table->row[i]->name))
            return TR_OK;
    tri_environment world;
    if (tri_environment_read(&world, NULL) != TR_OK || world.rank == 0)
        tri_cli_error("warning: %s sets nothing, so every setting has its default unless --set "
                      "gives it; `trireme settings` lists them",
                      path);
    return TR_OK;
}

/* A run directory stands for the settings it was run with, one of Hugging Face for its model. */
static tr_status load_file(tri_cli *cli, const char *typed, tr_error *err)
{
    struct stat info;
    TRI_TRY(tri_recipe_find(typed, &cli->file, err));
    const char *name = cli->file;
    if (stat(name, &info) != 0 || !S_ISDIR(info.st_mode))
        return load_settings(cli, name, err);
    if (tri_hf_is_dir(name)) {
        char assignment[4200];
        snprintf(assignment, sizeof assignment, "model.from=%s", name);
        return tr_settings_set(cli->settings, assignment, err);
    }
    char *path = NULL, *newest = NULL;
    if (asprintf(&path, "%s/config.yaml", name) < 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading %s", name);
    tr_status status = TR_OK;
    if (stat(path, &info) == 0 || errno != ENOENT) /* one that may not be read says so */
        status = load_settings(cli, path, err);
    else if (tri_checkpoint_look(name, &newest, NULL) == TR_OK && newest) /* a folder of them */
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s is a directory without config.yaml, so not a run; the newest "
                          "checkpoint in it is %s: name that",
                          name, newest);
    else
        status = tri_fail(
            err, TR_ERROR_INPUT,
            "%s is a directory without config.yaml, so not a run, and without config.json, so not "
            "one of Hugging Face; name a YAML file, or the directory of a run (run.dir)",
            name);
    free(newest);
    free(path);
    return status;
}

/* Before anything else: what they bring may be in the file. */
static tr_status load_plugins(tri_cli *cli, const argument_cursor *c, tr_error *err)
{
    tr_status status = TR_OK;
    for (int i = 0; i < c->num_plugins && status == TR_OK; i++) {
        char *assignment = NULL;
        if (asprintf(&assignment, "run.plugins=%s", c->plugins[i]) < 0)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for --plugin");
        status = tr_settings_set(cli->settings, assignment, err);
        free(assignment);
    }
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "--plugin");
    for (int i = 0; i < c->num_assignments && status == TR_OK; i++)
        if (strncmp(c->assignments[i], "run.plugins=", 12) == 0)
            status = tr_settings_set(cli->settings, c->assignments[i], err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "--set");
}

bool tri_flag_led_by(const tri_verb *verb, const tri_flag *flag, const tri_cli *cli)
{
    const char *end = flag->help ? strstr(flag->help, ": ") : NULL;
    bool led = false, there = false;
    for (const char *at = flag->help; end && at < end; at += at[0] == ',' ? 2 : 0) {
        size_t length = strcspn(at, ",:");
        const tri_flag *leader = find_flag(verb, at, length);
        if (!leader || leader == flag)
            return false;
        led = true;
        there |= cli && tri_cli_flag(cli, leader->name);
        at += length;
    }
    return led && !there;
}

/* A flag that says something of another means nothing without it. A setting of that name may have
 * been meant. */
static tr_status check_leaders(const tri_cli *cli, tr_error *err)
{
    for (int i = 0; i < cli->num_flags; i++) {
        const tri_flag *flag = cli->flags[i].flag;
        const tri_table *table = tri_settings_table(cli->settings);
        char setting[120] = "";
        if (!tri_flag_led_by(cli->verb, flag, cli))
            continue;
        for (int k = 0; k < table->num && tri_verb_has_settings(cli->verb); k++)
            if (names(table->row[k], flag->name) && !setting[0])
                snprintf(setting, sizeof setting, "; the setting is --set %.60s=%.30s",
                         table->row[k]->name, cli->flags[i].value);
        return tri_fail(err, TR_ERROR_INPUT,
                        "--%s says nothing without --%.*s; add it, or leave --%s out%s (trireme "
                        "%s --help all lists the flags)",
                        flag->name, (int)strcspn(flag->help, ",:"), flag->help, flag->name, setting,
                        cli->verb->name);
    }
    return TR_OK;
}

static tr_status resolve(tri_cli *cli, const argument_cursor *c, tr_error *err)
{
    TRI_TRY(check_leaders(cli, err));
    TRI_TRY(load_plugins(cli, c, err));
    const tri_verb *verb = cli->verb;
    int num = cli->num_operands;
    if (verb->operands == TRI_OPERANDS_NONE && num > 0)
        return tri_fail(err, TR_ERROR_INPUT, "trireme %s takes no file, but \"%.60s\" was given",
                        verb->name, cli->operands[0]);
    bool file = verb->operands == TRI_OPERANDS_SETTINGS && num > 0;
    for (int i = 0; i < num && verb->operands == TRI_OPERANDS_NAMES; i++)
        file = file || is_yaml(cli->operands[i]) || strchr(cli->operands[i], '/') ||
               (num == 1 &&
                tri_setting_find(tri_settings_table(cli->settings), cli->operands[i]) < 0 &&
                tri_section_find(cli->operands[i]) < 0 && tri_recipe_exists(cli->operands[i]));
    if (file && num > 1 && verb->operands == TRI_OPERANDS_NAMES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "trireme %s takes names or one settings file, but not \"%.60s\" and "
                        "\"%.60s\" together; give what the file would set with --set "
                        "section.key=value",
                        verb->name, cli->operands[0], cli->operands[1]);
    if (file && num > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "trireme %s takes one settings file, but \"%.60s\" and \"%.60s\" were "
                        "given; change single settings with --set section.key=value",
                        verb->name, cli->operands[0], cli->operands[1]);
    if (file)
        TRI_TRY(load_file(cli, cli->operands[0], err));
    for (int i = 0; i < c->num_assignments; i++) {
        tr_status status = tr_settings_set(cli->settings, c->assignments[i], err);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "--set");
        if (strncmp(c->assignments[i], "layout.", 7) == 0)
            cli->layout_set = c->assignments[i];
    }
    TRI_TRY(tri_short_forms_apply(cli, c->assignments, c->num_assignments, err));
    bool computes = verb->operands == TRI_OPERANDS_SETTINGS || verb->operands == TRI_OPERANDS_NAMES;
    if (!computes || (!verb->sections && !cli->file))
        return TR_OK;
    /* A verb that reads no layout has one rank, whatever the file says. */
    bool alone = verb->sections && !strstr(verb->sections, "layout");
    return tri_cli_choose_device(cli->settings, alone ? 1 : tri_cli_num_ranks(cli), &cli->device,
                                 err);
}

tr_status tri_cli_init(tri_cli *cli, const tri_verb *verb, int num_args, char **args, tr_error *err)
{
    *cli = (tri_cli){.verb = verb};
    for (int i = 0; i < num_args && strcmp(args[i], "--") != 0; i++)
        if (strcmp(args[i], "--help") == 0 || strcmp(args[i], "-h") == 0) {
            cli->wants_help = true;
            cli->wants_all |= i + 1 < num_args && strcmp(args[i + 1], "all") == 0;
        }
    if (cli->wants_help)
        return TR_OK;
    argument_cursor c = {.num_args = num_args, .args = args};
    size_t most = (size_t)num_args + 1; /* of each kind */
    c.assignments = calloc(most, sizeof *c.assignments);
    c.plugins = calloc(most, sizeof *c.plugins);
    cli->operands = calloc(most, sizeof *cli->operands);
    cli->flags = calloc(most, sizeof *cli->flags);
    tr_status status = TR_OK;
    if (!c.assignments || !c.plugins || !cli->operands || !cli->flags)
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading the command line");
    if (status == TR_OK)
        status = tr_settings_create(&cli->settings, err);
    if (status == TR_OK)
        status = sort_words(cli, &c, err);
    if (status == TR_OK)
        status = resolve(cli, &c, err);
    cli->assignments = c.assignments;
    cli->num_assignments = c.num_assignments;
    cli->plugins = c.plugins;
    cli->num_plugins = c.num_plugins;
    if (status != TR_OK)
        tri_cli_fini(cli);
    return status;
}

void tri_cli_fini(tri_cli *cli)
{
    tr_settings_destroy(cli->settings);
    free(cli->file);
    free(cli->operands);
    free(cli->flags);
    free(cli->assignments);
    free(cli->plugins);
    *cli = (tri_cli){0};
}

const char *tri_cli_flag(const tri_cli *cli, const char *name)
{
    for (int i = cli->num_flags - 1; i >= 0; i--)
        if (strcmp(cli->flags[i].flag->name, name) == 0)
            return cli->flags[i].value;
    return NULL;
}

tr_status tri_cli_flag_int(const tri_cli *cli, const char *name, int64_t min, int64_t max,
                           int64_t *value, tr_error *err)
{
    const char *text = tri_cli_flag(cli, name);
    if (!text)
        return TR_OK;
    char *end;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--%s is \"%.60s\"; expected a whole number from %lld to %lld", name, text,
                        (long long)min, (long long)max);
    if (number < min || number > max) /* also an overflow, which strtoll clamps */
        return tri_fail(err, TR_ERROR_INPUT,
                        "--%s is %.60s, out of range; it must be from %lld to %lld", name, text,
                        (long long)min, (long long)max);
    *value = number;
    return TR_OK;
}
