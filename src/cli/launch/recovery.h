/* Going on after a rank was lost: whether to start the ranks again, how many, and from where.
 *
 * The launcher reports a failure and asks here. A restart is a whole new world of processes that
 * load the last checkpoint; nothing of the old one is trusted. With run.elastic the new world has
 * fewer data-parallel replicas, as many as are left whole. docs/recovery.md is the manual. */
#ifndef TRI_CLI_LAUNCH_RECOVERY_H
#define TRI_CLI_LAUNCH_RECOVERY_H

#include "cli/launch/launch.h"
#include "run/attempt.h"

typedef struct tri_recovery {
    const tri_cli *cli;
    double started_s;          /* of the run, restarts included; tri_now_s */
    int attempt;               /* 0: the first */
    int num_restarts;          /* that run.restarts pays for, so far */
    bool resumes;              /* this attempt goes on from a checkpoint of an earlier one */
    int64_t from_step;         /* steps done when this attempt began, as far as is known */
    tri_attempt last;          /* before this one */
    bool noted;                /* that output is lost */
    struct tri_detach *detach; /* cli/run/detach.h */
    struct tri_run_page *page; /* cli/run/page.h */
    const struct tri_auto_layout *layout; /* cli/auto/auto_layout.h */
} tri_recovery;

void tri_recovery_init(tri_recovery *recovery, const tri_cli *cli);
/* Whether the settings ask for restarts of some kind. */
bool tri_recovery_wanted(const tri_recovery *recovery);
/* A tri_again; context is the recovery. */
int tri_recovery_again(void *context, const tri_launch_result *result);
/* Steps that the newest checkpoint of run.dir has, 0 when there is none. Whether it is whole is
 * found when it is loaded. */
int64_t tri_recovery_saved(const tr_settings *settings);

#endif
