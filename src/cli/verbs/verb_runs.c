/* trireme runs: the runs of a folder, a line each; the table of its other parts. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/cli.h"
#include "cli/runs/run_find.h"
#include "cli/runs/runs_table.h"
#include "cli/runs/runs_verbs.h"
#include "cli/signals.h"
#include "cli/text.h"

typedef struct runs_view {
    const char *const *folders;
    int num_folders;
    bool named; /* by whoever typed the command */
    bool json, watch;
} runs_view;

static tr_status find(const runs_view *v, tri_run_list *list, tr_error *err)
{
    for (int i = 0; i < v->num_folders; i++)
        if (v->named || tri_path_exists(v->folders[i]))
            TRI_TRY(tri_runs_find(list, v->folders[i], err));
    return TR_OK;
}

static void say_none(const runs_view *v, tri_text *text)
{
    tri_text_add(text, "there are no runs in %s%s",
                 v->num_folders == 1 ? v->folders[0] : "these folders",
                 v->named ? "\n"
                          : "/ here; `trireme train tiny` makes one, and `trireme runs DIR` looks "
                            "elsewhere\n");
}

/* All of it as text. */
static tr_status show(const runs_view *v, const tri_runs_look *look, tri_text *text, tr_error *err)
{
    tri_run_list list = {0};
    tr_status status = find(v, &list, err);
    tri_run_row *rows = status == TR_OK ? calloc(list.num + 1, sizeof *rows) : NULL;
    if (status == TR_OK && !rows)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    for (size_t i = 0; i < list.num && status == TR_OK; i++)
        status = tri_run_row_read(&rows[i], list.dirs[i], look->now, err);
    if (status == TR_OK && list.num > 0)
        qsort(rows, list.num, sizeof *rows, tri_run_row_compare);
    for (size_t i = 0; i < list.num && status == TR_OK && v->json; i++)
        status = tri_runs_json(&rows[i], text, err);
    if (status == TR_OK && !v->json && list.num == 0)
        say_none(v, text);
    else if (status == TR_OK && !v->json)
        status = tri_runs_table(rows, list.num, look, text, err);
    free(rows);
    tri_run_list_free(&list);
    return status;
}

static int terminal_lines(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* Draws over what was drawn before: the table stays where it is, the last one when the command
 * ends, and a terminal needs nothing to be set back. */
static void redraw(const tri_text *text, int *drawn)
{
    if (*drawn > 0)
        printf("\033[%dA", *drawn);
    *drawn = 0;
    printf("\r");
    for (const char *at = text->chars; *at;) {
        size_t length = strcspn(at, "\n");
        printf("%.*s\033[K\n", (int)length, at);
        at += length + (at[length] == '\n');
        ++*drawn;
    }
    printf("\033[J");
    fflush(stdout);
}

static tr_status watch(const runs_view *v, tr_error *err)
{
    enum { EVERY_MS = 2000, TICK_MS = 50 };
    int drawn = 0;
    tr_status status = TR_OK;
    tri_signals_catch();
    do {
        int lines = terminal_lines();
        tri_runs_look look = {.width = tri_terminal_width(stdout),
                              .most = lines > 6 ? lines - 4 : 2,
                              .colour = tri_terminal_colour(stdout),
                              .now = tri_unix_s()};
        tri_text text;
        tri_text_init(&text);
        status = show(v, &look, &text, err);
        if (status == TR_OK)
            redraw(&text, &drawn);
        tri_text_fini(&text);
        for (int waited = 0; waited < EVERY_MS && !tri_signals_caught(); waited += TICK_MS)
            usleep(TICK_MS * 1000);
    } while (status == TR_OK && !tri_signals_caught() && !ferror(stdout));
    return status;
}

static int list_runs(const tri_cli *cli)
{
    static const char *const here[] = {TRI_RUNS_FOLDER};
    tr_error err = {0};
    runs_view v = {.folders = cli->num_operands > 0 ? cli->operands : here,
                   .num_folders = cli->num_operands > 0 ? cli->num_operands : 1,
                   .named = cli->num_operands > 0,
                   .json = tri_cli_flag(cli, "json") != NULL,
                   .watch = tri_cli_flag(cli, "watch") != NULL};
    if (v.watch && (v.json || !tri_terminal(stdout))) {
        tri_cli_error("--watch redraws a table on a terminal%s; leave it out",
                      v.json ? ", and --json prints none" : ", and the output is not one");
        return TRI_EXIT_USAGE;
    }
    tr_status status;
    if (v.watch) {
        status = watch(&v, &err);
    } else {
        bool terminal = tri_terminal(stdout);
        tri_runs_look look = {.width = terminal ? tri_terminal_width(stdout) : 0,
                              .colour = tri_terminal_colour(stdout),
                              .now = tri_unix_s()};
        tri_text text;
        tri_text_init(&text);
        status = show(&v, &look, &text, &err);
        if (status == TR_OK && text.length > 0)
            status = tri_text_put(&text, stdout, &err);
        tri_text_fini(&text);
    }
    if (status != TR_OK)
        return tri_cli_fail(&err);
    int signal = v.watch ? tri_signals_caught() : 0;
    return signal == 0 ? TRI_EXIT_OK : signal == SIGINT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED;
}

int tri_verb_runs(const tri_cli *cli)
{
    int num = cli->num_operands;
    const char *what = num > 0 ? cli->operands[0] : "";
    bool json = tri_cli_flag(cli, "json"), watches = tri_cli_flag(cli, "watch");
    bool yes = tri_cli_flag(cli, "yes"), waits = tri_cli_flag(cli, "wait");
    bool diff = strcmp(what, "diff") == 0, rm = strcmp(what, "rm") == 0;
    bool stop = strcmp(what, "stop") == 0, attach = strcmp(what, "attach") == 0;
    tr_error err = {0};
    int64_t patience_s = 60;
    if (tri_cli_flag_int(cli, "wait", 0, 86400, &patience_s, &err) != TR_OK)
        return tri_cli_fail(&err);
    bool fits = (!json || !(rm || stop || attach)) &&
                (!watches || !(diff || rm || stop || attach)) && (!yes || rm) && (!waits || stop);
    if (fits && diff && num == 3)
        return tri_runs_diff(cli->operands[1], cli->operands[2], json);
    if (fits && rm && num > 1)
        return tri_runs_rm(cli->operands + 1, num - 1, yes);
    if (fits && stop && num > 1)
        return tri_runs_stop(cli->operands + 1, num - 1, patience_s);
    if (fits && attach && num == 2)
        return tri_runs_attach(cli->operands[1]);
    if (fits && !diff && !rm && !stop && !attach)
        return list_runs(cli);
    tri_cli_error("write `trireme runs [DIR ...] [--watch | --json]`, `trireme runs diff A B "
                  "[--json]`, `trireme runs attach RUN`, `trireme runs stop RUN ... [--wait S]` or "
                  "`trireme runs rm RUN ... "
                  "[--yes]`; a folder with such a name is ./diff");
    return TRI_EXIT_USAGE;
}
