/* trireme bench generate: how fast a model with random weights makes text. */
#ifndef TRI_CLI_BENCH_BENCH_GENERATE_H
#define TRI_CLI_BENCH_BENCH_GENERATE_H

#include "cli/cli.h"

int tri_bench_generate(const tri_cli *cli);

#endif
