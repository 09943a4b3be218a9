/* A part of a rank's graph that runs in tiles along a dim, one tile after the other: for expansions
 * whose values are too large to be there whole. */
#ifndef TRI_PLACE_TILE_H
#define TRI_PLACE_TILE_H

#include "graph/graph.h"

typedef struct tri_tiling {
    tri_dim_name along; /* what is cut into tiles: balanced blocks, the first ones larger by one */
    tri_dim_name wide;  /* values that have both dims exist in tiles only */
    int32_t num_tiles;
} tri_tiling;

/* Clones all nodes that read or make a wide value, and those on the way from one such node to
 * another, once for each tile. What they read from outside is sliced; what others read of them is
 * put together, or added up where their operators sum over the dim. If some of them are of the
 * backward, all run there. */
tr_status tri_tile(tri_graph *graph, const tri_tiling *how, tr_error *err);

#endif
