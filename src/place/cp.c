/* The policy of context parallelism: every rank has its tokens of each row, and all of every
 * parameter. Most operators work on tokens one by one. Attention does not: how it gets at the keys
 * of other ranks is in place_attend.c.
 *
 * What a gradient sums over tokens is partial, as over dp. A completed sum of activations is left
 * where the tokens are. Programs that write texts have rows of one or a few tokens: for them cp
 * cuts rows, as dp does. */
#include "place/policy.h"

static int rows(const tri_layout *layout, const tri_shape *shape)
{
    return layout->cp_rows ? tri_dim_named(shape, TRI_DIM_B) : -1;
}

static int tokens(const tri_layout *layout, const tri_shape *shape)
{
    return layout->cp_rows ? rows(layout, shape) : tri_dim_named(shape, TRI_DIM_T);
}

static int anchor(const tri_layout *layout, const tri_shape *shape)
{
    return layout->cp_rows ? -1 : tri_dim_named(shape, TRI_DIM_T);
}

const tri_policy tri_policy_cp = {
    .axis = TRI_AXIS_CP, .input = tokens, .cache = rows, .anchor = anchor};
