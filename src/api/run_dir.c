#include "api/run_dir.h"

#include <stdlib.h>
#include <unistd.h>

#include "api/run_aside.h"
#include "base/exit_code.h"
#include "base/fs.h"
#include "train/log/events.h"
#include "train/run/run_trace.h"

tr_status tri_run_dir_judge(const tr_settings *settings, tr_error *err)
{
    TRI_TRY(tri_run_dir_check(tr_settings_string(settings, "run.dir"), err));
    return tri_run_aside_check(settings, err);
}

tr_status tri_run_dir_open(tri_run_dir *d, const tr_settings *settings, int num_ranks,
                           tr_error *err)
{
    char *moved = NULL;
    *d = (tri_run_dir){.settings = settings, .lock.fd = -1};
    tr_status status = tri_run_lock_take(&d->lock, tr_settings_string(settings, "run.dir"), err);
    if (status == TR_OK)
        status = tri_run_aside(&d->lock, settings, &moved, err);
    free(moved);
    d->begun = status == TR_OK;
    if (d->begun)
        tri_events_add_start(settings, NULL, num_ranks, -1);
    return status;
}

static void forget(const char *dir)
{
    char *path = tri_path_join(dir, "events.jsonl");
    if (path)
        (void)unlink(path);
    free(path);
}

void tri_run_dir_close(tri_run_dir *d, const tr_error *failure, bool stopped, int64_t steps,
                       int64_t saved)
{
    const char *dir = tr_settings_string(d->settings, "run.dir");
    tri_event event = TRI_EVENT_NOTHING;
    bool made = d->begun && d->lock.path[d->lock.old] != 0;
    if (made && steps < 0 && failure && failure->status == TR_ERROR_INPUT) {
        forget(dir);
        d->begun = false;
    }
    if (d->begun && failure) {
        event.event = "failed";
        event.reason = failure->message;
        tri_events_add(dir, &event);
        event.reason = NULL;
        tri_run_trace_gather(dir);
    }
    event.event = "end";
    event.steps = steps;
    event.saved = saved;
    event.exit_code = !failure && !stopped                ? TRI_EXIT_OK
                      : !failure                          ? TRI_EXIT_STOPPED
                      : failure->status == TR_ERROR_INPUT ? TRI_EXIT_USAGE
                                                          : TRI_EXIT_FAILED;
    if (d->begun)
        tri_events_add(dir, &event);
    tri_run_lock_release(&d->lock);
}
