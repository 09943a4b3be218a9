/* The policy of tensor parallelism (Megatron-LM): heads, the feed-forward width and the vocabulary
 * are cut, the model width is not. The first product of a block is then cut along its columns and
 * the second along its rows, and each block ends in one sum. With sp, activations between the
 * blocks are cut along the positions. Experts are cut as a feed-forward is, or, with sp, not at
 * all: then each rank takes its own positions through all of an expert.
 *
 * Query heads stay with the key head they share, as long as there is a key head for every rank.
 * With more ranks than that, tp is kv x kv_copy: the ranks of a kv_copy group hold the same key
 * head and divide its query heads. Keys and values are cut over kv then, and whole over kv_copy. In
 * the backward a rank has only its own queries' share of what reaches a key: that is partial over
 * kv_copy, and stays so until the gradients of its parameters are summed. What is linear in it, and
 * the backward is, may be applied before. */
#include "place/policy.h"

static int param(const tri_layout *layout, const tri_shape *shape)
{
    bool experts = shape->rank == 3 && shape->dim[0].name == TRI_DIM_E;
    for (int d = 0; d < shape->rank && !(experts && layout->whole_experts); d++) {
        tri_dim_name name = shape->dim[d].name;
        if (name == TRI_DIM_H || name == TRI_DIM_G || name == TRI_DIM_F || name == TRI_DIM_V)
            return d;
    }
    return -1;
}

/* [B, G, P, K] */
static int cache(const tri_layout *layout, const tri_shape *shape)
{
    (void)layout;
    (void)shape;
    return 1;
}

static int anchor(const tri_layout *layout, const tri_shape *shape)
{
    return layout->sp ? tri_dim_named(shape, TRI_DIM_T) : -1;
}

static tri_factor_set copies(const tri_layout *layout)
{
    return layout->grid.axis[TRI_AXIS_KV_COPY].factors;
}

static tri_factor_set cuts(const tri_layout *layout, tri_dim_name name)
{
    return (tri_factor_set)(name == TRI_DIM_G ? ~copies(layout) : ~0);
}

const tri_policy tri_policy_tp = {.axis = TRI_AXIS_TP,
                                  .param = param,
                                  .cache = cache,
                                  .anchor = anchor,
                                  .cuts = cuts,
                                  .deferred = copies};
