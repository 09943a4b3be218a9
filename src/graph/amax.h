/* Results of amax: part p has runs p, p + TRI_AMAX_PARTS, ... of so many elements each, so that
 * those who find them side by side sweep through memory together. */
#ifndef TRI_GRAPH_AMAX_H
#define TRI_GRAPH_AMAX_H

#include "graph/op.h"

enum { TRI_AMAX_RUN = 4096 };

#endif
