#include "mesh/grid.h"

#include <stdio.h>

/* tp, cp, dp and pp lie next to each other in the order of ranks; every other axis is part of one
 * of them, or of two neighbours. */
static bool in_family(tri_axis axis, tri_axis family)
{
    switch (axis) {
    case TRI_AXIS_SHARD:
    case TRI_AXIS_REPLICATE:
    case TRI_AXIS_EP:
    case TRI_AXIS_EP_SHARD:
    case TRI_AXIS_EP_REPLICATE:
        return family == TRI_AXIS_DP || family == TRI_AXIS_CP;
    case TRI_AXIS_KV:
    case TRI_AXIS_KV_COPY:
        return family == TRI_AXIS_TP;
    case TRI_AXIS_CP_RING:
    case TRI_AXIS_CP_HEADS:
    case TRI_AXIS_CP_KV:
    case TRI_AXIS_CP_COPY:
        return family == TRI_AXIS_CP;
    default:
        return family == axis;
    }
}

static bool has_factors(const tri_mesh *mesh, tri_axis axis)
{
    if (axis == TRI_AXIS_KV)
        return tri_mesh_size(mesh, TRI_AXIS_KV_COPY) > 1;
    bool of_experts = axis == TRI_AXIS_EP_SHARD || axis == TRI_AXIS_EP_REPLICATE;
    if (of_experts && tri_mesh_size(mesh, TRI_AXIS_EP) == 1)
        return false;
    return axis != TRI_AXIS_HOME && tri_mesh_size(mesh, axis) > 1;
}

/* Where an axis begins or ends, a factor does. */
static int find_borders(const tri_mesh *mesh, int64_t *border)
{
    int num = 0;
    for (int axis = 0; axis < TRI_NUM_AXES; axis++) {
        int64_t first = tri_mesh_stride(mesh, (tri_axis)axis);
        int64_t ends[] = {first, first * tri_mesh_size(mesh, (tri_axis)axis)};
        for (int e = 0; e < 2 && has_factors(mesh, (tri_axis)axis); e++) {
            int at = 0;
            while (at < num && border[at] < ends[e])
                at++;
            if (at < num && border[at] == ends[e])
                continue;
            for (int i = num++; i > at; i--)
                border[i] = border[i - 1];
            border[at] = ends[e];
        }
    }
    return num;
}

static bool within(const tri_mesh *mesh, tri_axis axis, const tri_factor *f)
{
    int64_t first = tri_mesh_stride(mesh, axis), end = first * tri_mesh_size(mesh, axis);
    if (f->size == 1) /* a single key head */
        return axis == TRI_AXIS_TP || axis == TRI_AXIS_KV;
    return has_factors(mesh, axis) && in_family(axis, (tri_axis)f->family) && f->stride >= first &&
           (int64_t)f->stride * f->size <= end;
}

/* The axis of the grid, tp, cp, dp or pp, that a factor is part of. */
static tri_axis family_at(const tri_mesh *mesh, int64_t stride, int64_t size)
{
    for (int axis = 0; axis < TRI_AXIS_PP; axis++) {
        int64_t first = tri_mesh_stride(mesh, (tri_axis)axis);
        if (stride >= first && stride * size <= first * tri_mesh_size(mesh, (tri_axis)axis))
            return (tri_axis)axis;
    }
    return TRI_AXIS_PP;
}

static void add_factor(const tri_mesh *mesh, int rank, int64_t stride, int64_t size, tri_grid *grid)
{
    grid->factor[grid->num_factors++] =
        (tri_factor){.size = (int32_t)size,
                     .stride = (int32_t)stride,
                     .coordinate = (int32_t)(rank / stride % size),
                     .family = (uint8_t)family_at(mesh, stride, size)};
}

/* How the factors of cp meet other dims than T, to which attention takes those of cp_heads; and
 * which factors divide what stays together elsewhere. */
static void mark_factors(const tri_mesh *mesh, tri_grid *grid)
{
    const tri_factor_set copies =
        grid->axis[TRI_AXIS_KV_COPY].factors | grid->axis[TRI_AXIS_CP_COPY].factors;
    for (int f = 0; f < grid->num_factors; f++) {
        tri_factor *factor = &grid->factor[f];
        factor->visits = factor->family == TRI_AXIS_CP && mesh->size[TRI_AXIS_CP_HEADS] > 1;
        factor->splits = copies >> f & 1;
    }
}

tr_status tri_mesh_grid(const tri_mesh *mesh, int rank, tri_grid *grid, tr_error *err)
{
    int64_t border[2 * TRI_NUM_AXES];
    int num = find_borders(mesh, border);
    bool one_key = has_factors(mesh, TRI_AXIS_KV) && tri_mesh_size(mesh, TRI_AXIS_KV) == 1;
    *grid = (tri_grid){.num_axes = TRI_NUM_AXES};
    for (int i = 0; i < num; i++) {
        if (one_key && border[i] == tri_mesh_stride(mesh, TRI_AXIS_KV))
            add_factor(mesh, rank, border[i], 1, grid);
        if (i + 1 == num)
            break;
        if (border[i + 1] % border[i] != 0)
            return tri_fail(err, TR_ERROR_INTERNAL, "the axes of the mesh do not fit each other");
        add_factor(mesh, rank, border[i], border[i + 1] / border[i], grid);
    }
    for (int axis = 0; axis < TRI_NUM_AXES; axis++) {
        tri_grid_axis *row = &grid->axis[axis];
        snprintf(row->name, sizeof row->name, "%s", tri_axis_name((tri_axis)axis));
        for (int f = 0; f < grid->num_factors; f++)
            if (within(mesh, (tri_axis)axis, &grid->factor[f]))
                row->factors |= tri_factor_bit(f);
    }
    tri_grid_axis *shard = &grid->axis[TRI_AXIS_SHARD];
    tri_factor_set cp = grid->axis[TRI_AXIS_CP].factors, dp = grid->axis[TRI_AXIS_DP].factors;
    if (cp && dp && shard->factors == (cp | dp))
        snprintf(shard->name, sizeof shard->name, "dp*cp");
    mark_factors(mesh, grid);
    return TR_OK;
}

int tri_grid_rank(const tri_grid *grid)
{
    int rank = 0;
    for (int f = 0; f < grid->num_factors; f++)
        rank += grid->factor[f].coordinate * grid->factor[f].stride;
    return rank;
}

/* The next level of a group, slower than those that it has. */
static void add_level(const tri_factor *factor, tri_rank_group *group)
{
    tri_group_level *last = group->num_levels ? &group->level[group->num_levels - 1] : NULL;
    uint32_t size = (uint32_t)factor->size, stride = (uint32_t)factor->stride;
    group->own += (uint32_t)factor->coordinate * group->size;
    group->size *= size;
    group->first -= (uint32_t)factor->coordinate * stride;
    if (last && last->size * last->stride == stride)
        last->size *= size;
    else if (group->num_levels < TRI_GROUP_MAX_LEVELS)
        group->level[group->num_levels++] = (tri_group_level){size, stride};
}

tri_rank_group tri_grid_group(const tri_grid *grid, int axis)
{
    const tri_grid_axis *row = &grid->axis[axis];
    const tri_entries order = row->order.num ? row->order : (tri_entries){1, {row->factors}};
    tri_rank_group group = {.size = 1, .first = (uint32_t)tri_grid_rank(grid)};
    for (int i = order.num - 1; i >= 0; i--)
        for (int f = 0; f < grid->num_factors; f++)
            if (order.set[i] >> f & 1 && grid->factor[f].size > 1)
                add_level(&grid->factor[f], &group);
    snprintf(group.name, sizeof group.name, "%s", row->name);
    return group;
}

tri_rank_group tri_grid_homes(const tri_grid *grid, const uint32_t *places, uint32_t num_places)
{
    tri_rank_group group = tri_grid_group(grid, TRI_AXIS_PP);
    uint32_t coordinate = group.own;
    snprintf(group.name, sizeof group.name, "%s", tri_axis_name(TRI_AXIS_HOME));
    group.size = group.num_listed = num_places;
    for (uint32_t i = 0; i < num_places; i++) {
        group.listed[i] = places[i];
        if (places[i] == coordinate)
            group.own = i;
    }
    return group;
}
