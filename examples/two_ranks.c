/* A run of two ranks inside another program, with a callback and a checkpoint to go on from.
 * Build: cc two_ranks.c $(pkg-config --cflags --libs trireme) */
#include <stdio.h>
#include <stdlib.h>

#include <trireme/trireme.h>

/* Told what happens, on rank 0. */
static void tell(void *context, const tr_run_news *news)
{
    const tr_run_state *now = news->state;
    long long step = (long long)now->step, all = (long long)now->num_steps;
    if (news->moment == TR_RUN_STEP && step % 10 == 0)
        fprintf(context, "step %lld of %lld: loss %.4f\n", step, all, now->loss);
    else if (news->moment == TR_RUN_EVALUATED)
        fprintf(context, "step %lld: held-out loss %.4f\n", step, now->eval.loss);
    else if (news->moment == TR_RUN_SAVED)
        fprintf(context, "step %lld: a checkpoint\n", step);
    else if (news->moment == TR_RUN_WARNING)
        fprintf(context, "warning: %s\n", news->text);
}

static void check(tr_status status, const tr_error *err)
{
    if (status == TR_OK)
        return;
    fprintf(stderr, "two_ranks: %s\n", err->message);
    exit(1);
}

int main(int argc, char **argv)
{
    static const char *const choices[] = {
        "layout.dp=2",   "model.num_layers=2", "model.dim=64",      "model.vocab=256",
        "train.batch=8", "data.seq_len=64",    "train.steps=20",    "train.eval_every=10",
        "ckpt.every=10", "optim.lr=3e-3",      "run.dir=two_ranks",
    };
    tr_error err = {0};
    tr_settings *settings;
    tr_run_options options = {.tell = tell, .context = stdout};
    tr_run_state end;
    check(tr_settings_create(&settings, &err), &err);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        check(tr_settings_set(settings, choices[i], &err), &err);
    for (int i = 1; i < argc; i++) /* more from the command line: section.key=value */
        check(tr_settings_set(settings, argv[i], &err), &err);

    check(tr_train(settings, &options, &end, &err), &err);
    printf("Trireme %s: %lld steps, loss %.4f -> %.4f; weights in %s\n", tr_version(),
           (long long)end.step, end.first_loss, end.loss, tr_settings_string(settings, "run.dir"));
    tr_settings_destroy(settings);
    return end.loss < end.first_loss ? 0 : 1;
}
