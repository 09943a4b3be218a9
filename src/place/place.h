/* Placement: how tensors lie on the mesh, and the communication that follows. */
#ifndef TRI_PLACE_PLACE_H
#define TRI_PLACE_PLACE_H

#include "graph/graph.h"
#include "mesh/mesh.h"

/* Plain data parallelism: the rows of the batch are divided over dp, everything else is on every
 * rank. Gradients and loss statistics then come out as terms of sums over dp; this adds the
 * all-reduces that complete them. Runs after autodiff and before the update rules. */
tr_status tri_place_dp(tri_graph *graph, const tri_mesh *mesh, tr_error *err);

#endif
