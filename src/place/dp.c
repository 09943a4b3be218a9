/* The policy of data parallelism: every rank has its rows of the batch, and all of every parameter.
 * What a gradient sums over rows is then partial, and summed over the ranks. ZeRO (zero.c) is about
 * where states rest, not about where values are computed. */
#include "place/policy.h"

static int rows(const tri_layout *layout, const tri_shape *shape)
{
    (void)layout;
    return tri_dim_named(shape, TRI_DIM_B);
}

const tri_policy tri_policy_dp = {.axis = TRI_AXIS_DP, .input = rows, .cache = rows};
