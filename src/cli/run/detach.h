/* train --detach: the run goes on in a session of its own, and the command that was typed returns
 * when the run has begun, or with what is wrong.
 *
 * The command forks before anything else. Until the run has its directory, what it prints goes
 * where the command was typed; from then on to output.log in that directory. Over a pipe the child
 * says where that is, and that the first step is next; the end of the pipe without it is a failure.
 */
#ifndef TRI_CLI_RUN_DETACH_H
#define TRI_CLI_RUN_DETACH_H

#include "cli/cli.h"
#include "train/run/observer.h"

#define TRI_RUN_OUTPUT "output.log"

typedef struct tri_detach {
    int pipe; /* of the child, to the command; -1: the run is not detached */
} tri_detach;

/* Whether the run is this process's to do. If not, *code is how the command ends. */
bool tri_detach_begin(tri_detach *detach, const tri_cli *cli, int *code);
/* In the child, when the run has its directory. */
void tri_detach_take_output(const tri_detach *detach, const char *run_dir);
/* For rank 0: tells the command when the run begins. */
tri_observer tri_detach_observer(tri_detach *detach);

#endif
