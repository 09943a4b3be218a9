#include "place/policy.h"

static const tri_policy *const policies[] = {&tri_policy_tp, &tri_policy_cp, &tri_policy_dp,
                                             &tri_policy_ep};
enum { NUM_POLICIES = sizeof policies / sizeof *policies };

int tri_dim_named(const tri_shape *shape, tri_dim_name name)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d].name == name)
            return d;
    return -1;
}

static int dim_of(const tri_policy *policy, const tri_layout *layout, tri_policy_part part,
                  const tri_shape *shape)
{
    int (*const choose[])(const tri_layout *,
                          const tri_shape *) = {[TRI_POLICY_PARAM] = policy->param,
                                                [TRI_POLICY_INPUT] = policy->input,
                                                [TRI_POLICY_CACHE] = policy->cache,
                                                [TRI_POLICY_ANCHOR] = policy->anchor};
    return choose[part] ? choose[part](layout, shape) : -1;
}

tri_placement tri_policy_place(const tri_layout *layout, tri_policy_part part,
                               const tri_shape *shape, tri_factor_set over)
{
    const tri_grid *grid = &layout->grid;
    tri_spot spots[TRI_MAX_FACTORS] = {{TRI_SPOT_WHOLE, 0}};
    for (int i = 0; i < NUM_POLICIES; i++) {
        const tri_policy *policy = policies[i];
        tri_factor_set set = grid->axis[policy->axis].factors & over;
        int dim = set ? dim_of(policy, layout, part, shape) : -1;
        /* The residual stream lies over all of an axis, or not over it. */
        if (dim < 0 || (part == TRI_POLICY_ANCHOR && set != grid->axis[policy->axis].factors))
            continue;
        if (policy->cuts)
            set &= policy->cuts(layout, shape->dim[dim].name);
        for (int f = 0; f < grid->num_factors; f++)
            if (set >> f & 1)
                spots[f] = (tri_spot){TRI_SPOT_CUT, dim};
    }
    return tri_placement_of(grid, shape, spots);
}

tri_factor_set tri_policy_deferred(const tri_layout *layout)
{
    tri_factor_set set = 0;
    for (int i = 0; i < NUM_POLICIES; i++)
        if (policies[i]->deferred)
            set |= policies[i]->deferred(layout);
    return set;
}
