/* The sweep's own: what its files share. See place.c for how it goes. */
#ifndef TRI_PLACE_PLACER_H
#define TRI_PLACE_PLACER_H

#include "place/moves.h"
#include "place/policy.h"

typedef struct tri_placed {
    tri_placement at;
    tri_shape global;   /* its shape in the whole model */
    bool absent;        /* update: another rank has it, this one nothing of it */
    tri_id now;         /* the version to read instead, or itself: tri_placer_now follows them */
    tri_id moved, next; /* the same value in other places: the first, and the next after this one */
    tri_id replaces;    /* a version of a state: the one before it */
    tri_id last; /* a gradient that is a sum of several: the last of them, TRI_NONE otherwise */
} tri_placed;

typedef struct tri_placer {
    tri_graph *graph;
    const tri_layout *layout;
    tri_placed_params *placed;
    tri_zero_plan *zero; /* of those */
    tri_placed *values;
    size_t num_values, capacity;
    tri_factor_set deferred; /* terms over these pass through linear operators in the backward */
    tri_placement *params;   /* of each parameter: where it lies, and whatever has its shape */
    tri_factor_set *partial; /* of each state: over these its newest version is a term of a sum */
    int chunk;               /* of the node at hand; -1 at the beginning and in the update */
    tri_id shape_of; /* the parameter of which the node at hand needs the shape alone; TRI_NONE */
    const tri_node *old;
    size_t num_old;
    tri_factor_set cut;   /* over these some parameter is */
    bool sums_done;       /* the gradients' */
    tri_id norm;          /* the state that squares are added to, TRI_NONE before the first */
    bool any_squares;     /* this rank has added some */
    uint32_t num_buckets; /* of temporaries, so far */
    /* ZeRO; of each parameter: */
    tri_id *gathered[2];  /* zero 3: the whole of it, in the forward and in the backward */
    tri_id *wholes;       /* where these are: for each phase, or, kept for the step, each chunk */
    tri_id *grad;         /* zero 2, 3: its gradient in this backward, not divided yet */
    uint32_t *grads_left; /* contributions to it that are still to come in this chunk */
    bool *accumulated;    /* zero 2, 3: there is a slice in its accumulator, of another chunk */
    /* Zero 0, 1; of each state: a gradient that has all of its contributions and is not summed */
    bool *complete;
    tri_id complete_first, complete_end; /* the states between which they all are */
    double complete_bytes;               /* of those together */
    /* Pipelines; of each parameter: the chunks between which contributions to it are */
    int *first_chunk, *last_chunk;
    int backward_layer; /* of the last node of the backward so far */
} tri_placer;

/* Moving values between places (place_move.c). */
/* A bug of ours: a rule and a state that do not fit. */
tr_status tri_placer_complain(const tri_placer *p, const tri_node *node, const char *what,
                              tr_error *err);
/* Notes values that were made since the last call: whole until something else is said. */
tr_status tri_placer_note_values(tri_placer *p, tr_error *err);
/* The value to read instead of this one: itself, or the newest that took its place. */
tri_id tri_placer_now(tri_placer *p, tri_id id);
/* Where a value lies, and its shape for that. */
void tri_placer_put(tri_placer *p, tri_id id, const tri_placement *at);
/* The sum over these factors of a temporary, in the place where the residual stream lies. */
tr_status tri_placer_complete(tri_placer *p, tri_id id, tri_factor_set over, tri_id *out,
                              tr_error *err);
/* The same, everywhere. */
tr_status tri_placer_reduce(tri_placer *p, tri_id id, tri_factor_set over, tri_id *out,
                            tr_error *err);
/* After a node: what it made of its first input, which lay like that before it was put together for
 * the node, is cut again for all who read it. */
tr_status tri_placer_return(tri_placer *p, const tri_node *node, const tri_placement *before,
                            tr_error *err);
/* The value in another place. */
tr_status tri_placer_convert(tri_placer *p, tri_id id, const tri_placement *want, tri_id *out,
                             tr_error *err);
static inline tri_factor_set tri_placer_axis(const tri_placer *p, tri_axis axis)
{
    return p->layout->grid.axis[axis].factors;
}

/* The ranks that share out the batch, rows or tokens: gradients are terms over all of them. */
static inline tri_factor_set tri_placer_data(const tri_placer *p)
{
    return tri_placer_axis(p, TRI_AXIS_DP) | tri_placer_axis(p, TRI_AXIS_CP);
}

/* Whether a parameter is an expert of which ranks of ep hold different ones. */
static inline bool tri_placer_apart(const tri_placer *p, tri_id param)
{
    return p->graph->params->items[param].role == TRI_ROLE_EXPERTS &&
           tri_placer_axis(p, TRI_AXIS_EP);
}

/* Over which ranks ZeRO divides a parameter, over which it has copies of that, and over which its
 * gradients are terms. */
static inline tri_axis tri_placer_shard(const tri_placer *p, tri_id param)
{
    return tri_placer_apart(p, param) ? TRI_AXIS_EP_SHARD : TRI_AXIS_SHARD;
}
static inline tri_axis tri_placer_replicate(const tri_placer *p, tri_id param)
{
    return tri_placer_apart(p, param) ? TRI_AXIS_EP_REPLICATE : TRI_AXIS_REPLICATE;
}
static inline tri_factor_set tri_placer_terms(const tri_placer *p, tri_id param)
{
    tri_factor_set ep = tri_placer_apart(p, param) ? tri_placer_axis(p, TRI_AXIS_EP) : 0;
    return tri_placer_data(p) & (tri_factor_set)~ep;
}

/* Experts (place_experts.c): brings what rows are sorted by to where they are computed. */
tr_status tri_placer_sort(tri_placer *p, tri_node *node, tr_error *err);

/* Context parallelism (place_attend.c): brings operands of attention to where it computes, and
 * those of any other node back to where tokens are. */
tr_status tri_placer_attend(tri_placer *p, tri_node *node, tr_error *err);

/* States and their sums (place_sums.c). */
/* A contribution to a gradient, and where it lies: made terms over cp where it is none yet. */
tr_status tri_placer_share_gradient(tri_placer *p, tri_node *node, tri_placement *at,
                                    tr_error *err);
/* Adds up what is still a term of a sum. */
tr_status tri_placer_complete_state(tri_placer *p, tri_id state, tr_error *err);
/* Before a bias is moved: all loads that biases are moved by. */
tr_status tri_placer_sum_loads(tri_placer *p, const tri_node *node, tr_error *err);
/* Zero 0, 1: a contribution to a gradient has been added; sums those that are due. */
tr_status tri_placer_note_gradient(tri_placer *p, tri_id state, tr_error *err);
/* The backward of a chunk ends: sums what is complete. */
tr_status tri_placer_end_backward(tri_placer *p, tr_error *err);
/* All gradients that are left, when the backward is done. */
tr_status tri_placer_complete_gradients(tri_placer *p, tr_error *err);
/* The shapes of this rank's states. */
tr_status tri_placer_states(tri_placer *p, tr_error *err);

/* Tensors divided over data-parallel ranks (place_zero.c). */
/* Zero 3: what a node of the model reads of divided parameters is put together before it. */
tr_status tri_placer_gather_weights(tri_placer *p, tri_node *node, tr_error *err);
/* Zero 2, 3: a contribution to a gradient. */
tr_status tri_placer_contribute(tri_placer *p, const tri_node *node, tr_error *err);
/* How many rows of `wholes` there are, one number a parameter in each; and the choice of those that
 * the chunk at hand uses. */
size_t tri_placer_num_wholes(const tri_graph *graph, const tri_layout *layout);
void tri_placer_find_gathered(tri_placer *p);
/* Another chunk of a pipeline begins: it gathers for itself, and contributes for itself. */
void tri_placer_enter_chunk(tri_placer *p, int chunk);
/* Zero 1, 2: after the update. */
tr_status tri_placer_gather_updates(tri_placer *p, tr_error *err);

#endif
