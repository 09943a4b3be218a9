/* trireme train: the training loop as a person sees it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/fs.h"
#include "cli/cli.h"
#include "cli/data_prepare.h"
#include "cli/launch.h"
#include "cli/memory.h"
#include "cli/progress.h"
#include "cli/run_trace.h"
#include "cli/text.h"
#include "cli/train_ckpt.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/ranks.h"
#include "train/record.h"

/* One rank's run. All ranks train; rank 0 alone prints and writes files. */
typedef struct run {
    const tri_cli *cli;
    tri_ranks ranks;
    tr_session *session;
    const char *dir;
    tri_metrics *metrics;
    tri_trace *trace;
    tri_record *record;
    tri_train_ckpt ckpt;
    bool has_tokenizer; /* kept in dir */
    tri_progress progress;
    int64_t first_step, num_steps, eval_every;
    double peak_flops; /* of this device, measured; 0 when not known */
    double first_loss, last_loss;
    tr_eval eval;
    double seconds;
    int64_t tokens, first_tokens;    /* since the run began; of them, before it was resumed */
    double epoch_sum, epoch_targets; /* of the losses of this epoch, and what they are means over */
} run;

/* A file of the run directory; the caller frees the path. */
static tr_status in_dir(const run *r, const char *name, char **path, tr_error *err)
{
    *path = tri_path_join(r->dir, name);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

/* What the tokens of this run mean, for whoever generates with it or exports it. */
static tr_status keep_tokenizer(run *r, tr_error *err)
{
    static const char *const names[] = {"tokenizer.json", "special_tokens_map.json"};
    tri_tokenizer *tokenizer = NULL;
    if (r->session->session.data)
        TRI_TRY(tri_data_tokenizer(&r->session->session.config.data, &tokenizer, err));
    tr_status status = tokenizer ? tri_tokenizer_save_dir(tokenizer, r->dir, err) : TR_OK;
    for (int i = 0; i < 2 && !tokenizer && status == TR_OK; i++) { /* of an earlier run */
        char *path;
        status = in_dir(r, names[i], &path, err);
        if (status == TR_OK)
            (void)unlink(path);
        free(path);
    }
    r->has_tokenizer = tokenizer != NULL;
    tri_tokenizer_close(tokenizer);
    return status;
}

static tr_status open_files(run *r, tr_error *err)
{
    char *path;
    TRI_TRY(tri_make_dirs(r->dir, err));
    TRI_TRY(keep_tokenizer(r, err));
    TRI_TRY(in_dir(r, "config.yaml", &path, err));
    tr_status status = tr_settings_save(r->cli->settings, path, err);
    free(path);
    TRI_TRY(status);
    TRI_TRY(in_dir(r, "metrics.jsonl", &path, err));
    if (r->ckpt.continues)
        status = tri_jsonl_trim(path, r->ckpt.resumed.step, err);
    else if (unlink(path) != 0 && errno != ENOENT) /* a new run starts a new record */
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be replaced: %s", path, strerror(errno));
    if (status == TR_OK)
        status = tri_metrics_open(path, &r->metrics, err);
    free(path);
    TRI_TRY(status);
    return TR_OK;
}

/* Heads that the model to start from did not have. */
static void print_fresh(const tri_session *s)
{
    bool any = false;
    for (size_t i = 0; i < s->params.count; i++)
        if (s->fresh[i]) {
            printf("%s%s", any ? ", " : "anew    not in model.from: ", s->params.items[i].name);
            any = true;
        }
    if (any)
        printf("\n");
}

static void print_start(run *r)
{
    const tri_session *s = &r->session->session;
    char count[16], bytes[16], data[800] = "made-up vectors";
    if (s->data)
        tri_data_describe(s->data, data, sizeof data);
    printf("model   %s, %" PRId64 " layers, %s parameters\n", s->config.compile.model.kind,
           s->config.compile.model.num_layers,
           tri_text_count((double)tri_param_total(&s->params), count));
    print_fresh(s);
    printf("data    %s\n", data);
    printf("device  %s, %s planned", s->device.description,
           tri_text_bytes((double)tri_session_planned_bytes(s), bytes));
    if (r->ranks.size > 1)
        printf(", on each of %d ranks", r->ranks.size);
    printf("\n");
    tri_text on_host;
    tri_text_init(&on_host);
    tri_executor_host_ops(&s->executors[TRI_PROGRAM_TRAIN], &on_host);
    if (on_host.chars && on_host.chars[0])
        printf("note    no kernel on this device, so the host computes: %s\n", on_host.chars);
    tri_text_fini(&on_host);
    if (s->epochs.num > 0)
        printf("epochs  %" PRId64 ", of %" PRId64 " steps for %" PRId64 " rows%s\n", s->epochs.num,
               s->epochs.steps, s->epochs.rows,
               s->num_steps < s->epochs.num * s->epochs.steps ? "; train.steps ends it earlier"
                                                              : "");
    printf("run     %s\n", r->dir);
    tri_train_ckpt_print(&r->ckpt);
    fflush(stdout);
}

/* "held-out loss 0.6912  accuracy 53.1%", as much of it as the task has; returns text. */
static char *held_out_text(const run *r, char *text, size_t size)
{
    const tri_model_config *model = &r->session->session.config.compile.model;
    double loss = r->eval.loss, percent = 100 * r->eval.accuracy;
    if (!tri_model_find(model->kind)->sequences)
        snprintf(text, size, "held-out loss %.6f", loss);
    else if (model->task == TRI_TASK_CLASSIFY)
        snprintf(text, size, "held-out loss %.4f  accuracy %.1f%%", loss, percent);
    else
        snprintf(text, size, "held-out loss %.4f  perplexity %.2f  accuracy %.1f%%", loss,
                 exp(loss), percent);
    return text;
}

static tr_status evaluate(run *r, const tr_step *done, tr_error *err)
{
    char text[96];
    TRI_TRY(tr_session_eval(r->session, &r->eval, err));
    if (r->ranks.rank == 0 && done->epoch == 0) /* else it stands in the epoch's line */
        tri_progress_note(&r->progress, "step %" PRId64 "  %s", done->step + 1,
                          held_out_text(r, text, sizeof text));
    return TR_OK;
}

/* "[epoch 1/3] loss 0.6931  held-out loss 0.6912  accuracy 53.1%" */
static void show_epoch(run *r, const tr_step *step, double loss, bool evaluated)
{
    char text[96] = "";
    if (r->ranks.rank == 0)
        tri_progress_note(&r->progress, "[epoch %" PRId64 "/%" PRId64 "] loss %.4f%s%s",
                          step->epoch, r->session->session.epochs.num, loss, evaluated ? "  " : "",
                          evaluated ? held_out_text(r, text, sizeof text) : "");
}

static void show_step(run *r, const tr_step *step)
{
    const tri_program *program = &r->session->session.programs[TRI_PROGRAM_TRAIN];
    double rate = tri_program_cost(program).flops * r->ranks.size / step->seconds;
    if (r->peak_flops > 0 && rate > r->peak_flops)
        r->peak_flops = rate; /* it was measured while the machine was busy */
    tri_progress_step line = {.step = step->step + 1,
                              .loss = step->loss,
                              .grad_norm = step->grad_norm,
                              .lr = step->lr,
                              .tokens_per_s = (double)step->tokens / step->seconds,
                              .mfu = r->peak_flops > 0 ? rate / r->peak_flops : -1};
    tri_progress_update(&r->progress, &line);
}

static bool has_scaler(const run *r)
{
    return r->session->session.config.compile.precision.compute == TRI_F16;
}

static void write_metrics(run *r, const tr_step *step, int slowest_rank, double slowest,
                          bool evaluated, double epoch_loss)
{
    tri_metrics_row row = {.step = step->step,
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
                           .loss_scale = has_scaler(r) ? step->scale : 0,
                           .skipped = r->session->session.skipped,
                           .has_stall = r->ckpt.saved,
                           .ckpt_stall_ms = r->ckpt.stall_s * 1e3};
    tr_error warning = {0};
    if (r->metrics && tri_metrics_write(r->metrics, &row, &warning) != TR_OK)
        tri_progress_note(&r->progress, "warning: %s; the run goes on without", warning.message);
}

static void write_record(run *r, const tr_step *step)
{
    tr_error warning = {0};
    if (r->record && tri_record_step(r->record, step->step, &warning) != TR_OK)
        tri_cli_error("warning: %s; the run goes on without", warning.message);
}

/* Mean loss of the epoch so far; the next one begins anew. */
static double add_to_epoch(run *r, const tr_step *step)
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

/* With what this program counts itself, for whoever goes on from the checkpoint. */
static tr_status save_if_due(run *r, moment when, tr_error *err)
{
    const tri_ckpt_number numbers[] = {{"tokens", (double)r->tokens},
                                       {"epoch_loss_sum", r->epoch_sum},
                                       {"epoch_targets", r->epoch_targets}};
    tr_error warning = {0};
    if (when == AT_THE_END)
        TRI_TRY(tri_train_ckpt_finish(&r->ckpt, numbers, 3, &warning, err));
    else
        TRI_TRY(tri_train_ckpt_step(&r->ckpt, numbers, 3, when == AFTER_THE_LAST, &warning, err));
    if (warning.message[0] && r->ranks.rank == 0)
        tri_progress_note(&r->progress, "warning: %s; the run goes on", warning.message);
    return TR_OK;
}

static void note_skipped(run *r, const tr_step *step)
{
    int64_t done = step->step + 1;
    if (has_scaler(r))
        tri_progress_note(&r->progress,
                          "step %" PRId64 "  skipped: the gradient overflowed; loss scale %g -> %g",
                          done, step->scale, step->scale / 2);
    else
        tri_progress_note(&r->progress,
                          "step %" PRId64 "  skipped: the %s is not finite; the weights stay as "
                          "they were",
                          done, isfinite(step->loss) ? "gradient" : "loss");
}

static tr_status one_step(run *r, tr_error *err)
{
    tr_step step;
    tr_status status = tr_session_step(r->session, &step, err);
    if (step.step == r->first_step)
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
    TRI_TRY(tri_ranks_meet(&r->ranks, step.seconds, 0, &met, err));
    int64_t done = step.step + 1;
    if (r->ranks.rank == 0 && step.skipped)
        note_skipped(r, &step);
    else if (r->ranks.rank == 0)
        show_step(r, &step);
    bool due = done == r->num_steps || (r->eval_every ? done % r->eval_every == 0 : step.epoch > 0);
    bool evaluates = due && tri_session_can_eval(&r->session->session);
    if (evaluates)
        TRI_TRY(evaluate(r, &step, err));
    double epoch_loss = add_to_epoch(r, &step);
    if (step.epoch > 0)
        show_epoch(r, &step, epoch_loss, evaluates);
    write_metrics(r, &step, met.slowest_rank, met.slowest_s, evaluates, epoch_loss);
    TRI_TRY(save_if_due(r, done == r->num_steps ? AFTER_THE_LAST : AFTER_A_STEP, err));
    return TR_OK;
}

static tr_status write_results(run *r, tr_error *err)
{
    char *path;
    if (tr_settings_bool(r->cli->settings, "run.save")) {
        TRI_TRY(in_dir(r, "weights.safetensors", &path, err));
        tr_status status = tr_session_save(r->session, path, err);
        free(path);
        TRI_TRY(status);
    }
    return TR_OK;
}

static void print_memory(const run *r, uint64_t anonymous)
{
    char used[16], expected[16], plan[16], staging[16];
    uint64_t planned = tri_session_planned_bytes(&r->session->session);
    uint64_t staged = tri_train_ckpt_staging(&r->ckpt);
    printf("memory: %s used, %s expected (plan %s + fixed overhead",
           tri_text_bytes((double)anonymous, used),
           tri_text_bytes((double)(planned + staged + TRI_PROCESS_OVERHEAD_BYTES), expected),
           tri_text_bytes((double)planned, plan));
    if (staged)
        printf(" + %s to stage checkpoints", tri_text_bytes((double)staged, staging));
    printf(")\n");
}

static void print_end(const run *r)
{
    const tri_session *s = &r->session->session;
    char time[32], planned[16], used[16];
    if (r->num_steps <= r->first_step)
        printf("\nnothing to train: all of its %" PRId64 " steps are done; raise train.steps to go "
               "on\n",
               r->num_steps);
    else
        printf("\n%" PRId64 " steps in %s, %.0f tokens/s; loss %.4f -> %.4f\n",
               r->num_steps - r->first_step, tri_text_duration(r->seconds, time),
               (double)(r->tokens - r->first_tokens) / (r->seconds + 1e-9), r->first_loss,
               r->last_loss);
    if (has_scaler(r) || s->skipped > 0)
        printf("skipped: %" PRId64 " steps, whose gradient %s\n", s->skipped,
               has_scaler(r) ? "overflowed" : "or loss was not finite");
    uint64_t anonymous = tri_memory_anonymous();
    if (s->store.device_bytes)
        printf("memory: %s of the device used, %s planned\n",
               tri_text_bytes((double)s->store.device_bytes, used),
               tri_text_bytes((double)tri_session_planned_bytes(s), planned));
    else if (anonymous)
        print_memory(r, anonymous);
    printf("written to %s: config.yaml, metrics.jsonl%s%s%s%s%s\n", r->dir,
           r->has_tokenizer ? ", tokenizer.json" : "",
           tr_settings_bool(r->cli->settings, "run.save") ? ", weights.safetensors" : "",
           r->record ? ", samples/" : "", r->ckpt.checkpointer ? ", ckpt/" : "",
           r->trace ? ", trace.json (opens in ui.perfetto.dev)" : "");
    if (s->data && tr_settings_bool(r->cli->settings, "run.save") &&
        s->config.compile.model.task == TRI_TASK_LM &&
        strcmp(s->config.data.source, "synthetic") != 0)
        printf("text from it: trireme generate %s\n", r->dir);
}

/* Makes the session and joins it to the other ranks. */
static tr_status start(run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    tr_settings *settings = r->cli->settings;
    int share = tri_device_num_cores() / bootstrap->local_size;
    char threads[48];
    snprintf(threads, sizeof threads, "run.threads=%d", share > 1 ? share : 1);
    if (bootstrap->local_size > 1 && tr_settings_int(settings, "run.threads") == 0)
        TRI_TRY(tr_settings_fill(settings, threads, err));
    TRI_TRY(tri_api_compile(settings, bootstrap->rank, &r->session, err));
    tri_ranks_config config = {.transport = tr_settings_string(settings, "run.transport"),
                               .algorithm = tr_settings_string(settings, "run.collective")};
    char *tuning = NULL;
    if (bootstrap->size > 1) {
        TRI_TRY(in_dir(r, "tuning.json", &tuning, err));
        config.tuning = tuning;
    }
    tr_status status = TR_OK;
    if (bootstrap->size > 1 && bootstrap->rank == 0)
        status = tri_make_dirs(r->dir, err);
    if (status == TR_OK)
        status = tri_ranks_join(&r->ranks, bootstrap, &config, &r->session->session, err);
    free(tuning);
    TRI_TRY(status);
    r->session->session.config.weights_follow = true; /* see tri_train_ckpt_begin */
    return tri_api_start(r->session, err);
}

static tr_status open_record(run *r, tr_error *err)
{
    if (!tr_settings_bool(r->cli->settings, "data.record"))
        return TR_OK;
    char *dir;
    TRI_TRY(in_dir(r, "samples", &dir, err));
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
static void go_on(run *r)
{
    const tri_resumed *resumed = &r->ckpt.resumed;
    r->first_step = r->session->session.step;
    r->tokens = r->first_tokens = (int64_t)tri_resumed_number(resumed, "tokens", 0);
    r->epoch_sum = tri_resumed_number(resumed, "epoch_loss_sum", 0);
    r->epoch_targets = tri_resumed_number(resumed, "epoch_targets", 0);
}

static tr_status train(run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    TRI_TRY(start(r, bootstrap, err));
    TRI_TRY(tri_train_ckpt_begin(&r->ckpt, r->cli->settings, &r->session->session, &r->ranks, err));
    TRI_TRY(open_record(r, err));
    r->num_steps = tr_session_num_steps(r->session);
    go_on(r);
    bool leads = bootstrap->rank == 0;
    TRI_TRY(tri_run_trace_open(r->cli, r->session, bootstrap->rank, r->num_steps, &r->trace, err));
    if (leads) {
        TRI_TRY(open_files(r, err));
        print_start(r);
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
    for (int64_t i = r->first_step; status == TR_OK && i < r->num_steps; i++)
        status = one_step(r, err);
    if (status == TR_OK)
        status = save_if_due(r, AT_THE_END, err);
    if (leads)
        tri_progress_fini(&r->progress);
    TRI_TRY(status);
    if (r->trace)
        TRI_TRY(tri_run_trace_write(r->trace, r->dir, bootstrap->rank, err));
    if (tr_settings_bool(r->cli->settings, "run.save"))
        TRI_TRY(tr_session_pull(r->session, err)); /* by all: each has a part */
    if (leads) {
        TRI_TRY(write_results(r, err));
        print_end(r);
    }
    return TR_OK;
}

static int train_rank(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    (void)context;
    tr_error err = {0};
    run r = {.cli = cli,
             .dir = tr_settings_string(cli->settings, "run.dir"),
             .eval_every = tr_settings_int(cli->settings, "train.eval_every")};
    tr_status status = train(&r, bootstrap, &err);
    if (r.metrics)
        tri_metrics_close(r.metrics);
    if (r.trace)
        tri_trace_destroy(r.trace);
    tri_record_close(r.record);
    tri_train_ckpt_end(&r.ckpt);
    int code = status == TR_OK ? TRI_EXIT_OK : tri_cli_rank_fail(bootstrap, &err);
    tr_session_destroy(r.session);
    tri_ranks_leave(&r.ranks);
    return code;
}

int tri_verb_train(const tri_cli *cli)
{
    tr_error err = {0};
    tri_prepare_bar bar;
    tri_prepare_bar_init(&bar, tri_terminal(stdout));
    tr_status status = tri_api_prepare(cli->settings, tri_prepare_bar_show, &bar, &err);
    tri_prepare_bar_end(&bar);
    if (status != TR_OK || tri_api_check(cli->settings, &err) != TR_OK ||
        tri_train_ckpt_check(cli->settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    return tri_cli_launch(cli, (int)tri_cli_num_ranks(cli), train_rank, NULL);
}
