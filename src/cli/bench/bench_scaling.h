/* trireme bench scaling. */
#ifndef TRI_CLI_BENCH_BENCH_SCALING_H
#define TRI_CLI_BENCH_BENCH_SCALING_H

#include "cli/cli.h"

int tri_bench_scaling(const tri_cli *cli);

#endif
