/* Placement: how tensors lie on the mesh, and the communication that follows.
 *
 * A policy says which dims of the parameters are cut over an axis (tp.c). Where any other value
 * lies follows from where its inputs lie, by the rule of its operator (graph/place_rules.c), in one
 * sweep over the nodes. Where producer and consumer disagree, the collective that turns one into
 * the other is inserted, once for all consumers that want the same. */
#ifndef TRI_PLACE_PLACE_H
#define TRI_PLACE_PLACE_H

#include "graph/op_table.h"
#include "mesh/mesh.h"
#include "place/placed_params.h"
#include "place/stages.h"

typedef struct tri_layout {
    tri_mesh mesh;
    int coordinate[TRI_NUM_AXES]; /* of this rank */
    bool sp;                      /* between the blocks of tp, activations are cut along T */
    int64_t head_unit;            /* query heads that share a key head: never apart */
    int zero;                     /* 0 to 3: what is divided over dp (zero.c) */
    bool keep_gathered;           /* zero 3: gathered weights stay for the step */
    bool whole_tensors;           /* an update rule needs whole matrices */
    double bucket_bytes;          /* zero 0: gradients are summed when so much is complete */
    const tri_stages *stages;     /* of a pipeline; NULL: there is none */
} tri_layout;

/* Turns the graph of the whole model into the one of this rank, and adds the collectives. Runs when
 * the graph is complete: forward, backward and update. The rows of the batch are this rank's
 * already: what is summed over B is a term of a sum over dp. Fills in `placed`. */
tr_status tri_place(tri_graph *graph, const tri_layout *layout, tri_placed_params *placed,
                    tr_error *err);

/* Moves messages so that there is something to compute while they are under way: the last pass
 * (place_order.c). ahead: buckets of weights that ZeRO 3 gathers before their turn. */
tr_status tri_place_order(tri_graph *graph, const tri_zero_plan *zero, int ahead, tr_error *err);

/* How a parameter, and whatever has its shape, is cut over tp; parts 0: it is not. */
tri_cut tri_tp_cut(const tri_layout *layout, const tri_param *param);
/* ZeRO: how each parameter is divided over dp (placed->zero), and whether a state is. */
tr_status tri_zero_divide(const tri_graph *graph, const tri_layout *layout,
                          tri_placed_params *placed, tr_error *err);
bool tri_zero_divides(const tri_graph *graph, const tri_layout *layout, const tri_zero_plan *zero,
                      const tri_state *state);
/* The cut of one dim over tp. */
tri_cut tri_tp_cut_dim(const tri_layout *layout, const tri_shape *shape, int dim);

#endif
