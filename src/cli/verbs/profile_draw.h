/* The picture of trireme profile: the rows of all ranks in the last step that was recorded. */
#ifndef TRI_CLI_VERBS_PROFILE_DRAW_H
#define TRI_CLI_VERBS_PROFILE_DRAW_H

#include "run/trace/profile.h"

tr_status tri_profile_draw(const tri_profile *profile, const char *trace, const char *title,
                           const char *path, tr_error *err);

#endif
