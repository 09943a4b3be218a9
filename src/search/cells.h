/* What a layer takes, for each way of cutting it: two short models of it are compiled, with one
 * layer more in the second, and timed. From these follow bounds for all layouts that cut layers so,
 * however many stages, replicas and micro-batches they have. */
#ifndef TRI_SEARCH_CELLS_H
#define TRI_SEARCH_CELLS_H

#include "search/exact.h"
#include "search/pipes.h"

/* Of a micro-batch; rest is what is not of a layer: embedding, head and loss. */
typedef struct tri_cell_part {
    double first, other; /* seconds of a step's first micro-batch, and of one in its middle, with
                          * the messages of its axes that nothing hides */
    double redone;       /* of that: recomputation, with its messages; this or less */
    double update;       /* seconds, of all of a rank's parameters */
    double params, copies, grads, moments; /* bytes that rest */
    double kept;                           /* bytes of activations, from forward to backward */
} tri_cell_part;

typedef struct tri_layer_cell {
    uint32_t tp, cp, ep, rows;
    uint8_t keeping;
    bool sp, whole_experts, linear8;
    bool known;   /* such layers can be made */
    bool mean;    /* layers differ: layer is the mean of them, and rest is nothing */
    bool repeats; /* it recomputes something else than another cell by its name alone */
    double again; /* of layers of two kinds: the share of those that keep their inputs alone */
    tri_cell_part layer, rest;
    double work; /* bytes of workspace */
    char why[120];
} tri_layer_cell;

typedef struct tri_cells {
    tri_layer_cell *items;
    size_t count, capacity;
    bool failed;
} tri_cells;

/* The number of the cell of a choice, which is added where there is none yet. */
size_t tri_cell_of(tri_cells *cells, const tri_layout_choice *choice);
/* Fills in all of them. layers: of the model; alike: all layers are of a kind. */
tr_status tri_cells_measure(tri_cells *cells, const tri_search_machine *machine,
                            const tr_settings *base, uint32_t layers, bool alike, int threads,
                            tr_error *err);
/* What follows from other cells: those of layers of two kinds, and which repeat others (selective
 * recomputation where attention keeps nothing is none). */
void tri_cells_relate(tri_cells *cells);
void tri_cells_fini(tri_cells *cells);

/* Of so many layers, and what is not of a layer. */
tri_cell_part tri_cell_whole(const tri_layer_cell *cell, uint32_t layers);

/* Seconds and bytes that a layout takes at least (bound.c). */
typedef struct tri_bound {
    double seconds, bytes;
} tri_bound;
tri_bound tri_cell_bound(const tri_layer_cell *cell, const tri_pipe *pipe,
                         const tri_layout_choice *choice, const tri_search_machine *machine,
                         uint32_t layers);

#endif
