/* The policy of expert parallelism: ranks that share out the batch hold different experts. What is
 * a matter of tokens stays where it was; how rows get to their experts, and results back, is in
 * expand_experts.c. A gradient of experts is complete over ep, since all rows of an expert are at
 * its rank, and partial over the ranks that hold the same experts. */
#include "place/policy.h"

/* Matrices of experts [E, out, in]; not the router, which every rank has. */
static int param(const tri_layout *layout, const tri_shape *shape)
{
    (void)layout;
    return shape->rank == 3 && shape->dim[0].name == TRI_DIM_E ? 0 : -1;
}

const tri_policy tri_policy_ep = {.axis = TRI_AXIS_EP, .param = param};
