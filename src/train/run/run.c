/* How a run begins and ends. */
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "train/log/events.h"
#include "train/plot/run_picture.h"
#include "train/run/run_trace.h"

void tri_run_open(tri_run *r, const tri_run_config *config, tri_session *session)
{
    *r = (tri_run){.config = *config, .session = session, .good_step = -1, .local_ranks = 1};
}

tr_status tri_run_observe(tri_run *r, const tri_observer *observer, tr_error *err)
{
    if (r->num_observers < TRI_MAX_OBSERVERS) {
        r->observers[r->num_observers++] = *observer;
        return TR_OK;
    }
    if (observer->close)
        observer->close(observer->context);
    return tri_fail(err, TR_ERROR_RUNTIME, "a run has at most %d observers; %s is one more",
                    TRI_MAX_OBSERVERS, observer->name);
}

static tr_status check_size(const tri_session *session, int started, tr_error *err)
{
    int ranks = tri_mesh_ranks(&session->config.compile.mesh);
    if (ranks == started)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "this layout has %d ranks, and %d were started; make them as many with "
                    "layout.dp, layout.cp, layout.tp and layout.pp",
                    ranks, started);
}

/* The file that keeps what is measured. */
static tr_status name_tuning(tri_run *r, const char **path, tr_error *err)
{
    *path = r->config.ranks.tuning;
    if (*path)
        return TR_OK;
    TRI_TRY(tri_run_in_dir(r, "tuning.json", &r->tuning, err));
    *path = r->tuning;
    return TR_OK;
}

tr_status tri_run_join(tri_run *r, const tri_bootstrap *bootstrap, tr_error *err)
{
    tri_session *session = r->session;
    tri_ranks_config config = r->config.ranks;
    TRI_TRY(check_size(session, bootstrap->size, err));
    r->local_ranks = bootstrap->local_size;
    TRI_TRY(name_tuning(r, &config.tuning, err));
    TRI_TRY(tri_ranks_join(&r->ranks, bootstrap, &config, session, err));
    if (tri_path_is_dir(r->config.dir)) /* not on a machine that does not see rank 0's */
        session->device.tuning = config.tuning;
    return TR_OK;
}

tr_status tri_run_use(tri_run *r, tri_comm *comm, tr_error *err)
{
    tri_session *session = r->session;
    const char *transport = r->config.ranks.transport;
    if (strcmp(transport, "auto") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.transport is %s, but the ranks are threads of one process, which "
                        "share their memory; set run.transport=auto",
                        transport);
    TRI_TRY(check_size(session, tr_comm_size(comm), err));
    r->local_ranks = tr_comm_size(comm);
    session->device_index = tr_comm_rank(comm);
    TRI_TRY(name_tuning(r, &session->device.tuning, err));
    TRI_TRY(tri_ranks_use(&r->ranks, comm, session, err));
    snprintf(r->ranks.algorithm, sizeof r->ranks.algorithm, "%s", r->config.ranks.algorithm);
    return tri_ranks_check_room(&r->ranks, session, err);
}

static tr_status open_record(tri_run *r, tr_error *err)
{
    char *dir;
    if (!r->config.record)
        return TR_OK;
    TRI_TRY(tri_run_in_dir(r, "samples", &dir, err));
    tri_record_config config = {.dir = dir,
                                .rank = r->ranks.rank,
                                .num_ranks = r->ranks.size,
                                .resumed = r->ckpt.continues,
                                .step = r->ckpt.resumed.step};
    tr_status status = tri_record_open(&config, r->session, &r->record, err);
    free(dir);
    return status;
}

tr_status tri_run_begin(tri_run *r, tr_error *err)
{
    bool null = r->session->device.def == &tri_device_null; /* it has nothing to compare */
    r->session->config.weights_follow = true;               /* see tri_run_ckpt_begin */
    TRI_TRY(tri_run_check_plugins(r, err));
    TRI_TRY(tri_session_start(r->session, err));
    TRI_TRY(tri_run_ckpt_begin(&r->ckpt, &r->config.ckpt, r->session, &r->ranks, err));
    TRI_TRY(open_record(r, err));
    r->compare_every = null ? 0 : r->config.compare_every;
    if (r->compare_every > 0)
        TRI_TRY(tri_replicas_open(&r->replicas, r->session, &r->ranks, err));
    TRI_TRY(tri_replay_open(&r->replay, r->session, &r->ranks, err));
    r->good_step = r->ckpt.continues ? r->ckpt.resumed.step : -1;
    r->num_steps = r->session->num_steps;
    tri_run_take_counts(r);
    if (r->config.trace)
        TRI_TRY(tri_run_trace_open(r, err));
    TRI_TRY(tri_ranks_patiently(&r->ranks, tri_run_open_files, r, err));
    if (r->config.sampling.every > 0)
        TRI_TRY(r->config.sampling.by->open(r, &r->samples, err));
    TRI_TRY(tri_health_open(&r->health, r->session, &r->ranks, err));
    tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_BEGINS});
    tri_run_warn_plugins(r);
    return TR_OK;
}

static void tell_end(tri_run *r, const char *why)
{
    if (!r->ended)
        tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_ENDS, .text = why});
    r->ended = true;
}

static const char *why_stopped(const tri_run *r)
{
    unsigned others = r->wishes & ~(unsigned)TRI_WISH_TIME;
    return others && r->config.wishes.why ? r->config.wishes.why(others)
           : !others && r->wishes         ? "run.max_minutes is over"
           : tri_run_is_at_stop(r)        ? "run.stop_at is reached"
                                          : "asked";
}

static tr_status save_now(tri_run *r, tr_error *err)
{
    tri_ckpt_number counts[TRI_RUN_MAX_COUNTS];
    int64_t step = r->session->step;
    size_t num = tri_run_counts(r, counts);
    TRI_TRY(tri_run_compare(r, true, err));
    TRI_TRY(tri_run_ckpt_now(&r->ckpt, counts, num, err));
    if (r->good_step != step)
        tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_SAVED, .step = &(tr_step){.step = step}});
    r->good_step = step;
    return TR_OK;
}

/* All ranks are here after the same step. First what cannot be had again, then what is told. */
static tr_status end_early(tri_run *r, tr_error *err)
{
    r->saved = r->session->device.def != &tri_device_null; /* which has nothing to save */
    if (r->saved)
        TRI_TRY(save_now(r, err));
    r->stopped = true;
    if (r->ranks.rank == 0) {
        tri_event event = TRI_EVENT_NOTHING;
        event.event = "stop";
        event.reason = why_stopped(r);
        event.at_step = r->session->step;
        tri_events_add(r->config.dir, &event);
    }
    tell_end(r, why_stopped(r));
    return TR_OK;
}

/* What is not saved yet, once more; and that it is on the disk. */
static tr_status save_last(tri_run *r, tr_error *err)
{
    tri_ckpt_number counts[TRI_RUN_MAX_COUNTS];
    tr_error warning = {0};
    size_t num = tri_run_counts(r, counts);
    TRI_TRY(tri_run_ckpt_finish(&r->ckpt, counts, num, &warning, err));
    tri_run_warn_ckpt(r, &warning,
                      r->ckpt.last_failed ? "the run is done, and its end is not saved"
                                          : "it was tried again, and is there now");
    return TR_OK;
}

/* By all ranks, since each has a part of them; one writes. */
static tr_status save_weights(tri_run *r, tr_error *err)
{
    char *path = NULL;
    if (r->ranks.rank == 0)
        TRI_TRY(tri_run_in_dir(r, "weights.safetensors", &path, err));
    tr_status status = tri_session_save_weights(r->session, path, err);
    free(path);
    return status;
}

/* A run whose end is not saved has not done what it was asked for, whatever its losses: whoever
 * started it must not take it for done. */
static tr_status judge_ckpt(const tri_run *r, tr_error *err)
{
    char *weights = NULL;
    if (r->config.save_weights)
        TRI_TRY(tri_run_in_dir(r, "weights.safetensors", &weights, err));
    tr_status status = tri_run_ckpt_verdict(&r->ckpt, weights, err);
    free(weights);
    return status;
}

/* A picture is drawn from what is on the disk, and can be drawn again: no reason to fail. */
static void draw(tri_run *r)
{
    tr_error warning = {0};
    if (r->ranks.rank == 0 && tri_run_picture(r->config.dir, &r->drawn, &warning) != TR_OK)
        tri_run_warn(r, false, "%s; the run has no new " TRI_RUN_PICTURE, warning.message);
}

static bool is_done(const tri_run *r)
{
    return r->session->step >= r->num_steps || r->enough[0];
}

static tr_status end(tri_run *r, tr_error *err)
{
    if (!is_done(r)) {
        TRI_TRY(end_early(r, err));
        draw(r);
        return tri_run_trace_write(r, err); /* after what cannot be had again */
    }
    TRI_TRY(save_last(r, err));
    if (r->config.save_weights)
        TRI_TRY(save_weights(r, err));
    TRI_TRY(tri_run_trace_write(r, err));
    draw(r);
    tell_end(r, NULL);
    return r->ranks.rank == 0 ? judge_ckpt(r, err) : TR_OK;
}

/* What fails ends the run. */
static tr_status judge(tri_run *r, tr_status status, const tr_error *err)
{
    r->failed |= status != TR_OK;
    if (status != TR_OK)
        tell_end(r, err->message);
    return status;
}

tr_status tri_run_advance(tri_run *r, int64_t num_steps, tr_error *err)
{
    tr_status status = TR_OK;
    for (; status == TR_OK && num_steps > 0 && !is_done(r) && !r->wishes && !tri_run_is_at_stop(r);
         num_steps--)
        status = tri_run_step(r, err);
    return judge(r, status, err);
}

tr_status tri_run_evaluate(tri_run *r, tr_error *err)
{
    tr_status status = tri_session_eval(r->session, &r->eval, err);
    if (status == TR_OK)
        tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_EVALUATED,
                                       .step = &(tr_step){.step = r->session->step}});
    return judge(r, status, err);
}

tr_status tri_run_save(tri_run *r, tr_error *err)
{
    return judge(r, save_now(r, err), err);
}

tr_status tri_run_end(tri_run *r, tr_error *err)
{
    return judge(r, end(r, err), err);
}

void tri_run_abandon(tri_run *r, const char *why)
{
    r->failed |= !r->ended;
    tell_end(r, why);
}

void tri_run_close(tri_run *r)
{
    for (size_t i = 0; i < r->num_observers; i++)
        if (r->observers[i].close)
            r->observers[i].close(r->observers[i].context);
    tri_run_trace_close(r);
    tri_record_close(r->record);
    if (r->samples)
        r->config.sampling.by->close(r->samples);
    tri_run_ckpt_end(&r->ckpt);
    tri_replicas_close(&r->replicas);
    tri_replay_close(&r->replay);
    tri_health_close(&r->health);
    if (r->session)
        tri_session_fini(r->session);
    tri_ranks_leave(&r->ranks);
    free(r->tuning);
    *r = (tri_run){0};
}
