/* What other verbs use of trireme plan and trireme check. */
#ifndef TRI_CLI_VERBS_PLAN_H
#define TRI_CLI_VERBS_PLAN_H

#include "train/session.h"
#include "trireme/settings.h"

/* The bytes of each class, a line each. */
void tri_plan_print_memory(const tri_session *session);

/* Told of what has been proven, a line each. */
typedef void (*tri_proven_fn)(void *context, const char *what, const char *line);
/* Proves the programs of a session. */
tr_status tri_prove_programs(const tri_session *session, tri_proven_fn told, void *context,
                             tr_error *err);
/* Proves that the programs of all ranks of the layout go together. */
tr_status tri_prove_ranks(tr_settings *settings, int num_ranks, tri_proven_fn told, void *context,
                          tr_error *err);

#endif
