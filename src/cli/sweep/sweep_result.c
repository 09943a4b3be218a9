#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "cli/runs/run_row.h"
#include "cli/sweep/sweep.h"
#include "train/log/run_curve.h"

tr_status tri_sweep_look(const tri_sweep_run *run, tri_sweep_result *r, tr_error *err)
{
    tri_run_story story;
    tri_run_summary m;
    *r = (tri_sweep_result){.loss = NAN, .best_loss = NAN, .tokens_per_s = NAN};
    if (!tri_path_is_dir(run->dir))
        return TR_OK;
    r->held = tri_run_lock_look(run->dir) == TRI_LOCK_HELD; /* first: who ends now says so below */
    TRI_TRY(tri_events_read(run->dir, &story, err));
    TRI_TRY(tri_run_summary_read(run->dir, &m, err));
    r->started = story.started;
    r->ended_well = story.ended && tri_exit_is_good((int)story.exit_code);
    r->done = story.ended && story.exit_code == TRI_EXIT_OK;
    r->step = m.step;
    r->loss = m.num_lines > 0 ? m.loss : NAN;
    r->best_loss = m.best_eval_loss;
    r->best_step = isnan(m.best_eval_loss) ? 0 : m.best_eval_step;
    r->tokens_per_s = m.tokens_per_s;
    if (story.ended && !r->ended_well)
        snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(story.reason, "\n"), story.reason);
    return TR_OK;
}

tr_status tri_sweep_score(const tri_sweep_run *run, int64_t steps, double *score, tr_error *err)
{
    tri_run_curve curve;
    *score = INFINITY;
    tr_status status = tri_run_curve_read(&curve, run->dir, err);
    if (status == TR_ERROR_INPUT)
        return TR_OK; /* it has no steps */
    TRI_TRY(status);
    double held_out = NAN, sum = 0;
    size_t num = 0;
    while (num < curve.num && curve.lines[num].step <= steps)
        num++;
    for (size_t i = 0; i < num; i++)
        if (!isnan(curve.lines[i].eval_loss))
            held_out = curve.lines[i].eval_loss;
    size_t tail = (num + 9) / 10;
    for (size_t i = num - tail; i < num; i++)
        sum += curve.lines[i].loss;
    double own = !isnan(held_out) ? held_out : tail > 0 ? sum / (double)tail : NAN;
    *score = isnan(own) ? INFINITY : own;
    tri_run_curve_free(&curve);
    return TR_OK;
}
