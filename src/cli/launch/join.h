/* A rank of a world that somebody else started (docs/launch.md). */
#ifndef TRI_CLI_LAUNCH_JOIN_H
#define TRI_CLI_LAUNCH_JOIN_H

#include "cli/launch/environment.h"
#include "cli/launch/launch.h"

/* Runs rank_main as one of the ranks that the environment tells of; rank 0 is their meeting point.
 * writes: into run.dir, see tri_launch_options. In rank 0 the result says what went wrong, for the
 * record. */
int tri_join_world(const tri_cli *cli, tri_environment *world, tri_rank_main rank_main,
                   void *context, bool writes, tri_launch_result *result);

/* Remarks of a control server: strangers mostly. Whoever sends many does not fill the screen. A
 * tri_control_log; context is this. */
typedef struct tri_remarks {
    int num;
} tri_remarks;
void tri_cli_remark(void *remarks, const char *line);

void tri_cli_print_report(const tri_text *report);

#endif
