/* One step of training, and its repetition where rows found no room on the way to their experts. */
#include <string.h>

#include "base/clock.h"
#include "train/batch.h"
#include "train/health/judge.h"
#include "train/health/replay.h"
#include "train/session.h"

static const float *result_of(const tri_session *session)
{
    return tri_session_host(session, session->stepping, TRI_HOST_RESULT, 0);
}

/* Rows that found no room in the step that has just run. */
static float lost_rows(const tri_session *session)
{
    const tri_program *program = &session->programs[session->stepping];
    for (size_t i = 0; i < program->num_shown; i++)
        if (program->stats[program->shown[i]].row == TRI_STAT_LOST)
            return result_of(session)[TRI_NUM_RESULT + i];
    return 0;
}

static void show_lost(tri_session *session, float lost)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    for (size_t i = 0; i < program->num_shown; i++)
        if (program->stats[program->shown[i]].row == TRI_STAT_LOST)
            session->shown[i] = lost;
}

/* Rows found no room, so nothing was updated, nor the loss scale touched: all ranks know, and do
 * the step again with room for all. What is shown of it stays that of the first try. */
static tr_status repeat_step(tri_session *session, double lr, tr_error *err)
{
    session->stepping = TRI_PROGRAM_CAREFUL;
    tri_fill_again(session);
    tri_fill_step_inputs(session, lr);
    return tri_executor_run(&session->executors[TRI_PROGRAM_CAREFUL], err);
}

static tr_status run_once(tri_session *session, tr_error *err)
{
    if (session->replay && tri_replay_is_due(session->replay))
        return tri_replay_run(session->replay, err);
    return tri_executor_run(&session->executors[TRI_PROGRAM_TRAIN], err);
}

tr_status tri_session_step(tri_session *session, tri_step_result *result, tr_error *err)
{
    *result = (tri_step_result){0};
    double start = tri_now_s(), lr = tri_lr_at(&session->config.lr, session->step);
    if (session->status)
        atomic_store_explicit(&session->status->step, session->step + 1, memory_order_relaxed);
    tri_fill_train_batch(session);
    if (session->data)
        TRI_TRY(tri_data_problem(session->data, err));
    session->spikes.limit = tri_spikes_limit(&session->spikes, session->config.spike.limit);
    tri_fill_step_inputs(session, lr);
    session->data_ns += (int64_t)((tri_now_s() - start) * 1e9);
    TRI_TRY(run_once(session, err));
    const float lost = lost_rows(session);
    if (lost > 0 && tri_session_has(session, TRI_PROGRAM_CAREFUL))
        TRI_TRY(repeat_step(session, lr, err));
    const float *end = result_of(session);
    tri_expert_loads_read(&session->loads, &session->executors[session->stepping],
                          session->stepping == TRI_PROGRAM_CAREFUL);
    session->stepping = TRI_PROGRAM_TRAIN;
    *result = (tri_step_result){.loss = end[TRI_RESULT_LOSS],
                                .grad_norm = end[TRI_RESULT_NORM],
                                .lr = lr,
                                .count = end[TRI_RESULT_COUNT],
                                .scale = end[TRI_RESULT_SCALE],
                                .seconds = tri_now_s() - start};
    memcpy(session->shown, end + TRI_NUM_RESULT,
           session->programs[TRI_PROGRAM_TRAIN].num_shown * sizeof *end);
    show_lost(session, lost);
    bool ok = session->device.def == &tri_device_null || end[TRI_RESULT_OK] != 0;
    TRI_TRY(tri_session_judge(session, ok, result, err));
    session->step++;
    return TR_OK;
}
