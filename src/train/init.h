/* Initial values of parameters. */
#ifndef TRI_TRAIN_INIT_H
#define TRI_TRAIN_INIT_H

#include "base/pool.h"
#include "graph/param.h"

/* A pure function of (seed, name, index), so that it does not depend on who fills which part.
 * pool may be NULL. */
void tri_init_fill(const tri_param *param, uint64_t seed, tri_pool *pool, float *data);

#endif
