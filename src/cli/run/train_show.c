/* What `trireme train` prints: the start, the steps that are worth a line, the end. */
#include "cli/run/train_show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/process_memory.h"
#include "cli/run/first_lines.h"
#include "cli/text.h"
#include "run/trace/trace_travel.h"
#include "train/health/judge.h"
#include "train/plot/plot.h"
#include "train/step_stats.h"

static void print_damaged(const tri_run *r)
{
    for (const char *at = r->ckpt.resumed.note; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        printf("note    a damaged checkpoint was %.*s\n", (int)strcspn(at, "\n"), at);
    }
}

static void print_resumed(const tri_run *r)
{
    const tri_resumed *resumed = &r->ckpt.resumed;
    if (resumed->found)
        tri_text_print(stdout, "resume  %s: %" PRId64 " of %" PRId64 " steps are done\n",
                       resumed->path, resumed->step, r->num_steps);
    if (resumed->found && resumed->encoded_from > 0)
        printf("note    moments were encoded in 8 bits anew, since the checkpoint was made with "
               "layout.tp=%d\n",
               resumed->encoded_from);
    else if (resumed->found && resumed->encoded_from == 0)
        printf("note    moments were encoded in 8 bits; the checkpoint was made with "
               "optim.moments=fp32\n");
}

static void start_progress(tri_train_show *show, const tri_run *r)
{
    tri_progress_init(&show->progress, stdout, r->num_steps,
                      tr_settings_int(r->config.settings, "train.log_every"));
}

static void show_start(tri_train_show *show, const tri_run *r)
{
    tri_session *s = r->session;
    tri_first_lines lines = {.cli = show->cli,
                             .session = s,
                             .dir = r->config.dir,
                             .layout = show->layout,
                             .local_ranks = r->local_ranks,
                             .transport =
                                 r->ranks.size > 1 ? tri_ranks_transport(&r->ranks) : NULL};
    show->overhead = tri_memory_overhead_of(s);
    show->status = tri_first_lines_print(&lines, &show->err);
    print_damaged(r);
    print_resumed(r);
    fflush(stdout);
    double measured =
        s->device.def->peak_flops
            ? s->device.def->peak_flops(&s->device, s->config.compile.precision.compute)
            : 0;
    show->mfu_base = tri_mfu_base_of(s, measured);
    start_progress(show, r);
}

/* "held-out loss 0.6912  accuracy 53.1%", as much of it as the task has; returns text. */
static char *held_out(const tri_run *r, char *text, size_t size)
{
    const tri_model_config *model = &r->session->config.compile.model;
    double loss = r->eval.loss, percent = 100 * r->eval.accuracy;
    if (!tri_model_of(model)->sequences)
        snprintf(text, size, "held-out loss %.6f", loss);
    else if (model->task == TRI_TASK_CLASSIFY)
        snprintf(text, size, "held-out loss %.4f  accuracy %.1f%%", loss, percent);
    else
        snprintf(text, size, "held-out loss %.4f  perplexity %.2f  accuracy %.1f%%", loss,
                 exp(loss), percent);
    return text;
}

/* "[epoch 1/3] loss 0.6931  held-out loss 0.6912  accuracy 53.1%" */
static void show_epoch(tri_train_show *show, const tri_run *r, const tri_metrics_row *row)
{
    char text[96] = "";
    tri_progress_note(&show->progress, "[epoch %" PRId64 "/%" PRId64 "] loss %.4f%s%s", row->epoch,
                      r->session->epochs.num, row->epoch_loss, row->has_eval ? "  " : "",
                      row->has_eval ? held_out(r, text, sizeof text) : "");
}

/* "  max_logit 12.3  mean_lse 5.52": what a line shows beside the loss. */
static char *stats_text(const tri_session *session, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < tri_session_num_shown(session) && used < size; i++) {
        tri_shown shown = tri_session_shown(session, i);
        if (shown.digits > 0)
            used += (size_t)snprintf(text + used, size - used, "  %s %.*g", shown.name,
                                     shown.digits, shown.value);
    }
    return text;
}

static void show_step(tri_train_show *show, const tri_run *r, const tr_step *step)
{
    const tri_program *program = &r->session->programs[TRI_PROGRAM_TRAIN];
    char stats[160];
    double flops = tri_program_cost(program).flops;
    double share = 1 - tri_program_redone(program).flops / flops; /* of the model itself */
    double rate = flops / step->seconds;                          /* of a rank's device */
    tri_progress_step line = {.step = step->step,
                              .loss = step->loss,
                              .stats = stats_text(r->session, stats, sizeof stats),
                              .grad_norm = step->grad_norm,
                              .lr = step->lr,
                              .tokens_per_s = (double)step->tokens / step->seconds,
                              .mfu = show->mfu_base.flops > 0 ? share * rate / show->mfu_base.flops
                                                              : -1};
    tri_progress_update(&show->progress, &line);
}

static void show_skipped(tri_train_show *show, const tri_run *r, const tr_step *step)
{
    char batch[200];
    if (!r->session->spikes.found)
        tri_progress_note(&show->progress,
                          "step %" PRId64 "  skipped: the gradient overflowed; loss scale %g -> %g",
                          step->step, step->scale, step->scale / 2);
    else
        tri_progress_note(&show->progress,
                          "step %" PRId64 "  skipped: %s; the weights stay as they were (%s)",
                          step->step,
                          step->loss > (double)r->session->spikes.limit ? "the loss jumped"
                          : isfinite(step->loss) ? "the gradient is not finite"
                                                 : "the loss is not finite",
                          tri_session_batch_text(r->session, step->step - 1, batch, sizeof batch));
}

static void print_memory(const tri_train_show *show, const tri_run *r, uint64_t anonymous)
{
    char used[16], expected[16], plan[16], overhead[16], staging[16];
    uint64_t beside = tri_memory_overhead_total(&show->overhead);
    uint64_t planned = tri_session_planned_bytes(r->session);
    uint64_t staged = tri_run_ckpt_staging(&r->ckpt);
    printf("memory: %s used, %s expected (plan %s + overhead %s",
           tri_text_bytes((double)anonymous, used),
           tri_text_bytes((double)(planned + staged + beside), expected),
           tri_text_bytes((double)planned, plan), tri_text_bytes((double)beside, overhead));
    if (staged)
        printf(" + %s to stage checkpoints", tri_text_bytes((double)staged, staging));
    printf(")\n");
}

/* Of the steps that the trace holds. */
static void print_travel(const tri_run *r)
{
    tri_trace_travel travel = tri_trace_travel_of(r->trace->events);
    int64_t steps = tri_trace_about_read(r->trace->events)->num_steps;
    if (travel.num_messages == 0 || steps <= 0)
        return;
    printf("messages: %.3g ms of a step, %.0f %% of that beside the computation\n",
           travel.total_s * 1e3 / (double)steps, 100 * travel.beside_s / (travel.total_s + 1e-12));
}

/* A run that was done before had nothing to write but, once more, its weights. */
static void print_written(const tri_run *r, bool idle)
{
    bool saves = r->config.save_weights;
    if (idle && !saves)
        tri_text_print(stdout, "nothing new in %s\n", r->config.dir);
    else if (idle)
        tri_text_print(
            stdout, "nothing new in %s but the weights of step %" PRId64 ", weights.safetensors\n",
            r->config.dir, r->first_step);
    else
        tri_text_print(stdout, "written to %s: config.yaml, metrics.jsonl%s%s%s%s%s%s%s%s%s\n",
                       r->config.dir, r->samples ? ", samples.jsonl" : "",
                       r->drawn ? ", loss.svg" : "", r->has_tokenizer ? ", tokenizer.json" : "",
                       saves ? ", weights.safetensors" : "", r->record ? ", samples/" : "",
                       r->ckpt.checkpointer && !r->ckpt.last_failed ? ", ckpt/" : "",
                       r->trace ? ", trace.json (opens in ui.perfetto.dev)" : "",
                       *r->config.logs ? ", files for " : "", r->config.logs);
}

static bool idle(const tri_run *r)
{
    return r->session->step <= r->first_step;
}

/* What the run did, in a line. */
static void print_done(const tri_run *r)
{
    char time[32], rate[16];
    int64_t steps = r->session->step - r->first_step;
    if (r->enough[0])
        printf("done after step %" PRId64 " of %" PRId64 ": %s; with a larger train.patience and "
               "run.resume=true it goes on\n",
               r->session->step, r->num_steps, r->enough);
    if (idle(r) && !r->enough[0])
        printf("nothing to train: step %" PRId64 " is done, and the run has %" PRId64
               "; set train.steps above %" PRId64 " to go on\n",
               r->first_step, r->num_steps, r->first_step);
    else if (!idle(r))
        printf("%" PRId64 " step%s in %s, %s tokens/s; loss %.4f -> %.4f\n", steps,
               steps == 1 ? "" : "s", tri_text_duration(r->seconds, time),
               tri_text_count((double)(r->tokens - r->first_tokens) / (r->seconds + 1e-9), rate),
               r->first_loss, r->last_loss);
}

/* What MFU in the lines of steps was a share of. */
static void print_mfu_base(const tri_train_show *show, const tri_run *r)
{
    if (!idle(r) && show->mfu_base.flops > 0)
        printf("MFU is a share of %s%s\n", show->mfu_base.words,
               r->ranks.size > 1 ? ", on each rank" : "");
}

/* Steps without a checkpoint that was due. */
static void print_failed_saves(const tri_run *r)
{
    if (r->ckpt.num_failed > 0 && !r->ckpt.last_failed)
        printf("warning: %" PRId64 " checkpoint%s could not be written on the way, for the reason "
               "above; the last one is there\n",
               r->ckpt.num_failed, r->ckpt.num_failed == 1 ? "" : "s");
}

/* On a terminal that is wide enough: the losses of the run, those before it was resumed included.
 */
static void print_curve(const tri_run *r)
{
    enum { LEAST_COLUMNS = 60, MOST_COLUMNS = 100, LEAST_STEPS = 20, LINES = 6 };
    int width = tri_progress_columns();
    tri_run_curve run;
    if (width < LEAST_COLUMNS || idle(r) || r->session->step < LEAST_STEPS ||
        !tri_terminal_utf8() || tri_run_curve_read(&run, r->config.dir, NULL) != TR_OK)
        return;
    width = width < MOST_COLUMNS ? width : MOST_COLUMNS;
    tri_plot plot = {.y = TRI_PLOT_LOSS, .smooth = 1};
    tri_text text;
    tri_text_init(&text);
    if (tri_plot_add(&plot, r->config.dir, TRI_PLOT_LOSS, &run, NULL) == TR_OK &&
        tri_plot_fit(&plot, width / 14 + 1, 3, NULL) == TR_OK &&
        tri_plot_dots(&plot, width - 1, LINES, false, &text, NULL) == TR_OK)
        printf("\n%s", text.chars);
    tri_text_fini(&text);
    tri_plot_free(&plot);
    tri_run_curve_free(&run);
}

static void print_end(const tri_train_show *show, const tri_run *r)
{
    const tri_session *s = r->session;
    char planned[16], used[16];
    print_curve(r);
    printf("\n");
    print_done(r);
    print_mfu_base(show, r);
    if (tri_run_has_scaler(r) || s->skipped > 0)
        printf("skipped: %" PRId64 " step%s, whose gradient %s\n", s->skipped,
               s->skipped == 1 ? "" : "s",
               tri_run_has_scaler(r) ? "overflowed" : "or loss was not finite");
    uint64_t anonymous = tri_process_anonymous();
    if (s->store.device_bytes)
        printf("memory: %s of the device used, %s planned\n",
               tri_text_bytes((double)s->store.device_bytes, used),
               tri_text_bytes((double)tri_session_planned_bytes(s), planned));
    else if (anonymous)
        print_memory(show, r, anonymous);
    if (r->trace)
        print_travel(r);
    print_written(r, idle(r));
    print_failed_saves(r);
    if (s->data && r->config.save_weights && s->config.compile.model.task == TRI_TASK_LM &&
        strcmp(s->config.data.source, "synthetic") != 0)
        tri_text_print(stdout, "text from it: trireme generate %s\n", r->config.dir);
}

static void print_stopped(const tri_run *r, const char *why)
{
    printf("stopped after step %" PRId64 " of %" PRId64 " (%s)\n", r->session->step, r->num_steps,
           why);
    if (r->saved)
        tri_text_print(stdout,
                       "saved   %s/ckpt/step-%" PRId64 "; to go on: the same command with --set "
                       "run.resume=true\n",
                       r->config.dir, r->session->step);
    fflush(stdout);
}

static void show_end(tri_train_show *show, const tri_run *r, const char *why)
{
    tri_progress_fini(&show->progress);
    if (r->stopped)
        print_stopped(r, why);
    else if (!r->failed)
        print_end(show, r);
}

static void show_warning(tri_train_show *show, const tri_run_news *news)
{
    if (news->own)
        tri_cli_error("warning: %s", news->text);
    else
        tri_progress_note(&show->progress, "warning: %s", news->text);
}

/* --quiet. A gradient that overflows while the loss scale finds its size is nothing to warn of. */
static void tell_quietly(tri_train_show *show, const tri_run_news *news)
{
    const tri_run *r = news->run;
    if (news->moment == TRI_RUN_BEGINS) {
        print_damaged(r);
        start_progress(show, r);
    } else if (news->moment == TRI_RUN_SKIPPED && !tri_run_has_scaler(r)) {
        show_skipped(show, r, news->step);
    } else if (news->moment == TRI_RUN_WARNING) {
        show_warning(show, news);
    } else if (news->moment == TRI_RUN_ENDS && r->stopped) {
        print_stopped(r, news->text);
    } else if (news->moment == TRI_RUN_ENDS && !r->failed) {
        print_failed_saves(r);
        print_done(r);
    }
}

static void tell(void *context, const tri_run_news *news)
{
    tri_train_show *show = context;
    if (show->quiet) {
        tell_quietly(show, news);
        return;
    }
    const tri_run *r = news->run;
    char text[96];
    switch (news->moment) {
    case TRI_RUN_BEGINS:
        show_start(show, r);
        break;
    case TRI_RUN_UPDATED:
        show_step(show, r, news->step);
        break;
    case TRI_RUN_SKIPPED:
        show_skipped(show, r, news->step);
        break;
    case TRI_RUN_EVALUATED:
        if (news->step->epoch == 0) /* else it stands in the epoch's line */
            tri_progress_note(&show->progress, "step %" PRId64 "  %s", news->step->step,
                              held_out(r, text, sizeof text));
        break;
    case TRI_RUN_STEP:
        if (news->row->epoch > 0)
            show_epoch(show, r, news->row);
        break;
    case TRI_RUN_SAMPLED:
        tri_progress_note(&show->progress, "step %" PRId64 "  writes: %s%s", news->step->step,
                          r->config.sampling.prompt, news->text);
        break;
    case TRI_RUN_WARNING:
        show_warning(show, news);
        break;
    case TRI_RUN_ENDS:
        show_end(show, r, news->text);
        break;
    case TRI_RUN_SAVED:
        break;
    }
}

tri_observer tri_train_show_observer(tri_train_show *show)
{
    return (tri_observer){"terminal", tell, NULL, show};
}
