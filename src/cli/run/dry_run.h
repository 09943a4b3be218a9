/* trireme train --dry-run: everything up to the first step, and nothing of it in run.dir. */
#ifndef TRI_CLI_RUN_DRY_RUN_H
#define TRI_CLI_RUN_DRY_RUN_H

#include "cli/cli.h"

/* Returns an exit code. */
int tri_train_dry_run(const tri_cli *cli);

#endif
