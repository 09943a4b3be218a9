/* trireme settings: the list of settings or some of them, what a file resolves to, or what other
 * trainers call them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "config/aliases.h"
#include "config/resolve.h"
#include "config/settings_table.h"

static bool any_given(const tr_settings *settings)
{
    bool given = false;
    const tri_table *table = tri_settings_table(settings);
    for (int i = 0; i < table->num && !given; i++)
        given = !table->row[i]->loads && tr_settings_given(settings, table->row[i]->name);
    return given;
}

static tr_status list_settings(const tri_cli *cli, tr_error *err)
{
    char *which = NULL;
    if (cli->num_operands == 0)
        return tri_table_help(tri_settings_table(cli->settings), stdout, NULL,
                              tri_terminal_width(stdout), err);
    for (int i = 0; i < cli->num_operands; i++) {
        char *longer = NULL;
        if (asprintf(&longer, "%s%s%s", which ? which : "", which ? " " : "", cli->operands[i]) < 0)
            longer = NULL;
        free(which);
        which = longer;
        if (!which)
            return tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    }
    tr_status status = tri_table_help(tri_settings_table(cli->settings), stdout, which,
                                      tri_terminal_width(stdout), err);
    free(which);
    return status;
}

static const char *type_name(tri_setting_type type)
{
    static const char *const names[] = {[TRI_SETTING_BOOL] = "bool",
                                        [TRI_SETTING_INT] = "int",
                                        [TRI_SETTING_FLOAT] = "float",
                                        [TRI_SETTING_STRING] = "text",
                                        [TRI_SETTING_CHOICE] = "choice"};
    return names[type];
}

static void put_setting(json_t *list, const tri_setting *row)
{
    json_t *item = tri_doc_item(list);
    bool number = row->type == TRI_SETTING_INT || row->type == TRI_SETTING_FLOAT;
    char values[400];
    tri_setting_values(row, values, sizeof values);
    tri_doc_text(item, "name", row->name);
    tri_doc_text(item, "type", type_name(row->type));
    tri_doc_text(item, "default", row->fallback);
    tri_doc_number(item, "min", number ? row->min : (double)NAN);
    tri_doc_number(item, "max", number ? row->max : (double)NAN);
    tri_doc_text(item, "values", values);
    tri_doc_text(item, "help", row->help);
}

/* Those that were named: sections or full names; or all. */
static tr_status list_json(const tri_cli *cli, tr_error *err)
{
    const tri_table *table = tri_settings_table(cli->settings);
    json_t *doc = tri_doc_begin(), *list = tri_doc_list(doc, "settings");
    for (int o = 0; o < cli->num_operands; o++) {
        bool any = false;
        for (int i = 0; i < table->num && !any; i++)
            any = tri_setting_wanted(table->row[i], cli->operands[o]);
        if (!any) { /* the list for people says what was meant */
            json_decref(doc);
            return tri_table_help(table, stdout, cli->operands[o], tri_terminal_width(stdout), err);
        }
    }
    for (int i = 0; i < table->num; i++) {
        bool wanted = cli->num_operands == 0;
        for (int o = 0; o < cli->num_operands; o++)
            wanted |= tri_setting_wanted(table->row[i], cli->operands[o]);
        if (wanted)
            put_setting(list, table->row[i]);
    }
    return tri_doc_print(doc, stdout, err);
}

static tr_status aliases_json(tr_error *err)
{
    json_t *doc = tri_doc_begin(), *list = tri_doc_list(doc, "aliases");
    for (int i = 0; i < tri_num_aliases; i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "trainer", tri_aliases[i].trainer);
        tri_doc_text(item, "name", tri_aliases[i].name);
        tri_doc_text(item, "setting", tri_aliases[i].setting);
        tri_doc_text(item, "how", tri_aliases[i].how);
    }
    return tri_doc_print(doc, stdout, err);
}

static tr_status write_resolved(tr_settings *settings, bool json, tr_error *err)
{
    TRI_TRY(tri_settings_complete(settings, err));
    if (json) {
        TRI_TRY(tr_settings_write_json(settings, stdout, err));
        putchar('\n');
        return TR_OK;
    }
    return tr_settings_write_yaml(settings, stdout, err);
}

int tri_verb_settings(const tri_cli *cli)
{
    tr_error err = {0};
    tr_status status = TR_OK;
    bool markdown = tri_cli_flag(cli, "markdown") != NULL;
    bool json = tri_cli_flag(cli, "json") != NULL;
    if (markdown && json)
        status = tri_fail(&err, TR_ERROR_INPUT,
                          "--markdown and --json are two ways to print the same; leave one of them "
                          "out");
    else if (tri_cli_flag(cli, "aliases") && json)
        status = aliases_json(&err);
    else if (tri_cli_flag(cli, "aliases") && markdown)
        tri_aliases_markdown(stdout);
    else if (tri_cli_flag(cli, "aliases"))
        tri_aliases_list(stdout, tri_terminal_width(stdout));
    else if (markdown)
        tr_settings_markdown(stdout);
    else if (cli->file || (cli->num_operands == 0 && any_given(cli->settings)))
        status = write_resolved(cli->settings, json, &err);
    else
        status = json ? list_json(cli, &err) : list_settings(cli, &err);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
