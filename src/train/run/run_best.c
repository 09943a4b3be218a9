/* The best held-out loss of a run, and when it is enough.
 *
 * Every rank has the same held-out losses (their sums are reduced over all ranks), so every rank
 * decides alike without a message. What is decided by is in each checkpoint: a run that goes on
 * from one ends where it would have ended. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "ckpt/ckpt_best.h"
#include "train/log/events.h"
#include "train/run/run.h"

static void say_enough(tri_run *r)
{
    const tri_run_best *best = &r->best;
    char gain[40] = "";
    if (r->config.min_gain > 0)
        snprintf(gain, sizeof gain, " by more than %g", r->config.min_gain);
    snprintf(r->enough, sizeof r->enough,
             "%" PRId64 " evaluation%s in a row did not lower the held-out loss%s; its best, "
             "%.4f, was after step %" PRId64,
             best->num_idle, best->num_idle == 1 ? "" : "s", gain, best->loss, best->step);
}

static void judge(tri_run *r)
{
    if (r->config.patience > 0 && r->best.num_idle >= r->config.patience &&
        r->session->step < r->num_steps)
        say_enough(r);
}

void tri_run_judge_eval(tri_run *r)
{
    tri_run_best *best = &r->best;
    double loss = r->eval.loss;
    best->now = loss < best->loss;
    if (best->now) {
        best->loss = loss;
        best->step = r->eval_step;
    }
    bool gains = loss < best->gain_loss - r->config.min_gain;
    if (gains)
        best->gain_loss = loss;
    best->num_idle = gains ? 0 : best->num_idle + 1;
    judge(r);
    if (r->enough[0] && r->ranks.rank == 0) {
        tri_event event = TRI_EVENT_NOTHING;
        event.event = "enough";
        event.reason = r->enough;
        event.at_step = r->eval_step;
        tri_events_add(r->config.dir, &event);
    }
}

size_t tri_run_best_counts(const tri_run *r, tri_ckpt_number *counts)
{
    size_t num = 0;
    if (r->eval_step == r->session->step && isfinite(r->eval.loss))
        counts[num++] = (tri_ckpt_number){TRI_CKPT_EVAL_LOSS, r->eval.loss};
    bool used = r->config.patience > 0 || r->config.ckpt.keep.best > 0;
    if (!used || !isfinite(r->best.loss)) /* when a run was evaluated is no part of its state */
        return num;
    counts[num++] = (tri_ckpt_number){"best_eval_loss", r->best.loss};
    counts[num++] = (tri_ckpt_number){"best_eval_step", (double)r->best.step};
    counts[num++] = (tri_ckpt_number){"gain_eval_loss", r->best.gain_loss};
    counts[num++] = (tri_ckpt_number){"idle_evals", (double)r->best.num_idle};
    return num;
}

void tri_run_best_take(tri_run *r)
{
    const tri_resumed *resumed = &r->ckpt.resumed;
    double loss = tri_resumed_number(resumed, "best_eval_loss", INFINITY);
    double measured = tri_resumed_number(resumed, TRI_CKPT_EVAL_LOSS, NAN); /* of these weights */
    r->eval_step = isnan(measured) ? -1 : r->session->step;
    r->eval.loss = measured;
    r->best = (tri_run_best){.loss = loss,
                             .step = (int64_t)tri_resumed_number(resumed, "best_eval_step", 0),
                             .gain_loss = tri_resumed_number(resumed, "gain_eval_loss", loss),
                             .num_idle = (int64_t)tri_resumed_number(resumed, "idle_evals", 0)};
    judge(r);
}
