/* What pipeline orders make of their stages: how much longer than its work the busiest rank takes,
 * and how many micro-batches are under way. Orders are timed with unit costs and no messages. */
#ifndef TRI_SEARCH_PIPES_H
#define TRI_SEARCH_PIPES_H

#include "search/choice.h"

typedef struct tri_pipe {
    uint32_t pp, microbatches;
    uint8_t schedule, chunks;
    bool known;     /* the order has such sizes */
    double stretch; /* of the step over the work of a rank; 1 or more */
    double live;    /* activations on the fullest rank, in micro-batches of all of its layers */
} tri_pipe;

typedef struct tri_pipes {
    tri_pipe *items;
    size_t count, capacity;
    bool failed; /* no memory */
} tri_pipes;

/* The number of the pipe of a choice, which is added, and timed, where there is none yet. */
size_t tri_pipe_of(tri_pipes *pipes, const tri_layout_choice *choice);
void tri_pipes_fini(tri_pipes *pipes);

#endif
