/* Policies: what an axis of the mesh cuts. One row each (policy.c); the rest of placement asks the
 * table and knows no axis by name.
 *
 * A policy says where parameters, inputs and caches lie over the factors of its axis, and where a
 * sum of activations is left when it has been completed. Everything between follows from the rules
 * of the operators. To add one: a file beside tp.c and dp.c, and a row. */
#ifndef TRI_PLACE_POLICY_H
#define TRI_PLACE_POLICY_H

#include "graph/graph.h"
#include "place/place.h"

typedef struct tri_policy {
    tri_axis axis;
    /* The dim of a parameter that is cut, or -1, NULL: none. */
    int (*param)(const tri_layout *layout, const tri_shape *shape);
    /* The same of what comes with every batch, of what attention keeps between programs, and of a
     * completed sum of activations. */
    int (*input)(const tri_layout *layout, const tri_shape *shape);
    int (*cache)(const tri_layout *layout, const tri_shape *shape);
    int (*anchor)(const tri_layout *layout, const tri_shape *shape);
    /* Over which factors of its axis a dim is cut at all. NULL: all of them. */
    tri_factor_set (*cuts)(const tri_layout *layout, tri_dim_name name);
    /* Factors over which terms of the backward pass through what is linear in them, until the
     * gradients of parameters are summed. NULL: sums are completed before the first reader. */
    tri_factor_set (*deferred)(const tri_layout *layout);
} tri_policy;

extern const tri_policy tri_policy_tp, tri_policy_cp, tri_policy_dp, tri_policy_ep;

typedef enum tri_policy_part {
    TRI_POLICY_PARAM,
    TRI_POLICY_INPUT,
    TRI_POLICY_CACHE,
    TRI_POLICY_ANCHOR
} tri_policy_part;

/* What all policies together say of a value of that shape. `over`: only of these factors. */
tri_placement tri_policy_place(const tri_layout *layout, tri_policy_part part,
                               const tri_shape *shape, tri_factor_set over);
tri_factor_set tri_policy_deferred(const tri_layout *layout);
/* A dim by its name; -1: the shape has none. */
int tri_dim_named(const tri_shape *shape, tri_dim_name name);

#endif
