/* An earlier run in run.dir moves aside, as a whole, when a new one begins there.
 *
 * runs/demo becomes runs/demo.1 (or .2 ...), by one rename, with everything that a person has put
 * into it. What is no run's directory is never moved: a run that would replace something in it is
 * refused. */
#ifndef TRI_API_RUN_ASIDE_H
#define TRI_API_RUN_ASIDE_H

#include "train/run/run_lock.h"
#include "trireme/settings.h"

/* Whether a run with these settings can begin in run.dir, or continue there. Changes nothing. */
tr_status tri_run_aside_check(const tr_settings *settings, tr_error *err);

/* Moves an earlier run aside unless it is continued. Text that was prepared and what was measured
 * serve the new run, too. The lock, which is held, is then one of the new directory. *moved (on the
 * heap) is where the earlier run is now, or NULL when there was none. */
tr_status tri_run_aside(tri_run_lock *lock, const tr_settings *settings, char **moved,
                        tr_error *err);

#endif
