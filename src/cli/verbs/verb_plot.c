/* trireme plot: curves of runs, as a picture or as dots in the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/runs/run_find.h"
#include "cli/text.h"
#include "train/plot/plot.h"

/* The place of a flag's word in a list that ends with NULL; 0 when it is not given. */
static tr_status read_choice(const tri_cli *cli, const char *flag, const char *const *words,
                             int *choice, tr_error *err)
{
    const char *value = tri_cli_flag(cli, flag);
    char known[128] = "";
    for (int i = 0; words[i]; i++) {
        if (!value || strcmp(value, words[i]) == 0) {
            *choice = i;
            return TR_OK;
        }
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s",
                 i == 0         ? ""
                 : words[i + 1] ? ", "
                                : " or ",
                 words[i]);
    }
    return tri_fail(err, TR_ERROR_INPUT, "--%s is \"%.40s\"; it may be %s", flag, value, known);
}

static tr_status add_runs(const tri_cli *cli, tri_plot *plot, char **dirs, tr_error *err)
{
    for (int i = 0; i < cli->num_operands; i++) {
        tri_run_curve curve;
        TRI_TRY(tri_run_dir_of(cli->operands[i], &dirs[i], err));
        TRI_TRY(tri_run_curve_read(&curve, dirs[i], err));
        tr_status status = tri_plot_add(plot, dirs[i], plot->y, &curve, err);
        tri_run_curve_free(&curve);
        TRI_TRY(status);
    }
    return TR_OK;
}

static tr_status draw(tri_plot *plot, tr_error *err)
{
    tri_text text;
    int width = tri_terminal_width(stdout), marks = width / 14 + 1; /* so that numbers fit */
    TRI_TRY(tri_plot_fit(plot, marks, 5, err));
    tri_text_init(&text);
    tr_status status =
        tri_plot_dots(plot, width, TRI_PLOT_LINES, tri_terminal_colour(stdout), &text, err);
    if (status == TR_OK)
        status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

static tr_status save(tri_plot *plot, const char *path, tr_error *err)
{
    TRI_TRY(tri_plot_save(plot, path, err));
    tri_text_print(stdout, "written to %s\n", path);
    return TR_OK;
}

static tr_status run(const tri_cli *cli, tr_error *err)
{
    static const char *const xs[] = {"steps", "tokens", "hours", NULL};
    static const char *const ys[] = {"loss", "eval_loss", "lr", "grad_norm", "tokens_per_s", NULL};
    int x, y;
    tri_plot plot = {.smooth = 1, .log = tri_cli_flag(cli, "log") != NULL};
    const char *path = tri_cli_flag(cli, "draw");
    if (cli->num_operands == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "name one or more runs: trireme plot runs/tiny; `trireme runs` lists them");
    TRI_TRY(read_choice(cli, "x", xs, &x, err));
    TRI_TRY(read_choice(cli, "y", ys, &y, err));
    TRI_TRY(tri_cli_flag_int(cli, "smooth", 1, 1000000, &plot.smooth, err));
    if (path)
        TRI_TRY(tri_plot_may_save(path, err));
    plot.x = (tri_plot_x)x;
    plot.y = (tri_plot_y)y;
    char **dirs = calloc((size_t)cli->num_operands, sizeof *dirs);
    tr_status status = dirs ? add_runs(cli, &plot, dirs, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for names");
    if (status == TR_OK)
        status = path ? save(&plot, path, err) : draw(&plot, err);
    tri_plot_free(&plot);
    for (int i = 0; dirs && i < cli->num_operands; i++)
        free(dirs[i]);
    free(dirs);
    return status;
}

int tri_verb_plot(const tri_cli *cli)
{
    tr_error err = {0};
    return run(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
