#include "train/health/judge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the batch by name ---- */

char *tri_session_batch_text(const tri_session *s, int64_t step, char *text, size_t size)
{
    enum { MOST = 8 }; /* windows by name */
    int64_t batch = s->config.compile.batch;
    int64_t rows = tri_epochs_batch_rows(&s->epochs, batch, step);
    uint64_t first = 0;
    tri_epochs_sample(&s->epochs, batch, step, 0, &first);
    size_t used = (size_t)snprintf(text, size, "samples %" PRIu64 " to %" PRIu64, first,
                                   first + (uint64_t)rows - 1);
    int64_t epoch_rows = s->data ? tri_data_epoch_rows(s->data) : TRI_DATA_ENDLESS;
    for (int64_t r = 0; epoch_rows < TRI_DATA_ENDLESS && r < rows && r < MOST && used < size; r++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%" PRIu64, r == 0 ? " (windows " : ", ",
                             tri_data_window(s->data, TRI_SPLIT_TRAIN, first + (uint64_t)r));
    if (epoch_rows < TRI_DATA_ENDLESS && used < size)
        snprintf(text + used, size - used, "%s of epoch %" PRId64 ")", rows > MOST ? ", ..." : "",
                 (int64_t)first / epoch_rows + 1);
    return text;
}

/* ---- spikes ---- */

/* A finite loss above the limit. */
static bool jumps(const tri_session *session, float loss)
{
    return isfinite(loss) && loss > session->spikes.limit;
}

char *tri_session_spike_text(const tri_session *s, float loss, int64_t step, char *text,
                             size_t size)
{
    char batch[200], what[96];
    if (jumps(s, loss))
        snprintf(what, sizeof what, "the loss jumped to %.4g, above %.4g", (double)loss,
                 (double)s->spikes.limit);
    else
        snprintf(what, sizeof what, "the %s is not finite", isfinite(loss) ? "gradient" : "loss");
    snprintf(text, size, "%s, with %s", what, tri_session_batch_text(s, step, batch, sizeof batch));
    return text;
}

/* ---- steps that are skipped ---- */

static bool has_scaler(const tri_session *session)
{
    return session->config.compile.precision.compute == TRI_F16;
}

/* What may be tried when steps are skipped again and again. */
static const char *advice(const tri_session *session)
{
    return has_scaler(session)
               ? "Lower optim.lr, or set precision.kind=bf16, whose numbers reach further"
               : "Lower optim.lr, add optim.warmup_steps, or set train.clip; "
                 "train.max_skipped is how many in a row may pass";
}

/* A step whose update wrote nothing. It passes, unless too many in a row were like it, or all steps
 * of the run: then nothing was trained. A loss scale that is still too large is no failure while it
 * is being halved: such steps are not counted. */
static tr_status skip_step(tri_session *session, tri_step_result *result, tr_error *err)
{
    const char *what = jumps(session, result->loss) ? "jump of the loss"
                       : isfinite(result->loss)     ? "gradient"
                                                    : "loss";
    long long step = (long long)session->step + 1;
    bool backs_off = !session->spikes.found;
    session->skipped++;
    session->skipped_row += !backs_off;
    result->skipped = true;
    if (has_scaler(session) && !jumps(session, result->loss) && result->scale / 2 < 1)
        return tri_fail(err, TR_ERROR_NUMERIC,
                        "the %s is not finite at step %lld though the loss scale has fallen to %g; "
                        "the weights are as before this step. Set precision.kind=bf16, whose "
                        "numbers reach further, or lower optim.lr",
                        what, step, (double)result->scale);
    bool all = step == session->num_steps && session->skipped_row == step;
    if (session->skipped_row <= session->config.max_skipped && !all)
        return TR_OK;
    if (session->skipped_row == 1)
        return tri_fail(err, TR_ERROR_NUMERIC,
                        "the %s is not finite at step %lld (loss %g, gradient norm %g); the "
                        "weights are as before this step. %s",
                        what, step, (double)result->loss, (double)result->grad_norm,
                        advice(session));
    return tri_fail(err, TR_ERROR_NUMERIC,
                    "the %s is not finite in %lld steps in a row, up to step %lld; the weights are "
                    "as before them. %s",
                    what, (long long)session->skipped_row, step, advice(session));
}

static tr_status stop_at(const tri_session *s, const tri_step_result *result, tr_error *err)
{
    char text[400];
    return tri_fail(err, TR_ERROR_NUMERIC,
                    "step %" PRId64 ": %s; train.on_spike is stop, and the weights are as before "
                    "this step",
                    s->step + 1,
                    tri_session_spike_text(s, result->loss, s->step, text, sizeof text));
}

tr_status tri_session_judge(tri_session *s, bool ok, tri_step_result *result, tr_error *err)
{
    bool jump = jumps(s, result->loss), finite = isfinite(result->loss);
    s->spikes.found = jump || (!ok && !(has_scaler(s) && finite));
    if (ok) {
        s->skipped_row = 0;
        if (s->config.spike.limit > 0 && finite)
            tri_spikes_add(&s->spikes, result->loss);
        return TR_OK;
    }
    TRI_TRY(skip_step(s, result, err));
    return s->spikes.found && s->config.spike.on == TRI_SPIKE_STOP ? stop_at(s, result, err)
                                                                   : TR_OK;
}
