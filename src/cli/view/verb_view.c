/* trireme view: pages of what needs no run, for a browser on this machine. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/view.h"

enum { DEFAULT_PORT = 7718 };

const tri_flag tri_view_flags[] = {
    {"port", "N", "of the page (default 7718; 0: any that is free)"},
    {"print", "ADDRESS",
     "print the document of an address, '/api/view/schedules'; may be repeated"},
    {0},
};

/* A refusal goes where errors go, with the exit code of wrong input. */
static tr_status print_document(tri_view *view, const char *address, int *code, tr_error *err)
{
    tri_text text;
    tri_http_target target;
    int malformed = tri_http_target_read(&target, address);
    if (malformed)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--print \"%.60s\": %s; an address is a path and words key=value, "
                        "'/api/view/schedule?name=zb-v&p=4', each key once, with %%xx for other "
                        "letters",
                        address, malformed == 414 ? "it is too long" : "it is malformed");
    tri_text_init(&text);
    int status = tri_view_answer(view, &target, &text);
    *code = status == 200 ? TRI_EXIT_OK : status < 500 ? TRI_EXIT_USAGE : TRI_EXIT_FAILED;
    tr_status put = tri_text_put(&text, status == 200 ? stdout : stderr, err);
    tri_text_fini(&text);
    return put;
}

static tr_status show(const tri_cli *cli, tri_view *view, int *code, tr_error *err)
{
    int64_t port = DEFAULT_PORT;
    TRI_TRY(tri_cli_flag_int(cli, "port", 0, 65535, &port, err));
    if (!tri_cli_flag(cli, "print")) {
        tri_signals_outlive_readers();
        tri_signals_catch();
        return tri_view_serve(view, (int)port, err);
    }
    for (int i = 0; i < cli->num_flags && *code == TRI_EXIT_OK; i++)
        if (strcmp(cli->flags[i].flag->name, "print") == 0)
            TRI_TRY(print_document(view, cli->flags[i].value, code, err));
    return TR_OK;
}

int tri_verb_view(const tri_cli *cli)
{
    tr_error err = {0};
    tri_view *view;
    int code = TRI_EXIT_OK;
    if (tri_view_create(cli, &view, &err) != TR_OK)
        return tri_cli_fail(&err);
    tr_status status = show(cli, view, &code, &err);
    tri_view_destroy(view);
    return status == TR_OK ? code : tri_cli_fail(&err);
}
