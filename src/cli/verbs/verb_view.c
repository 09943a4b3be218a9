/* trireme view: pages of what needs no run, for a browser on this machine. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/view/view.h"

const tri_flag tri_view_flags[] = {
    {"port", "N", "listen here (default: one that is free)"},
    {"print", "ADDRESS",
     "print the document of an address, '/api/view/schedules'; may be repeated"},
    {0},
};

/* A refusal goes where errors go, with the exit code of wrong input. */
static int print_document(tri_view *view, const char *address)
{
    tri_text text;
    tr_error err = {0};
    tri_text_init(&text);
    int status = tri_view_answer(view, address, &text);
    tr_status put = tri_text_put(&text, status == 200 ? stdout : stderr, &err);
    tri_text_fini(&text);
    if (put != TR_OK)
        return tri_cli_fail(&err);
    return status == 200 ? TRI_EXIT_OK : status < 500 ? TRI_EXIT_USAGE : TRI_EXIT_FAILED;
}

int tri_verb_view(const tri_cli *cli)
{
    tr_error err = {0};
    tri_view *view;
    if (tri_view_create(cli, &view, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    for (int i = 0; i < cli->num_flags && code == TRI_EXIT_OK; i++)
        if (strcmp(cli->flags[i].flag->name, "print") == 0)
            code = print_document(view, cli->flags[i].value);
    tri_view_destroy(view);
    return code;
}
