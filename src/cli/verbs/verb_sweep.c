/* trireme sweep: a recipe with other settings, many times. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/signals.h"
#include "cli/sweep/sweep.h"

/* ---- which runs go how far ---- */

/* Stages of successive halving: the last goes all the way, each before it a share of that. */
static int num_stages(const tri_sweep *s)
{
    int num = 1;
    int64_t steps = s->steps;
    for (int64_t left = s->num_runs; s->halve > 0 && left >= s->halve && steps / s->halve >= 1;
         left /= s->halve, steps /= s->halve)
        num++;
    return num;
}

/* 0: all. */
static int64_t steps_of(const tri_sweep *s, int stage, int stages)
{
    double steps = (double)s->steps;
    for (int i = stage; i + 1 < stages; i++)
        steps /= (double)s->halve;
    return stage + 1 == stages ? 0 : (int64_t)ceil(steps);
}

typedef struct ranked {
    int run;
    double score;
} ranked;

static int compare(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return a->run < b->run ? -1 : 1;
}

/* Leaves the best share of the members, in the order of their numbers. */
static tr_status drop(tri_sweep *s, int *members, int *num, int64_t steps, FILE *progress,
                      tr_error *err)
{
    ranked *all = calloc((size_t)*num + 1, sizeof *all);
    tr_status status = all ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a sweep");
    for (int i = 0; i < *num && status == TR_OK; i++) {
        all[i] = (ranked){members[i], INFINITY};
        if (!s->runs[members[i]].failed)
            status = tri_sweep_score(&s->runs[members[i]], steps, &all[i].score, err);
    }
    if (status == TR_OK && *num > 0)
        qsort(all, (size_t)*num, sizeof *all, compare);
    int stay = *num / (int)s->halve > 1 ? *num / (int)s->halve : 1, kept = 0;
    for (int i = 0; i < *num && status == TR_OK; i++)
        if (i >= stay)
            s->runs[all[i].run].dropped_at = steps;
    for (int i = 0; i < *num && status == TR_OK; i++)
        if (s->runs[members[i]].dropped_at == 0)
            members[kept++] = members[i];
    if (status == TR_OK) {
        fprintf(progress, "after step %lld: the best %d of %d go%s on\n", (long long)steps, kept,
                *num, kept == 1 ? "es" : "");
        *num = kept;
    }
    free(all);
    return status;
}

static tr_status run_stages(tri_sweep *s, FILE *progress, bool *stopped, tr_error *err)
{
    int stages = num_stages(s), num = s->num_runs;
    int *members = calloc((size_t)num + 1, sizeof *members);
    tr_status status = members ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a sweep");
    for (int i = 0; i < num && status == TR_OK; i++)
        members[i] = i;
    for (int i = 0; i < stages && status == TR_OK && !*stopped; i++) {
        tri_sweep_stage stage = {members, num, steps_of(s, i, stages), progress};
        status = tri_sweep_advance(s, &stage, stopped, err);
        if (status == TR_OK && !*stopped && i + 1 < stages)
            status = drop(s, members, &num, stage.steps, progress, err);
    }
    free(members);
    return status;
}

/* ---- the verb ---- */

static tr_status conclude(const tri_sweep *s, FILE *progress, bool json, bool stopped, int *code,
                          tr_error *err)
{
    int failed;
    tri_text text;
    tri_text_init(&text);
    tr_status status = tri_sweep_table(s, json, &text, &failed, err);
    if (!json)
        fprintf(progress, "\n");
    fflush(progress);
    if (status == TR_OK)
        status = tri_text_put(&text, stdout, err);
    fflush(stdout);
    tri_text_fini(&text);
    TRI_TRY(status);
    tr_error why = {0};
    if (tri_sweep_draw(s, progress, &why) != TR_OK) /* the runs are done all the same */
        tri_cli_error("warning: %s", why.message);
    if (stopped)
        tri_text_print(progress, "stopped; to go on: the same command again\n");
    else if (failed > 0)
        tri_cli_error(
            "%d of %d runs failed; the table says why, and %s/NAME.log has all of it. The "
            "same command tries them again",
            failed, s->num_runs, s->dir);
    *code = stopped      ? tri_signals_caught() == SIGINT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED
            : failed > 0 ? TRI_EXIT_FAILED
                         : TRI_EXIT_OK;
    return TR_OK;
}

static tr_status sweep(tri_sweep *s, const tri_cli *cli, int *lock, int *code, tr_error *err)
{
    bool json = tri_cli_flag(cli, "json") != NULL, stopped = false;
    FILE *progress = json ? stderr : stdout;
    TRI_TRY(tri_sweep_read(s, cli, err));
    TRI_TRY(tri_sweep_open(s, lock, err));
    tri_text_print(progress, "sweep   %d runs in %s, %lld at a time\n", s->num_runs, s->dir,
                   (long long)s->jobs);
    fflush(progress);
    tri_signals_catch();
    TRI_TRY(run_stages(s, progress, &stopped, err));
    return conclude(s, progress, json, stopped, code, err);
}

int tri_verb_sweep(const tri_cli *cli)
{
    tri_sweep s = {0};
    tr_error err = {0};
    int lock = -1, code = TRI_EXIT_OK;
    tri_signals_outlive_readers();
    tr_status status = sweep(&s, cli, &lock, &code, &err);
    tri_sweep_free(&s);
    if (lock >= 0)
        close(lock);
    return status == TR_OK ? code : tri_cli_fail(&err);
}
