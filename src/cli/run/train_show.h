/* What `trireme train` shows of a run, as its observer: what it is, the steps that are worth a
 * line, and how it ended. */
#ifndef TRI_CLI_RUN_TRAIN_SHOW_H
#define TRI_CLI_RUN_TRAIN_SHOW_H

#include "cli/cli.h"
#include "cli/memory.h"
#include "cli/run/progress.h"
#include "train/health/mfu.h"
#include "train/run/run.h"

typedef struct tri_train_show {
    const tri_cli *cli;
    bool quiet;                           /* warnings and the last line only */
    const struct tri_auto_layout *layout; /* cli/auto/auto_layout.h; NULL: none was chosen */
    tri_progress progress;
    tri_memory_overhead overhead; /* before the first step */
    tri_mfu_base mfu_base;
    tr_status status; /* of the first lines: a run that nobody is told of is not begun */
    tr_error err;
} tri_train_show;

/* It must outlive the run. */
tri_observer tri_train_show_observer(tri_train_show *show);

#endif
