#include "cli/verbs/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/fs.h"
#include "ckpt/hf/hf.h"

/* What is named already is not to be looked for. */
static tr_status refuse_best(const tri_cli *cli, tr_error *err)
{
    if (!tri_cli_flag(cli, "best"))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--best takes the best checkpoint of a run directory, and %s names weights "
                    "already; name the run, or leave --best out",
                    cli->file ? cli->file : "model.from");
}

static tr_status point(const tri_cli *cli, tr_error *err)
{
    bool named = cli->file && tri_path_is_dir(cli->file);
    if (named && tri_hf_is_dir(cli->file))
        return refuse_best(cli, err); /* it became model.from when the command was read */
    if (!named && tr_settings_string(cli->settings, "model.from")[0] &&
        tr_settings_given(cli->settings, "model.from"))
        return refuse_best(cli, err);
    const char *dir = named ? cli->file : tr_settings_string(cli->settings, "run.dir");
    char *weights, *best = tri_cli_flag(cli, "best") ? tri_path_join(dir, "ckpt/best") : NULL;
    if (tri_cli_flag(cli, "best") && !best)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = tri_api_weights_path(best ? best : dir, &weights, err);
    free(best);
    TRI_TRY(status);
    if (!tri_path_exists(weights))
        status = tri_fail_missing(err, weights,
                                  "train first (`trireme train demo`), or name the directory of a "
                                  "run that has weights (runs/demo, say)");
    char assignment[4200];
    snprintf(assignment, sizeof assignment, "model.from=%s", weights);
    if (status == TR_OK)
        status = tr_settings_set(cli->settings, assignment, err);
    free(weights);
    return status;
}

/* The layout of the run that made the weights is not meant; one that was typed is. */
static void tell_of_layout(const tri_cli *cli)
{
    if (cli->layout_set && tri_cli_num_ranks(cli) > 1)
        fprintf(stderr,
                "trireme: note: trireme %s works on one rank, so --set %s changes nothing; its "
                "speed follows from run.threads and run.device\n",
                cli->verb->name, cli->layout_set);
}

tr_status tri_cli_point_to_weights(const tri_cli *cli, tr_error *err)
{
    TRI_TRY(point(cli, err));
    tell_of_layout(cli);
    TRI_TRY(tr_settings_set(cli->settings, "layout.auto=false", err));
    TRI_TRY(tr_settings_set(cli->settings, "layout.dp=1", err));
    TRI_TRY(tr_settings_set(cli->settings, "layout.cp=1", err));
    TRI_TRY(tr_settings_set(cli->settings, "layout.tp=1", err));
    TRI_TRY(tr_settings_set(cli->settings, "layout.pp=1", err));
    return tr_settings_set(cli->settings, "layout.microbatches=1", err);
}

tr_status tri_cli_weights_words(const tri_cli *cli, char *text, size_t size, tr_error *err)
{
    char *path;
    int64_t step;
    TRI_TRY(tri_api_weights_path(tr_settings_string(cli->settings, "model.from"), &path, err));
    tr_status status = tri_api_weights_step(path, &step, err);
    if (status == TR_OK && step >= 0)
        snprintf(text, size, "%s, step %lld", path, (long long)step);
    else
        snprintf(text, size, "%s", path);
    free(path);
    return status;
}
