/* trireme bench matmul. */
#ifndef TRI_CLI_BENCH_BENCH_MATMUL_H
#define TRI_CLI_BENCH_BENCH_MATMUL_H

#include "cli/cli.h"

int tri_bench_matmul(const tri_cli *cli);

#endif
