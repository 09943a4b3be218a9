/* trireme train: the training loop as a person sees it. All ranks train; rank 0 alone prints and
 * writes files. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/guard.h"
#include "cli/launch/environment.h"
#include "cli/memory.h"
#include "cli/run/dry_run.h"
#include "cli/run/journal.h"
#include "cli/run/run_aside.h"
#include "cli/run/run_trace.h"
#include "cli/run/train_run.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "cli/verbs/data_prepare.h"
#include "train/step_stats.h"

/* Why a rank wishes that the run end; all ranks learn of it after the step. The first counts. */
enum { WISH_INT = 1, WISH_TERM = 2, WISH_USR1 = 4, WISH_TIME = 8 };

static const struct {
    unsigned wish;
    int signal;
    const char *why;
} endings[] = {
    {WISH_INT, SIGINT, "Ctrl-C"},
    {WISH_TERM, SIGTERM, "asked by SIGTERM"},
    {WISH_USR1, SIGUSR1, "asked by SIGUSR1"},
    {WISH_TIME, 0, "run.max_minutes is over"},
};
enum { NUM_ENDINGS = sizeof endings / sizeof *endings };

static unsigned wishes_of(const tri_train_run *r)
{
    double minutes = tr_settings_float(r->cli->settings, "run.max_minutes");
    bool late = minutes > 0 && tri_now_s() - r->recovery->started_s >= 60 * minutes;
    unsigned wishes = late ? WISH_TIME : 0;
    int caught = tri_signals_caught();
    for (int i = 0; caught && i < NUM_ENDINGS; i++)
        wishes |= endings[i].signal == caught ? endings[i].wish : 0;
    return wishes;
}

static tr_status evaluate(tri_train_run *r, const tr_step *done, tr_error *err)
{
    char text[96];
    TRI_TRY(tr_session_eval(r->session, &r->eval, err));
    if (r->ranks.rank == 0 && done->epoch == 0) /* else it stands in the epoch's line */
        tri_progress_note(&r->progress, "step %" PRId64 "  %s", done->step,
                          tri_train_held_out(r, text, sizeof text));
    return TR_OK;
}

static void write_metrics(tri_train_run *r, const tr_step *step, int slowest_rank, double slowest,
                          bool evaluated, double epoch_loss)
{
    tri_shown stats[TRI_MAX_SHOWN];
    size_t num_stats = tri_session_num_shown(&r->session->session);
    for (size_t i = 0; i < num_stats; i++)
        stats[i] = tri_session_shown(&r->session->session, i);
    tri_metrics_row row = {.step = step->step,
                           .time_s = tri_unix_s(),
                           .stats = stats,
                           .num_stats = num_stats,
                           .loss = step->loss,
                           .grad_norm = step->grad_norm,
                           .lr = step->lr,
                           .tokens = r->tokens,
                           .step_ms = step->seconds * 1e3,
                           .tokens_per_s = (double)step->tokens / step->seconds,
                           .mem_peak_bytes = (int64_t)tri_memory_peak(),
                           .slowest_rank = slowest_rank,
                           .slowest_ms = slowest * 1e3,
                           .has_eval = evaluated,
                           .eval_loss = r->eval.loss,
                           .eval_accuracy = r->eval.accuracy,
                           .epoch = step->epoch,
                           .epoch_loss = epoch_loss,
                           .loss_scale = tri_train_has_scaler(r) ? step->scale : 0,
                           .skipped = r->session->session.skipped,
                           .has_stall = r->ckpt.saved,
                           .ckpt_stall_ms = r->ckpt.stall_s * 1e3};
    tr_error warning = {0};
    if (r->metrics && tri_metrics_write(r->metrics, &row, &warning) != TR_OK)
        tri_progress_note(&r->progress, "warning: %s; the run goes on without", warning.message);
}

static void write_record(tri_train_run *r, const tr_step *step)
{
    tr_error warning = {0};
    if (r->record && tri_record_step(r->record, step->step, &warning) != TR_OK)
        tri_cli_error("warning: %s; the run goes on without", warning.message);
}

/* Mean loss of the epoch so far; the next one begins anew. */
static double add_to_epoch(tri_train_run *r, const tr_step *step)
{
    if (isfinite(step->loss)) { /* a skipped step may have none */
        r->epoch_sum += step->loss * step->targets;
        r->epoch_targets += step->targets;
    }
    double mean = r->epoch_sum / (r->epoch_targets > 0 ? r->epoch_targets : 1);
    if (step->epoch > 0)
        r->epoch_sum = r->epoch_targets = 0;
    return mean;
}

typedef enum moment { AFTER_A_STEP, AFTER_THE_LAST, AT_THE_END } moment;

/* What this program counts itself, for whoever goes on from the checkpoint. */
enum { NUM_COUNTS = 3 };
static void list_counts(const tri_train_run *r, tri_ckpt_number counts[NUM_COUNTS])
{
    counts[0] = (tri_ckpt_number){"tokens", (double)r->tokens};
    counts[1] = (tri_ckpt_number){"epoch_loss_sum", r->epoch_sum};
    counts[2] = (tri_ckpt_number){"epoch_targets", r->epoch_targets};
}

/* After the line of the step: whoever goes on from the checkpoint finds the lines of all steps
 * before it. */
static tr_status save_if_due(tri_train_run *r, moment when, tr_error *err)
{
    tri_ckpt_number counts[NUM_COUNTS];
    list_counts(r, counts);
    tr_error warning = {0};
    if (when == AT_THE_END)
        TRI_TRY(tri_train_ckpt_finish(&r->ckpt, counts, NUM_COUNTS, &warning, err));
    else
        TRI_TRY(tri_train_ckpt_step(&r->ckpt, counts, NUM_COUNTS, when == AFTER_THE_LAST, &warning,
                                    err));
    if (warning.message[0] && r->ranks.rank == 0)
        tri_progress_note(&r->progress, "warning: %s; %s", warning.message,
                          when != AT_THE_END    ? "the run goes on"
                          : r->ckpt.last_failed ? "the run is done, and its end is not saved"
                                                : "it was tried again, and is there now");
    return TR_OK;
}

/* What ranks hold copies of, every run.compare_every steps and before anything is saved: a wrong
 * bit must not reach a file. */
static tr_status compare_copies(tri_train_run *r, bool saves, tr_error *err)
{
    if (r->compare_every == 0 || (!saves && r->session->session.step % r->compare_every != 0))
        return TR_OK;
    tr_status status = tri_replicas_compare(&r->replicas, err);
    if (status == TR_OK || r->ranks.size == 1)
        return status;
    size_t used = strlen(err->message), room = sizeof err->message - used;
    if (r->good_step >= 0)
        snprintf(err->message + used, room,
                 "; nothing of it is saved, and %s/ckpt/step-%" PRId64 " was saved when all copies "
                 "were equal: go on from there with --set run.resume=true",
                 r->dir, r->good_step);
    else
        snprintf(err->message + used, room,
                 "; nothing of it is saved, and nothing was before: train again, with ckpt.every");
    return status;
}

static tr_status one_step(tri_train_run *r, tr_error *err)
{
    tr_step step;
    tr_status status = tr_session_step(r->session, &step, err);
    if (step.step == r->first_step + 1)
        r->first_loss = step.loss;
    r->last_loss = step.loss;
    r->seconds += step.seconds;
    r->tokens += step.tokens;
    if (status == TR_ERROR_NUMERIC) { /* at the same step on all ranks */
        write_metrics(r, &step, r->ranks.rank, step.seconds, false, 0);
        tri_ranks_name_nonfinite(&r->ranks, &r->session->session, err);
    }
    TRI_TRY(status);
    write_record(r, &step);
    tri_meeting met;
    TRI_TRY(tri_ranks_meet(&r->ranks, step.seconds, wishes_of(r), &met, err));
    r->ended = met.wishes;
    if (r->ranks.rank == 0 && step.skipped)
        tri_train_show_skipped(r, &step);
    else if (r->ranks.rank == 0)
        tri_train_show_step(r, &step);
    bool last = step.step == r->num_steps;
    bool due = last || (r->eval_every ? step.step % r->eval_every == 0 : step.epoch > 0);
    bool evaluates = due && tri_session_can_eval(&r->session->session);
    if (evaluates)
        TRI_TRY(evaluate(r, &step, err));
    double epoch_loss = add_to_epoch(r, &step);
    if (step.epoch > 0)
        tri_train_show_epoch(r, &step, epoch_loss, evaluates);
    write_metrics(r, &step, met.slowest_rank, met.slowest_s, evaluates, epoch_loss);
    TRI_TRY(compare_copies(r, last || tri_train_ckpt_due(&r->ckpt, last), err));
    TRI_TRY(save_if_due(r, last ? AFTER_THE_LAST : AFTER_A_STEP, err));
    if (r->ckpt.saved)
        r->good_step = step.step;
    return TR_OK;
}

/* By all ranks, since each has a part of them; one writes. */
static tr_status save_weights(tri_train_run *r, bool writes, tr_error *err)
{
    char *path = NULL;
    if (writes)
        TRI_TRY(tri_train_in_dir(r, "weights.safetensors", &path, err));
    tr_status status = tri_session_save_weights(&r->session->session, path, err);
    free(path);
    return status;
}

/* A run whose end is not saved has not done what it was asked for, whatever its losses: whoever
 * started it must not take it for done. */
static tr_status judge_ckpt(tri_train_run *r, tr_error *err)
{
    char *weights = NULL;
    if (tr_settings_bool(r->cli->settings, "run.save"))
        TRI_TRY(tri_train_in_dir(r, "weights.safetensors", &weights, err));
    tr_status status = tri_train_ckpt_verdict(&r->ckpt, weights, err);
    free(weights);
    return status;
}

/* Why the run ends, for people. */
static const char *why_ended(const tri_train_run *r)
{
    for (int i = 0; i < NUM_ENDINGS; i++)
        if (r->ended & endings[i].wish)
            return endings[i].why;
    return "asked";
}

static void tell_stopped(const tri_train_run *r, bool saved)
{
    int64_t done = r->session->session.step;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "stop";
    event.reason = why_ended(r);
    event.at_step = done;
    tri_events_add(r->dir, &event);
    printf("stopped after step %" PRId64 " of %" PRId64 " (%s)\n", done, r->num_steps,
           why_ended(r));
    if (saved)
        tri_text_print(stdout,
                       "saved   %s/ckpt/step-%" PRId64 "; to go on: the same command with --set "
                       "run.resume=true\n",
                       r->dir, done);
    fflush(stdout);
}

/* All ranks are here after the same step. First what cannot be had again, then what is told. */
static tr_status end_early(tri_train_run *r, tr_error *err)
{
    tri_ckpt_number counts[NUM_COUNTS];
    list_counts(r, counts);
    bool saves = r->session->session.device.def != &tri_device_null; /* which has nothing to save */
    if (saves)
        TRI_TRY(compare_copies(r, true, err));
    if (saves)
        TRI_TRY(tri_train_ckpt_now(&r->ckpt, counts, NUM_COUNTS, err));
    if (r->ranks.rank == 0)
        tell_stopped(r, saves);
    r->code = r->ended & WISH_INT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED;
    return TR_OK;
}

/* Before there is anything else to see. */
static void tell_measuring(const char *path)
{
    tri_text_print(stdout, "comm    measuring what messages between ranks cost, once; kept in %s\n",
                   path);
    fflush(stdout);
}

/* Makes the session and joins it to the other ranks. */
static tr_status start(tri_train_run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    tr_settings *settings = r->cli->settings;
    int share = tri_device_num_cores() / bootstrap->local_size;
    char threads[48];
    snprintf(threads, sizeof threads, "run.threads=%d", share > 1 ? share : 1);
    if (bootstrap->local_size > 1 && tr_settings_int(settings, "run.threads") == 0)
        TRI_TRY(tr_settings_fill(settings, threads, err));
    TRI_TRY(tri_cli_agree_on_device(settings, bootstrap, err));
    TRI_TRY(tri_api_compile(settings, bootstrap->rank, &r->session, err));
    tri_ranks_config config = {.transport = tr_settings_string(settings, "run.transport"),
                               .algorithm = tr_settings_string(settings, "run.collective"),
                               .nccl_library = tr_settings_string(settings, "run.nccl_library"),
                               .message_sums = tr_settings_bool(settings, "run.message_sums"),
                               .measuring = tell_measuring};
    tri_session *session = &r->session->session;
    char *in_run = NULL;
    TRI_TRY(tri_train_in_dir(r, "tuning.json", &in_run, err));
    config.tuning = session->device.tuning ? session->device.tuning : in_run;
    tr_status status = tri_ranks_join(&r->ranks, bootstrap, &config, session, err);
    /* The first start in a directory measures collectives, with large vectors that are gone by now.
     * The peak in metrics.jsonl is that of training, and the same at every start. */
    if (r->ranks.size > 1)
        tri_memory_forget_peak();
    if (status == TR_OK) {
        session->config.weights_follow = true; /* see tri_train_ckpt_begin */
        if (tri_path_is_dir(r->dir))           /* not on a machine that does not see rank 0's */
            session->device.tuning = config.tuning;
        status = tri_api_start(r->session, err);
        session->device.tuning = NULL;
    }
    free(in_run);
    return status;
}

static tr_status open_record(tri_train_run *r, tr_error *err)
{
    if (!tr_settings_bool(r->cli->settings, "data.record"))
        return TR_OK;
    char *dir;
    TRI_TRY(tri_train_in_dir(r, "samples", &dir, err));
    tri_record_config config = {.dir = dir,
                                .rank = r->ranks.rank,
                                .num_ranks = r->ranks.size,
                                .resumed = r->ckpt.continues,
                                .step = r->ckpt.resumed.step};
    tr_status status = tri_record_open(&config, &r->session->session, &r->record, err);
    free(dir);
    return status;
}

/* The counts of the run that is continued. */
static void go_on(tri_train_run *r)
{
    const tri_resumed *resumed = &r->ckpt.resumed;
    r->first_step = r->session->session.step;
    r->tokens = r->first_tokens = (int64_t)tri_resumed_number(resumed, "tokens", 0);
    r->epoch_sum = tri_resumed_number(resumed, "epoch_loss_sum", 0);
    r->epoch_targets = tri_resumed_number(resumed, "epoch_targets", 0);
}

/* A rank that is started again goes on, whatever the run was begun with; its settings still say
 * what that was. */
static tr_status begin_ckpt(tri_train_run *r, tr_error *err)
{
    tr_settings *settings = r->cli->settings;
    char given[32];
    snprintf(given, sizeof given, "run.resume=%s", tr_settings_string(settings, "run.resume"));
    if (r->recovery->resumes)
        TRI_TRY(tr_settings_set(settings, "run.resume=auto", err));
    TRI_TRY(tri_train_ckpt_begin(&r->ckpt, settings, &r->session->session, &r->ranks, err));
    return tr_settings_set(settings, given, err);
}

static tr_status train(tri_train_run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    TRI_TRY(start(r, bootstrap, err));
    TRI_TRY(begin_ckpt(r, err));
    TRI_TRY(open_record(r, err));
    if (r->session->session.device.def == &tri_device_null)
        r->compare_every = 0; /* it has nothing to compare */
    if (r->compare_every > 0)
        TRI_TRY(tri_replicas_open(&r->replicas, &r->session->session, &r->ranks, err));
    r->good_step = r->ckpt.continues ? r->ckpt.resumed.step : -1;
    r->num_steps = tr_session_num_steps(r->session);
    go_on(r);
    bool leads = bootstrap->rank == 0;
    TRI_TRY(tri_run_trace_open(r->cli, r->session, bootstrap->rank, r->num_steps, &r->trace, err));
    TRI_TRY(tri_ranks_patiently(&r->ranks, tri_train_open_files, r, err));
    if (leads) {
        r->overhead = tri_memory_overhead_of(&r->session->session);
        TRI_TRY(tri_train_print_start(r, err));
        tri_session *s = &r->session->session;
        r->peak_flops =
            s->device.def->peak_flops
                ? s->device.def->peak_flops(&s->device, s->config.compile.precision.compute)
                : 0;
        r->peak_flops *= bootstrap->size;
        tri_progress_init(&r->progress, stdout, r->num_steps,
                          tr_settings_int(r->cli->settings, "train.log_every"));
    }
    tr_status status = TR_OK;
    for (int64_t i = r->first_step; status == TR_OK && i < r->num_steps && !r->ended; i++)
        status = one_step(r, err);
    bool early = r->session->session.step < r->num_steps;
    if (status == TR_OK && !early)
        status = save_if_due(r, AT_THE_END, err);
    if (leads)
        tri_progress_fini(&r->progress);
    TRI_TRY(status);
    if (early)
        TRI_TRY(end_early(r, err));
    else if (tr_settings_bool(r->cli->settings, "run.save"))
        TRI_TRY(save_weights(r, leads, err));
    if (r->trace) /* after what cannot be had again */
        TRI_TRY(tri_run_trace_write(r->trace, r->dir, bootstrap->rank, err));
    if (leads && !early)
        tri_train_print_end(r);
    return leads && !early ? judge_ckpt(r, err) : TR_OK;
}

static int train_rank(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    tr_error err = {0};
    tri_train_run r = {.cli = cli,
                       .recovery = context,
                       .local_ranks = bootstrap->local_size,
                       .dir = tr_settings_string(cli->settings, "run.dir"),
                       .eval_every = tr_settings_int(cli->settings, "train.eval_every"),
                       .compare_every = tr_settings_int(cli->settings, "run.compare_every")};
    tr_status status = train(&r, bootstrap, &err);
    /* First of all: closing may take as long as a checkpoint that is being written. */
    int code = status == TR_OK ? r.code : tri_cli_rank_fail(bootstrap, &err);
    if (status == TR_ERROR_NUMERIC || status == TR_ERROR_INTERNAL ||
        (status != TR_OK && r.ckpt.last_failed))
        code = TRI_EXIT_FINAL;
    if (r.metrics)
        tri_metrics_close(r.metrics);
    if (r.trace)
        tri_trace_destroy(r.trace);
    tri_record_close(r.record);
    tri_train_ckpt_end(&r.ckpt);
    tri_replicas_close(&r.replicas);
    tr_session_destroy(r.session);
    tri_ranks_leave(&r.ranks);
    return code;
}

/* Of the rank that writes it: those on other machines need not even see it. */
static tr_status check_dir(const tri_cli *cli, tr_error *err)
{
    tri_environment world;
    if (tri_environment_read(&world, NULL) == TR_OK && world.given && world.rank > 0)
        return TR_OK;
    TRI_TRY(tri_run_dir_check(tr_settings_string(cli->settings, "run.dir"), err));
    return tri_run_aside_check(cli->settings, err);
}

/* Text becomes tokens, where that is still to be done. A signal ends it at once. */
static tr_status prepare(tr_settings *settings, tr_error *err)
{
    char *beside = tri_path_join(tr_settings_string(settings, "run.dir"), "data/.");
    if (!beside)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tri_guard guard;
    tri_guard_begin(&guard, beside);
    tri_prepare_bar bar;
    tri_prepare_bar_init(&bar, tri_terminal(stdout));
    tr_status status = tri_api_prepare(settings, tri_prepare_bar_show, &bar, err);
    tri_prepare_bar_end(&bar);
    tri_guard_end(&guard);
    free(beside);
    return status;
}

int tri_verb_train(const tri_cli *cli)
{
    tr_error err = {0};
    tri_signals_outlive_readers();
    if (check_dir(cli, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (tri_cli_flag(cli, "dry-run"))
        return tri_train_ckpt_check(cli->settings, &err) == TR_OK ? tri_train_dry_run(cli)
                                                                  : tri_cli_fail(&err);
    if (prepare(cli->settings, &err) != TR_OK || tri_api_check(cli->settings, &err) != TR_OK ||
        tri_train_ckpt_check(cli->settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    tri_recovery recovery;
    tri_recovery_init(&recovery, cli);
    tri_signals_catch(); /* not before: nothing that runs up to here looks at them */
    tri_launch_options options = {.asks = true,
                                  .writes = true,
                                  .processes = true,
                                  .restarts = tri_recovery_wanted(&recovery),
                                  .begin = tri_journal_begin,
                                  .failed = tri_journal_failed,
                                  .again = tri_recovery_again,
                                  .ended = tri_journal_ended,
                                  .note = tri_journal_note,
                                  .context = &recovery};
    int code = tri_cli_launch(cli, (int)tri_cli_num_ranks(cli), train_rank, &recovery, &options);
    fflush(stdout);
    clearerr(stdout); /* what cannot be printed is noted by now, and the run is done all the same */
    return code;
}
