/* A rank that is alone, in this process. */
#ifndef TRI_CLI_LAUNCH_LONE_RANK_H
#define TRI_CLI_LAUNCH_LONE_RANK_H

#include "cli/launch/launch.h"

int tri_run_lone_rank(const tri_cli *cli, tri_rank_main rank_main, void *context);

#endif
