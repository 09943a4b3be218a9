/* The expansion of rooms, dispatch and collect over ep: a whole stretch of nodes at a time, since
 * the rows between them have another shape then. */
#ifndef TRI_PLACE_EXPAND_EXPERTS_H
#define TRI_PLACE_EXPAND_EXPERTS_H

#include "graph/graph.h"

/* room: rows that each pair of ranks has room for, as a multiple of what equal loads need; 0: room
 * for all rows, so that none is ever lost. */
tr_status tri_expand_experts(tri_graph *graph, double room, tr_error *err);

#endif
