/* What becomes of a step: whether its loss was a spike, whether it was skipped, and whether the run
 * may go on. */
#ifndef TRI_TRAIN_HEALTH_JUDGE_H
#define TRI_TRAIN_HEALTH_JUDGE_H

#include "train/session.h"

/* After the program has run, before the step is counted. ok: it was updated. session->spikes.found
 * says whether it was a spike; where train.on_spike is stop, that is TR_ERROR_NUMERIC. */
tr_status tri_session_judge(tri_session *session, bool ok, tri_step_result *result, tr_error *err);

/* "samples 448 to 455 (windows 17, 3, ... of epoch 1)": the batch of a step, from 0; returns text.
 */
char *tri_session_batch_text(const tri_session *session, int64_t step, char *text, size_t size);
/* Why the step at hand is a spike, with its batch; returns text. */
char *tri_session_spike_text(const tri_session *session, float loss, int64_t step, char *text,
                             size_t size);

#endif
