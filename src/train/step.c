#include "train/step.h"

#include "train/nonfinite.h"

tr_status tri_step_once(tri_session *s, tr_step *step, tr_error *err)
{
    int64_t number = s->step, batch = s->config.compile.batch;
    tri_step_result result;
    tr_status status = tri_session_step(s, &result, err);
    tri_nonfinite found;
    bool alone = tri_mesh_ranks(&s->config.compile.mesh) == 1;
    if (status == TR_ERROR_NUMERIC && alone && tri_nonfinite_find(s, &found, NULL) == TR_OK)
        tri_nonfinite_add(s, &found, -1, err);
    if (step)
        *step = (tr_step){.step = number + 1,
                          .loss = (double)result.loss,
                          .grad_norm = (double)result.grad_norm,
                          .lr = result.lr,
                          .tokens = tri_epochs_batch_rows(&s->epochs, batch, number) *
                                    s->config.compile.seq_len,
                          .seconds = result.seconds,
                          .targets = result.count,
                          .epoch = status == TR_OK ? tri_epochs_ended(&s->epochs, number) : 0,
                          .scale = (double)result.scale,
                          .skipped = result.skipped};
    return status;
}
