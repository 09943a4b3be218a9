/* The first lines of a run: what is trained, on what, how, and where. */
#ifndef TRI_CLI_RUN_FIRST_LINES_H
#define TRI_CLI_RUN_FIRST_LINES_H

#include "cli/auto/auto_layout.h"
#include "cli/cli.h"
#include "train/session.h"

typedef struct tri_first_lines {
    const tri_cli *cli;
    const tri_session *session;    /* compiled, with its data open */
    const char *dir;               /* run.dir */
    const tri_auto_layout *layout; /* of layout.auto; NULL: it was not asked for */
    int local_ranks;               /* on this machine */
    const char *transport;         /* between ranks; NULL: not known yet, or there is one rank */
} tri_first_lines;

tr_status tri_first_lines_print(const tri_first_lines *lines, tr_error *err);

#endif
