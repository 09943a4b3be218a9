/* One step of a run, and all that follows from it. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/process_memory.h"
#include "train/log/events.h"
#include "train/run/run.h"
#include "train/run/run_spike.h"
#include "train/run/run_trace.h"
#include "train/step.h"
#include "train/step_stats.h"

void tri_run_tell(const tri_run *r, tri_run_news news)
{
    news.run = r;
    for (size_t i = 0; i < r->num_observers && (r->ranks.rank == 0 || news.own); i++)
        r->observers[i].tell(r->observers[i].context, &news);
}

void tri_run_warn(const tri_run *r, bool own, const char *format, ...)
{
    char text[sizeof((tr_error *)0)->message + 100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_WARNING, .text = text, .own = own});
}

void tri_run_warn_ckpt(const tri_run *r, const tr_error *warning, const char *what_then)
{
    if (warning->message[0])
        tri_run_warn(r, false, "%s; %s", warning->message, what_then);
}

static unsigned wishes_of(const tri_run *r)
{
    const tri_run_wishes *wishes = &r->config.wishes;
    bool late = r->config.ends_at_s > 0 && tri_now_s() >= r->config.ends_at_s;
    return (wishes->ask ? wishes->ask(wishes->context) : 0) | (late ? TRI_WISH_TIME : 0);
}

/* Who took longest, and what came of the step beside itself. */
typedef struct step_end {
    tri_meeting met;
    bool evaluated;
    double epoch_loss;
} step_end;

static void tell_step(const tri_run *r, const tr_step *step, const step_end *end)
{
    if (r->ranks.rank != 0)
        return;
    tri_shown stats[TRI_MAX_STEP_SHOWN];
    size_t num_stats = tri_session_num_shown(r->session);
    for (size_t i = 0; i < num_stats; i++)
        stats[i] = tri_session_shown(r->session, i);
    tri_metrics_row row = {.step = step->step,
                           .time_s = tri_unix_s(),
                           .stats = stats,
                           .num_stats = num_stats,
                           .layer_loads = r->session->loads.largest,
                           .num_layer_loads = r->session->loads.num,
                           .loss = step->loss,
                           .grad_norm = step->grad_norm,
                           .lr = step->lr,
                           .tokens = r->tokens,
                           .step_ms = step->seconds * 1e3,
                           .tokens_per_s = (double)step->tokens / step->seconds,
                           .mem_peak_bytes = (int64_t)tri_process_peak(),
                           .slowest_rank = end->met.slowest_rank,
                           .slowest_ms = end->met.slowest_ms,
                           .own_ms = end->met.own_ms,
                           .waited_ms = end->met.waited_ms,
                           .slow_rank = r->health.slow ? tri_slow_rank(r->health.slow) : -1,
                           .has_eval = end->evaluated,
                           .eval_loss = r->eval.loss,
                           .eval_accuracy = r->eval.accuracy,
                           .epoch = step->epoch,
                           .epoch_loss = end->epoch_loss,
                           .loss_scale = tri_run_has_scaler(r) ? step->scale : 0,
                           .skipped = r->session->skipped,
                           .replayed = r->replay.num_replayed,
                           .replay_differs = r->replay.num_differs,
                           .has_stall = r->ckpt.saved,
                           .ckpt_stall_ms = r->ckpt.stall_s * 1e3};
    tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_STEP, .row = &row});
}

static void write_record(const tri_run *r, const tr_step *step)
{
    tr_error warning = {0};
    if (r->record && tri_record_step(r->record, step->step, &warning) != TR_OK)
        tri_run_warn(r, true, "%s; the run goes on without", warning.message);
}

/* Mean loss of the epoch so far; the next one begins anew. */
static double add_to_epoch(tri_run *r, const tr_step *step)
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

size_t tri_run_counts(const tri_run *r, tri_ckpt_number counts[TRI_RUN_MAX_COUNTS])
{
    counts[0] = (tri_ckpt_number){"tokens", (double)r->tokens};
    counts[1] = (tri_ckpt_number){"epoch_loss_sum", r->epoch_sum};
    counts[2] = (tri_ckpt_number){"epoch_targets", r->epoch_targets};
    size_t num = 3 + tri_run_best_counts(r, counts + 3);
    return num + tri_run_plugin_counts(r, counts + num);
}

void tri_run_take_counts(tri_run *r)
{
    const tri_resumed *resumed = &r->ckpt.resumed;
    r->first_step = r->session->step;
    r->tokens = r->first_tokens = (int64_t)tri_resumed_number(resumed, "tokens", 0);
    r->epoch_sum = tri_resumed_number(resumed, "epoch_loss_sum", 0);
    r->epoch_targets = tri_resumed_number(resumed, "epoch_targets", 0);
    tri_run_best_take(r);
}

tr_status tri_run_compare(tri_run *r, bool saves, tr_error *err)
{
    if (r->compare_every == 0 || (!saves && r->session->step % r->compare_every != 0))
        return TR_OK;
    tr_status status = tri_replicas_compare(&r->replicas, err);
    if (status == TR_OK || r->ranks.size == 1)
        return status;
    size_t used = strlen(err->message), room = sizeof err->message - used;
    if (r->good_step >= 0)
        snprintf(err->message + used, room,
                 "; nothing of it is saved, and %s/ckpt/step-%" PRId64 " was saved when all copies "
                 "were equal: go on from there with --set run.resume=true",
                 r->config.dir, r->good_step);
    else
        snprintf(err->message + used, room,
                 "; nothing of it is saved, and nothing was before: train again, with ckpt.every");
    return status;
}

/* After the line of the step: whoever goes on from the checkpoint finds the lines of all steps
 * before it. */
static tr_status save_if_due(tri_run *r, const tr_step *step, bool must, tr_error *err)
{
    tri_ckpt_number counts[TRI_RUN_MAX_COUNTS];
    tr_error warning = {0};
    size_t num = tri_run_counts(r, counts);
    TRI_TRY(tri_run_ckpt_step(&r->ckpt, counts, num, must, &warning, err));
    tri_run_warn_ckpt(r, &warning, "the run goes on");
    if (!r->ckpt.saved)
        return TR_OK;
    r->good_step = step->step;
    tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_SAVED, .step = step});
    return TR_OK;
}

static void count_step(tri_run *r, const tr_step *step)
{
    if (step->step == r->first_step + 1)
        r->first_loss = step->loss;
    r->last_loss = step->loss;
    r->seconds += step->seconds;
    r->tokens += step->tokens;
}

static tr_status evaluate(tri_run *r, const tr_step *step, bool last, step_end *end, tr_error *err)
{
    int64_t every = r->config.eval_every;
    bool due = last || (every ? step->step % every == 0 : step->epoch > 0);
    end->evaluated = due && tri_session_can_eval(r->session);
    r->best.now = false;
    if (!end->evaluated)
        return TR_OK;
    tri_health_pause(&r->health);
    TRI_TRY(tri_session_eval(r->session, &r->eval, err));
    tri_health_resume(&r->health);
    r->eval_step = step->step;
    tri_run_judge_eval(r);
    tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_EVALUATED, .step = step});
    return TR_OK;
}

static bool samples_due(const tri_run *r, bool last)
{
    int64_t every = r->config.sampling.every;
    return every > 0 && (last || r->session->step % every == 0);
}

/* What follows the line of a step: samples, then the checkpoint. No rank's own time. */
static tr_status follow(tri_run *r, const tr_step *step, bool last, tr_error *err)
{
    bool samples = samples_due(r, last),
         must = last || (r->best.now && r->config.ckpt.keep.best > 0);
    bool saves = last || tri_run_ckpt_due(&r->ckpt, must);
    if (samples || saves)
        tri_health_pause(&r->health);
    if (samples)
        TRI_TRY(r->config.sampling.by->take(r, r->samples, err));
    TRI_TRY(tri_run_compare(r, saves, err));
    TRI_TRY(save_if_due(r, step, must, err));
    if (samples || saves)
        tri_health_resume(&r->health);
    return TR_OK;
}

/* Ranks that are slower than their peers, by rank 0; each is told of when that changes. */
static void judge_ranks(const tri_run *r, int64_t step)
{
    tri_slow_finding findings[4];
    char text[320];
    size_t num = r->health.slow ? tri_slow_step(r->health.slow, r->ranks.words, findings, 4) : 0;
    for (size_t i = 0; i < num; i++) {
        tri_event event = TRI_EVENT_NOTHING;
        event.event = findings[i].news == TRI_SLOW_RECOVERED ? "recovered" : "slow";
        event.reason = tri_slow_text(&findings[i], text, sizeof text);
        event.rank = findings[i].rank;
        event.at_step = step;
        tri_events_add(r->config.dir, &event);
        tri_run_warn(r, false, "%s", text);
    }
}

static tr_status meet(tri_run *r, const tr_step *step, tri_meeting *met, tr_error *err)
{
    tri_rank_word word = tri_health_word(&r->health, wishes_of(r));
    TRI_TRY(tri_ranks_meet(&r->ranks, &word, met, err));
    r->wishes = met->wishes;
    judge_ranks(r, step->step);
    return TR_OK;
}

tr_status tri_run_step(tri_run *r, tr_error *err)
{
    tr_step step;
    tri_run_trace_begin_step(r);
    tr_status status = tri_step_once(r->session, &step, err);
    if (status == TR_OK) /* of others a part is missing */
        tri_run_trace_end_step(r);
    tri_run_judge_replay(r);
    step_end end = {.met = {.slowest_rank = r->ranks.rank, .slowest_ms = step.seconds * 1e3}};
    count_step(r, &step);
    if (status == TR_ERROR_NUMERIC) { /* at the same step on all ranks */
        tell_step(r, &step, &end);
        tri_ranks_name_nonfinite(&r->ranks, r->session, err);
    }
    TRI_TRY(status);
    write_record(r, &step);
    TRI_TRY(meet(r, &step, &end.met, err));
    tri_run_tell(r, (tri_run_news){.moment = step.skipped ? TRI_RUN_SKIPPED : TRI_RUN_UPDATED,
                                   .step = &step});
    bool last = step.step == r->num_steps || tri_run_is_at_stop(r);
    TRI_TRY(evaluate(r, &step, last, &end, err));
    end.epoch_loss = add_to_epoch(r, &step);
    tell_step(r, &step, &end);
    TRI_TRY(tri_run_judge_spike(r, &step, err));
    last |= r->enough[0] != 0;
    return follow(r, &step, last, err);
}
