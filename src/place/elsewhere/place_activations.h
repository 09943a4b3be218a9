/* Activations that rest elsewhere between forward and backward (place_activations.c). */
#ifndef TRI_PLACE_PLACE_ACTIVATIONS_H
#define TRI_PLACE_PLACE_ACTIVATIONS_H

#include "graph/graph.h"

/* Behind tri_place_spaces: what the backward reads of the forward leaves for `where` when it is
 * made, and comes back a layer before it is read. */
tr_status tri_place_activations(tri_graph *graph, tri_where where, tr_error *err);

#endif
