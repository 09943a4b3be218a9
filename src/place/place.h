/* Placement: how tensors lie on the mesh, and the communication that follows.
 *
 * A policy says which dims of parameters and inputs are cut over an axis (policy.h). Where any
 * other value lies follows from where its inputs lie, by the rule of its operator
 * (graph/place_rules.c), asked once for each factor of the grid, in one sweep over the nodes. Where
 * producer and consumer disagree, the collectives that turn one into the other are inserted
 * (moves.h), once for all consumers that want the same. */
#ifndef TRI_PLACE_PLACE_H
#define TRI_PLACE_PLACE_H

#include "graph/op_table.h"
#include "mesh/mesh.h"
#include "place/placed_params.h"
#include "place/stages.h"

typedef struct tri_layout {
    tri_mesh mesh;
    tri_grid grid;                /* of the mesh, with this rank's place */
    int coordinate[TRI_NUM_AXES]; /* of this rank */
    bool sp;                      /* between the blocks of tp, activations are cut along T */
    bool whole_experts;           /* tp does not cut them: with sp, each rank has its positions */
    bool cp_rows;               /* cp cuts the rows of a batch, as dp does, and not their tokens */
    tri_attention_keys cp_keys; /* how attention gets the keys of other ranks, over cp_ring */
    int zero;                   /* 0 to 3: what is divided over dp (zero.c) */
    bool keep_gathered;         /* zero 3: gathered weights stay for the step */
    bool whole_tensors;         /* an update rule needs whole matrices */
    double bucket_bytes;        /* zero 0: gradients are summed when so much is complete */
    const tri_stages *stages;   /* of a pipeline; NULL: there is none */
} tri_layout;

/* Turns the graph of the whole model into the one of this rank, and adds the collectives. Runs when
 * the graph is complete: forward, backward and update. Fills in `placed`. */
tr_status tri_place(tri_graph *graph, const tri_layout *layout, tri_placed_params *placed,
                    tr_error *err);

/* Moves messages so that there is something to compute while they are under way
 * (place_order.c). ahead: buckets of weights that ZeRO 3 gathers before their turn. */
tr_status tri_place_order(tri_graph *graph, const tri_zero_plan *zero, int ahead, tr_error *err);

/* Moves what has nothing to do with the exchanges of experts beside them (place_exchanges.c),
 * before the pass above. later: nodes that a split backward runs in W. */
tr_status tri_place_exchanges(tri_graph *graph, const bool *later, tr_error *err);

/* ZeRO: how each parameter is divided over dp (placed->zero), and whether a state is. */
tr_status tri_zero_divide(const tri_graph *graph, const tri_layout *layout,
                          tri_placed_params *placed, tr_error *err);
bool tri_zero_divides(const tri_graph *graph, const tri_layout *layout, const tri_zero_plan *zero,
                      const tri_state *state);

#endif
