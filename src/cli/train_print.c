/* What `trireme train` prints: the start, the steps that are worth a line, the end. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/memory.h"
#include "cli/schedule_note.h"
#include "cli/text.h"
#include "cli/train_run.h"
#include "run/trace_travel.h"

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

/* It runs, but it is hardly what somebody wants. */
static void print_empty_rows(const tri_compile_config *config)
{
    int64_t parts = config->num_microbatches * tri_mesh_size(&config->mesh, TRI_AXIS_DP);
    if (parts > config->batch)
        printf("note    train.batch has %" PRId64 " rows for layout.dp x layout.microbatches = "
               "%" PRId64 " parts: %" PRId64 " of them compute on padding\n",
               config->batch, parts, parts - config->batch);
}

void tri_train_print_start(const tri_train_run *r)
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
        printf(", on each of %d ranks, over %s", r->ranks.size, tri_ranks_transport(&r->ranks));
    printf("\n");
    tri_text on_host;
    tri_text_init(&on_host);
    tri_executor_host_ops(&s->executors[TRI_PROGRAM_TRAIN], &on_host);
    if (on_host.chars && on_host.chars[0])
        printf("note    no kernel on this device, so the host computes: %s\n", on_host.chars);
    tri_text_fini(&on_host);
    print_empty_rows(&s->config.compile);
    tri_print_schedule_note(s, "note    ");
    if (s->epochs.num > 0)
        printf("epochs  %" PRId64 ", of %" PRId64 " steps for %" PRId64 " rows%s\n", s->epochs.num,
               s->epochs.steps, s->epochs.rows,
               s->num_steps < s->epochs.num * s->epochs.steps ? "; train.steps ends it earlier"
                                                              : "");
    printf("run     %s\n", r->dir);
    tri_train_ckpt_print(&r->ckpt);
    fflush(stdout);
}

char *tri_train_held_out(const tri_train_run *r, char *text, size_t size)
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

void tri_train_show_epoch(tri_train_run *r, const tr_step *step, double loss, bool evaluated)
{
    char text[96] = "";
    if (r->ranks.rank == 0)
        tri_progress_note(&r->progress, "[epoch %" PRId64 "/%" PRId64 "] loss %.4f%s%s",
                          step->epoch, r->session->session.epochs.num, loss, evaluated ? "  " : "",
                          evaluated ? tri_train_held_out(r, text, sizeof text) : "");
}

void tri_train_show_step(tri_train_run *r, const tr_step *step)
{
    const tri_program *program = &r->session->session.programs[TRI_PROGRAM_TRAIN];
    double flops = tri_program_cost(program).flops;
    double share = 1 - tri_program_redone(program).flops / flops; /* of the model itself */
    double rate = flops * r->ranks.size / step->seconds;
    if (r->peak_flops > 0 && rate > r->peak_flops)
        r->peak_flops = rate; /* it was measured while the machine was busy */
    tri_progress_step line = {.step = step->step,
                              .loss = step->loss,
                              .grad_norm = step->grad_norm,
                              .lr = step->lr,
                              .tokens_per_s = (double)step->tokens / step->seconds,
                              .mfu = r->peak_flops > 0 ? share * rate / r->peak_flops : -1};
    tri_progress_update(&r->progress, &line);
}

void tri_train_show_skipped(tri_train_run *r, const tr_step *step)
{
    if (tri_train_has_scaler(r))
        tri_progress_note(&r->progress,
                          "step %" PRId64 "  skipped: the gradient overflowed; loss scale %g -> %g",
                          step->step, step->scale, step->scale / 2);
    else
        tri_progress_note(&r->progress,
                          "step %" PRId64 "  skipped: the %s is not finite; the weights stay as "
                          "they were",
                          step->step, isfinite(step->loss) ? "gradient" : "loss");
}

static void print_memory(const tri_train_run *r, uint64_t anonymous)
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

/* Of the steps that the trace holds. */
static void print_travel(const tri_train_run *r)
{
    tri_trace_travel travel = tri_trace_travel_of(r->trace);
    int64_t steps = r->num_steps - r->first_step;
    if (travel.num_messages == 0 || steps <= 0 || tri_trace_num_dropped(r->trace) > 0)
        return;
    printf("messages: %.3g ms of a step, %.0f %% of that beside the computation\n",
           travel.total_s * 1e3 / (double)steps, 100 * travel.beside_s / (travel.total_s + 1e-12));
}

void tri_train_print_end(const tri_train_run *r)
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
    if (tri_train_has_scaler(r) || s->skipped > 0)
        printf("skipped: %" PRId64 " steps, whose gradient %s\n", s->skipped,
               tri_train_has_scaler(r) ? "overflowed" : "or loss was not finite");
    uint64_t anonymous = tri_memory_anonymous();
    if (s->store.device_bytes)
        printf("memory: %s of the device used, %s planned\n",
               tri_text_bytes((double)s->store.device_bytes, used),
               tri_text_bytes((double)tri_session_planned_bytes(s), planned));
    else if (anonymous)
        print_memory(r, anonymous);
    if (r->trace)
        print_travel(r);
    printf("written to %s: config.yaml, metrics.jsonl%s%s%s%s%s\n", r->dir,
           r->has_tokenizer ? ", tokenizer.json" : "",
           tr_settings_bool(r->cli->settings, "run.save") ? ", weights.safetensors" : "",
           r->record ? ", samples/" : "",
           r->ckpt.checkpointer && !r->ckpt.last_failed ? ", ckpt/" : "",
           r->trace ? ", trace.json (opens in ui.perfetto.dev)" : "");
    if (r->ckpt.num_failed > 0 && !r->ckpt.last_failed)
        printf("warning: %" PRId64 " checkpoint%s could not be written on the way, for the reason "
               "above; the last one is there\n",
               r->ckpt.num_failed, r->ckpt.num_failed == 1 ? "" : "s");
    if (s->data && tr_settings_bool(r->cli->settings, "run.save") &&
        s->config.compile.model.task == TRI_TASK_LM &&
        strcmp(s->config.data.source, "synthetic") != 0)
        printf("text from it: trireme generate %s\n", r->dir);
}
