/* Parts of trireme data that are about tokens on disk. */
#ifndef TRI_CLI_VERBS_DATA_PREPARE_H
#define TRI_CLI_VERBS_DATA_PREPARE_H

#include "cli/cli.h"
#include "data/prepare/prepare.h"

/* trireme data prepare INPUT ... --tokenizer PATH --out DIR */
tr_status tri_data_prepare_verb(const tri_cli *cli, tr_error *err);
/* trireme data inspect PATH */
tr_status tri_data_inspect_verb(const tri_cli *cli, tr_error *err);

/* A line for each thing that is begun, and a progress bar on a terminal. */
typedef struct tri_prepare_bar {
    double start_s, drawn_s;
    bool terminal, drawn;
} tri_prepare_bar;

void tri_prepare_bar_init(tri_prepare_bar *bar, bool terminal);
void tri_prepare_bar_show(void *bar, const tri_prepare_progress *now);
void tri_prepare_bar_end(tri_prepare_bar *bar); /* takes the line away */

#endif
