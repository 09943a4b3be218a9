/* trireme generate: text after a prompt, from a run directory. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/fs.h"
#include "cli/cli.h"

static void print_bytes(void *context, const char *bytes, size_t num_bytes)
{
    (void)context;
    fwrite(bytes, 1, num_bytes, stdout);
    fflush(stdout);
}

/* Where the weights are: model.from if given, else the run directory that was named. */
static tr_status point_to_weights(const tri_cli *cli, tr_error *err)
{
    if (tr_settings_string(cli->settings, "model.from")[0] &&
        tr_settings_given(cli->settings, "model.from") &&
        !tri_path_is_dir(cli->file ? cli->file : ""))
        return TR_OK;
    const char *dir = cli->file && tri_path_is_dir(cli->file)
                          ? cli->file
                          : tr_settings_string(cli->settings, "run.dir");
    char *weights = tri_path_join(dir, "weights.safetensors");
    if (!weights)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = TR_OK;
    if (!tri_path_exists(weights))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s does not exist; train first (`trireme train recipes/demo.yaml`), or "
                          "name the run directory: `trireme generate runs/demo`",
                          weights);
    char assignment[4200];
    snprintf(assignment, sizeof assignment, "model.from=%s", weights);
    if (status == TR_OK)
        status = tr_settings_set(cli->settings, assignment, err);
    free(weights);
    return status;
}

/* Whatever the run was trained with: text is made by one rank, and needs no training data. */
static tr_status use_one_rank(tr_settings *settings, tr_error *err)
{
    TRI_TRY(tr_settings_set(settings, "data.source=synthetic", err));
    TRI_TRY(tr_settings_set(settings, "data.task=auto", err));
    TRI_TRY(tr_settings_set(settings, "train.epochs=0", err));
    TRI_TRY(tr_settings_set(settings, "layout.dp=1", err));
    return tr_settings_set(settings, "layout.microbatches=1", err);
}

int tri_verb_generate(const tri_cli *cli)
{
    tr_error err = {0};
    tr_session *session;
    if (point_to_weights(cli, &err) != TR_OK || use_one_rank(cli->settings, &err) != TR_OK ||
        tr_session_create(cli->settings, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    const char *prompt = tr_settings_string(cli->settings, "generate.prompt");
    fputs(prompt, stdout);
    tr_status status = tr_session_generate(session, prompt, print_bytes, NULL, &err);
    printf("\n");
    tr_session_destroy(session);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
