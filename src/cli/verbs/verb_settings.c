/* trireme settings: the list of settings or some of them, what a file resolves to, or what other
 * trainers call them. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
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

static tr_status write_resolved(tr_settings *settings, tr_error *err)
{
    TRI_TRY(tri_settings_complete(settings, err));
    return tr_settings_write_yaml(settings, stdout, err);
}

int tri_verb_settings(const tri_cli *cli)
{
    tr_error err = {0};
    tr_status status = TR_OK;
    bool markdown = tri_cli_flag(cli, "markdown") != NULL;
    if (tri_cli_flag(cli, "aliases") && markdown)
        tri_aliases_markdown(stdout);
    else if (tri_cli_flag(cli, "aliases"))
        tri_aliases_list(stdout, tri_terminal_width(stdout));
    else if (markdown)
        tr_settings_markdown(stdout);
    else if (cli->file || (cli->num_operands == 0 && any_given(cli->settings)))
        status = write_resolved(cli->settings, &err);
    else
        status = list_settings(cli, &err);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
