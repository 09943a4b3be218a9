/* layout.recompute=budget:BYTES: how much must be made again for a rank's planned memory to stay
 * within a bound. */
#ifndef TRI_TRAIN_BUDGET_H
#define TRI_TRAIN_BUDGET_H

#include "train/session.h"

/* Sets recompute.effort in the session's compile config. Its parameters are known and its device is
 * open; nothing is compiled yet. All ranks of a stage come to the same answer without talking,
 * since their messages must match: each plans for all of them. */
tr_status tri_session_fit(tri_session *session, tr_error *err);
/* When the memory is planned: whether it is within the budget. */
tr_status tri_session_check_budget(const tri_session *session, tr_error *err);

#endif
