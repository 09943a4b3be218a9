/* One step of a value between two places (graph/where.h), as a node of the graph. */
#ifndef TRI_PLACE_CARRY_NODE_H
#define TRI_PLACE_CARRY_NODE_H

#include "graph/graph.h"

/* A value like another one, at a place: a temporary of this name @place. TRI_NONE: no memory. */
tri_id tri_carry_copy(tri_graph *graph, tri_id of, tri_where where);
/* The fetch or stash that makes it of a value at the place beside, in the phase and layer of a
 * node. replaces: the version of a state that `made` replaces, or TRI_NONE for a copy. */
void tri_carry_append(tri_graph *graph, tri_id from, tri_id made, tri_id replaces,
                      const tri_node *reason);

#endif
