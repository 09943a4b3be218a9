/* States that rest elsewhere than on the device (place_spaces.c). */
#ifndef TRI_PLACE_PLACE_SPACES_H
#define TRI_PLACE_PLACE_SPACES_H

#include "graph/graph.h"

typedef struct tri_spaces_config {
    tri_where moments;     /* optimizer states that belong to parameters rest there */
    tri_where masters;     /* parameters in f32 that have a 16-bit copy */
    tri_where activations; /* what the backward reads of the forward, in between */
    bool update_on_host;   /* what changes them computes on the host */
    /* Updates that are worth so many bytes of states are one piece of work: what the next needs
     * comes while it runs, and what the last made leaves. 0: 64 MiB. */
    uint64_t piece_bytes;
    bool beside; /* a device with a queue: what goes from and to files may be under way beside it */
} tri_spaces_config;

/* The last pass on the graph of a rank: says where states rest and nodes compute, puts fetch and
 * stash between the two, and brings them into an order in which they have something to hide
 * behind. */
tr_status tri_place_spaces(tri_graph *graph, const tri_spaces_config *config, tr_error *err);

#endif
