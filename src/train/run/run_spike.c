#include "train/run/run_spike.h"

#include <inttypes.h>
#include <stdio.h>

#include "train/health/judge.h"
#include "train/log/events.h"

static void add_event(const tri_run *r, const char *name, const char *reason, int64_t from_step)
{
    if (r->ranks.rank != 0)
        return;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = name;
    event.reason = reason;
    event.at_step = r->session->step;
    event.from_step = from_step;
    tri_events_add(r->config.dir, &event);
}

/* The state of the newest checkpoint under the number of the present step: steps since then become
 * skipped ones. The batch is a function of the step, so they are passed over; whoever goes on from
 * that checkpoint comes to the same spike and does the same again. */
static tr_status roll_back(tri_run *r, const char *why, tr_error *err)
{
    tri_session *s = r->session;
    tri_resumed found = {0};
    tri_save_outcome outcome = {0};
    int64_t step = s->step, in_a_row = s->skipped_row;
    if (r->ckpt.checkpointer)
        TRI_TRY(tri_checkpointer_settle(r->ckpt.checkpointer, &outcome, err));
    tr_status status = tri_checkpoint_resume(s, &r->ranks, r->config.dir, false, &found, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "train.on_spike is rollback");
    int64_t from = found.found ? found.step : -1;
    tri_resumed_fini(&found);
    if (from < 0) {
        tri_run_warn(r, false,
                     "step %" PRId64 ": %s; there is no checkpoint to go back to yet, so the step "
                     "is skipped",
                     step, why);
        return TR_OK;
    }
    s->skipped += step - from;
    s->skipped_row = in_a_row;
    s->step = step;
    s->spikes.found = true;
    add_event(r, "rollback", why, from);
    tri_run_warn(r, false,
                 "step %" PRId64 ": %s; the state is that of step %" PRId64
                 " again, and the batches since then are passed over",
                 step, why, from);
    return TR_OK;
}

tr_status tri_run_judge_spike(tri_run *r, const tr_step *step, tr_error *err)
{
    char why[400];
    if (!r->session->spikes.found)
        return TR_OK;
    tri_session_spike_text(r->session, (float)step->loss, step->step - 1, why, sizeof why);
    add_event(r, "spike", why, -1);
    if (r->session->config.spike.on == TRI_SPIKE_ROLLBACK)
        return roll_back(r, why, err);
    if (!step->skipped)
        tri_run_warn(r, false, "step %" PRId64 ": %s; it was trained on", step->step, why);
    return TR_OK;
}
