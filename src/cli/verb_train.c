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
#include "cli/launch.h"
#include "cli/memory.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "train/metrics.h"
#include "train/ranks.h"

/* One rank's run. All ranks train; rank 0 alone prints and writes files. */
typedef struct run {
    const tri_cli *cli;
    tri_ranks ranks;
    tr_session *session;
    const char *dir;
    tri_metrics *metrics;
    tri_trace *trace;
    tri_progress progress;
    int64_t num_steps, eval_every;
    double peak_flops; /* of this device, measured; 0 when not known */
    double first_loss, last_loss, eval_loss;
    double seconds;
    int64_t tokens;
} run;

/* A file of the run directory; the caller frees the path. */
static tr_status in_dir(const run *r, const char *name, char **path, tr_error *err)
{
    *path = tri_path_join(r->dir, name);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

static tr_status open_files(run *r, tr_error *err)
{
    char *path;
    TRI_TRY(tri_make_dirs(r->dir, err));
    TRI_TRY(in_dir(r, "config.yaml", &path, err));
    tr_status status = tr_settings_save(r->cli->settings, path, err);
    free(path);
    TRI_TRY(status);
    TRI_TRY(in_dir(r, "metrics.jsonl", &path, err));
    if (unlink(path) != 0 && errno != ENOENT) /* a new run starts a new record */
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be replaced: %s", path, strerror(errno));
    if (status == TR_OK)
        status = tri_metrics_open(path, &r->metrics, err);
    free(path);
    TRI_TRY(status);
    if (!tr_settings_bool(r->cli->settings, "run.trace"))
        return TR_OK;
    size_t per_step = 0;
    const tri_program *program = &r->session->session.programs[TRI_PROGRAM_TRAIN];
    for (size_t c = 0; c < program->num_calls; c++)
        per_step += program->segments[program->calls[c].segment].count;
    int64_t wanted = (int64_t)per_step * r->num_steps, most = 1000000;
    TRI_TRY(tri_trace_create(0, wanted < most ? wanted : most, &r->trace, err));
    tri_trace_name_lane(r->trace, 0, "compute");
    r->session->session.executors[TRI_PROGRAM_TRAIN].trace = r->trace;
    return TR_OK;
}

static void print_start(run *r)
{
    const tri_session *s = &r->session->session;
    char count[16], bytes[16], data[200] = "made-up vectors";
    if (s->data)
        tri_data_describe(s->data, data, sizeof data);
    printf("model   %s, %" PRId64 " layers, %s parameters\n", s->config.compile.model.kind,
           s->config.compile.model.num_layers,
           tri_text_count((double)tri_param_total(&s->params), count));
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
    printf("run     %s\n", r->dir);
    fflush(stdout);
}

static tr_status evaluate(run *r, int64_t step, tr_error *err)
{
    TRI_TRY(tr_session_eval(r->session, &r->eval_loss, err));
    if (r->ranks.rank != 0)
        return TR_OK;
    if (tri_model_find(r->session->session.config.compile.model.kind)->sequences)
        tri_progress_note(&r->progress, "step %" PRId64 "  held-out loss %.4f  perplexity %.2f",
                          step, r->eval_loss, exp(r->eval_loss));
    else
        tri_progress_note(&r->progress, "step %" PRId64 "  held-out loss %.6f", step, r->eval_loss);
    return TR_OK;
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

static void write_metrics(run *r, const tr_step *step, int slowest_rank, double slowest,
                          bool evaluated)
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
                           .eval_loss = r->eval_loss};
    tr_error warning = {0};
    if (r->metrics && tri_metrics_write(r->metrics, &row, &warning) != TR_OK)
        tri_progress_note(&r->progress, "warning: %s; the run goes on without", warning.message);
}

static tr_status one_step(run *r, tr_error *err)
{
    tr_step step;
    tr_status status = tr_session_step(r->session, &step, err);
    if (step.step == 0)
        r->first_loss = step.loss;
    r->last_loss = step.loss;
    r->seconds += step.seconds;
    r->tokens += step.tokens;
    if (status != TR_OK) {
        write_metrics(r, &step, r->ranks.rank, step.seconds, false);
        return status;
    }
    int slowest_rank;
    double slowest;
    TRI_TRY(tri_ranks_slowest(&r->ranks, step.seconds, &slowest_rank, &slowest, err));
    int64_t done = step.step + 1;
    if (r->ranks.rank == 0)
        show_step(r, &step);
    bool due = done == r->num_steps || (r->eval_every && done % r->eval_every == 0);
    bool evaluates = due && tri_session_can_eval(&r->session->session);
    if (evaluates)
        TRI_TRY(evaluate(r, done, err));
    write_metrics(r, &step, slowest_rank, slowest, evaluates);
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
    if (r->trace) {
        TRI_TRY(in_dir(r, "trace.json", &path, err));
        tr_status status = tri_trace_write(r->trace, path, err);
        free(path);
        TRI_TRY(status);
    }
    return TR_OK;
}

static void print_end(const run *r)
{
    const tri_session *s = &r->session->session;
    char time[32], planned[16], used[16];
    printf("\n%" PRId64 " steps in %s, %.0f tokens/s; loss %.4f -> %.4f\n", r->num_steps,
           tri_text_duration(r->seconds, time), (double)r->tokens / (r->seconds + 1e-9),
           r->first_loss, r->last_loss);
    uint64_t anonymous = tri_memory_anonymous();
    if (s->store.device_bytes)
        printf("memory: %s of the device used, %s planned\n",
               tri_text_bytes((double)s->store.device_bytes, used),
               tri_text_bytes((double)tri_session_planned_bytes(s), planned));
    else if (anonymous)
        printf("memory: %s used, %s expected (plan %s + fixed overhead)\n",
               tri_text_bytes((double)anonymous, used),
               tri_text_bytes((double)(tri_session_planned_bytes(s) + TRI_PROCESS_OVERHEAD_BYTES),
                              planned),
               tri_text_bytes((double)tri_session_planned_bytes(s), time));
    printf("written to %s: config.yaml, metrics.jsonl%s%s\n", r->dir,
           tr_settings_bool(r->cli->settings, "run.save") ? ", weights.safetensors" : "",
           r->trace ? ", trace.json (opens in ui.perfetto.dev)" : "");
    if (s->data && tr_settings_bool(r->cli->settings, "run.save") &&
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
    TRI_TRY(tri_api_compile(settings, &r->session, err));
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
    return tri_api_start(r->session, err);
}

static tr_status train(run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    TRI_TRY(start(r, bootstrap, err));
    bool leads = bootstrap->rank == 0;
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
    for (int64_t i = 0; status == TR_OK && i < r->num_steps; i++)
        status = one_step(r, err);
    if (leads)
        tri_progress_fini(&r->progress);
    TRI_TRY(status);
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
             .num_steps = tr_settings_int(cli->settings, "train.steps"),
             .eval_every = tr_settings_int(cli->settings, "train.eval_every")};
    tr_status status = train(&r, bootstrap, &err);
    if (r.metrics)
        tri_metrics_close(r.metrics);
    if (r.trace)
        tri_trace_destroy(r.trace);
    int code = status == TR_OK ? TRI_EXIT_OK : tri_cli_rank_fail(bootstrap, &err);
    tr_session_destroy(r.session);
    tri_ranks_leave(&r.ranks);
    return code;
}

int tri_verb_train(const tri_cli *cli)
{
    tr_error err = {0};
    if (tri_api_check(cli->settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    int num_ranks = (int)tr_settings_int(cli->settings, "layout.dp");
    return tri_cli_launch(cli, num_ranks, train_rank, NULL);
}
