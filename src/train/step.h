/* A step of a session, in the words of the public API. */
#ifndef TRI_TRAIN_STEP_H
#define TRI_TRAIN_STEP_H

#include "train/session.h"
#include "trireme/session.h"

/* tri_session_step. *step (may be NULL) is filled in also when it fails. Where this rank is alone,
 * TR_ERROR_NUMERIC names the gradient that is not finite; others have to be asked. */
tr_status tri_step_once(tri_session *session, tr_step *step, tr_error *err);

#endif
