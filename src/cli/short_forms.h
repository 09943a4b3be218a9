/* Flags that stand for a setting: train --resume is --set run.resume=true. */
#ifndef TRI_CLI_SHORT_FORMS_H
#define TRI_CLI_SHORT_FORMS_H

#include "cli/cli.h"

/* Sets what the flags of a command stand for. One that contradicts an assignment of --set is
 * refused: neither is more likely what was meant. */
tr_status tri_short_forms_apply(const tri_cli *cli, const char *const *assignments,
                                int num_assignments, tr_error *err);

/* The name of the setting that a flag of a verb stands for, or NULL. */
const char *tri_short_form_setting(const tri_verb *verb, const char *flag);

#endif
