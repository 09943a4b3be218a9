/* trireme doctor --validate. */
#ifndef TRI_CLI_VERBS_DOCTOR_VALIDATE_H
#define TRI_CLI_VERBS_DOCTOR_VALIDATE_H

#include "cli/cli.h"

int tri_doctor_validate(const tri_cli *cli);

#endif
