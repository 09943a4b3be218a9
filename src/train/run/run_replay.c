/* What a run says of steps that were replayed. */
#include <inttypes.h>
#include <stdio.h>

#include "train/log/events.h"
#include "train/run/run.h"

static void tell(const tri_run *r, const tri_replay_finding *f)
{
    char text[320], sums[2][24];
    for (int i = 0; i < 2; i++)
        snprintf(sums[i], sizeof sums[i], "%016" PRIx64, f->sums[i]);
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "replay";
    event.reason = tri_replay_text(f, text, sizeof text);
    event.rank = f->rank;
    event.at_step = f->step;
    event.replay = &(tri_event_replay){.other = f->other == f->rank ? -1 : f->other,
                                       .sure = f->sure,
                                       .microbatch = f->microbatch,
                                       .instruction = f->instruction,
                                       .op = f->op,
                                       .result = f->result,
                                       .sum = sums[0],
                                       .replayed_sum = sums[1]};
    tri_events_add(r->config.dir, &event);
    if (!r->replay.config.stops) /* otherwise it is what ends the run */
        tri_run_warn(r, false, "step %" PRId64 ": %s; it was trained on", f->step, text);
}

void tri_run_judge_replay(tri_run *r)
{
    const tri_replay_finding found = r->replay.found;
    r->replay.found.step = 0; /* it is told once */
    if (found.step > 0 && r->ranks.rank == 0)
        tell(r, &found);
}
