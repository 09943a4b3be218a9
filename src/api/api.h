/* Between the public API and the session: for code that needs both. */
#ifndef TRI_API_API_H
#define TRI_API_API_H

#include "config/resolve.h"
#include "data/prepare/prepare.h"
#include "serve/generate.h"
#include "trireme/session.h"

struct tr_session {
    tri_session session;
    const tr_settings *settings;
    char *weights_from;
};

/* Completes the settings and finds what is wrong with them and with the data, without starting
 * anything: so that it is said once, before ranks exist. */
tr_status tri_api_check(tr_settings *settings, tr_error *err);

/* Text that has to become tokens first does so, with progress (it may be NULL) for the user.
 * Without this call, opening the data does it silently. */
tr_status tri_api_prepare(tr_settings *settings,
                          void (*progress)(void *context, const tri_prepare_progress *now),
                          void *context, tr_error *err);

/* So many ranks of one machine share its cores, unless run.threads says otherwise. */
tr_status tri_api_share_cores(tr_settings *settings, int local_ranks, tr_error *err);

/* tr_session_create in two parts: up to the memory plan, and the rest. */
tr_status tri_api_compile(tr_settings *settings, int rank, tr_session **session, tr_error *err);
tr_status tri_api_start(tr_session *session, tr_error *err);
/* The first part with settings that are complete (tri_api_check), which it only reads: several
 * ranks may be threads of one process. */
tr_status tri_api_compile_rank(const tr_settings *settings, int rank, tr_session **session,
                               tr_error *err);
/* What a session is made of for a GPU that is not here, of which only the figures are known: its
 * programs are those that one would run (train/plan/stage_programs.h compiles them). */
tr_status tri_api_describe(tr_settings *settings, tri_session_config *config, tr_error *err);
/* The first part for a set of programs (TRI_PROGRAMS_...) instead of those of training. shape of
 * prefill and decode, or NULL for what the settings say. */
tr_status tri_api_compile_programs(tr_settings *settings, int rank, unsigned programs,
                                   const tri_generate_shape *shape, tr_session **session,
                                   tr_error *err);

/* The step after which the weights at a path were written: a file, or a checkpoint. -1: it does not
 * say. */
tr_status tri_api_weights_step(const char *path, int64_t *step, tr_error *err);

/* Path of the weights for model.from: a file, a checkpoint, or the later of the two in a run
 * directory, on the heap. Weights of a run that cannot be read are an error, which names the
 * checkpoint to use instead. */
tr_status tri_api_weights_path(const char *from, char **path, tr_error *err);

#endif
