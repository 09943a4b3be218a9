/* Which weights a verb that uses a trained model means. */
#ifndef TRI_CLI_VERBS_WEIGHTS_H
#define TRI_CLI_VERBS_WEIGHTS_H

#include "cli/cli.h"

/* Sets model.from: to the run directory or Hugging Face directory that was named, else to what
 * model.from says, else to the weights in run.dir; and one rank, whatever the run was trained
 * with. */
tr_status tri_cli_point_to_weights(const tri_cli *cli, tr_error *err);
/* "runs/demo/weights.safetensors, step 500": what model.from is then. */
tr_status tri_cli_weights_words(const tri_cli *cli, char *text, size_t size, tr_error *err);

#endif
