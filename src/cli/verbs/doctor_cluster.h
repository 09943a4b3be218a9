/* trireme doctor --cluster FILE: the links of all ranks, measured, as a file for sim --cluster. */
#ifndef TRI_CLI_VERBS_DOCTOR_CLUSTER_H
#define TRI_CLI_VERBS_DOCTOR_CLUSTER_H

#include "cli/cli.h"

int tri_doctor_cluster(const tri_cli *cli);

#endif
