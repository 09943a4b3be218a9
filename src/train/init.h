/* Initial values of parameters. */
#ifndef TRI_TRAIN_INIT_H
#define TRI_TRAIN_INIT_H

#include "graph/param.h"

/* A pure function of (seed, name, index), so that it does not depend on who fills which part. */
void tri_init_fill(const tri_param *param, uint64_t seed, float *data);

#endif
