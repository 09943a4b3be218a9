#include "graph/grid.h"

#include <stdio.h>
#include <string.h>

int32_t tri_grid_size(const tri_grid *grid, tri_factor_set set)
{
    int32_t size = 1;
    for (int f = 0; f < grid->num_factors; f++)
        if (set >> f & 1)
            size *= grid->factor[f].size;
    return size;
}

int32_t tri_grid_place(const tri_grid *grid, tri_factor_set set)
{
    int32_t place = 0;
    for (int f = grid->num_factors - 1; f >= 0; f--)
        if (set >> f & 1)
            place = place * grid->factor[f].size + grid->factor[f].coordinate;
    return place;
}

int tri_grid_find_axis(const tri_grid *grid, tri_factor_set set)
{
    for (int a = 0; a < grid->num_axes; a++)
        if (grid->axis[a].factors == set && set != 0)
            return a;
    return -1;
}

int tri_grid_axis_of(tri_grid *grid, tri_factor_set set)
{
    int found = tri_grid_find_axis(grid, set);
    if (found >= 0 || grid->num_axes == TRI_MAX_AXES)
        return found;
    tri_grid_axis *axis = &grid->axis[grid->num_axes];
    tri_grid_name(grid, set, axis->name, sizeof axis->name);
    axis->factors = set;
    return grid->num_axes++;
}

/* The largest axis within a set that holds a factor; -1: none. */
static int largest_axis(const tri_grid *grid, tri_factor_set set, int factor)
{
    int best = -1, most = 0;
    for (int a = 0; a < grid->num_axes; a++) {
        tri_factor_set own = grid->axis[a].factors;
        int count = __builtin_popcount(own);
        if (own >> factor & 1 && (own & ~set) == 0 && count > most) {
            best = a;
            most = count;
        }
    }
    return best;
}

char *tri_grid_name(const tri_grid *grid, tri_factor_set set, char *text, size_t text_size)
{
    size_t used = 0;
    text[0] = 0;
    for (int f = grid->num_factors - 1; f >= 0 && used < text_size; f--) {
        if (!(set >> f & 1))
            continue;
        int axis = largest_axis(grid, set, f);
        if (axis >= 0)
            set &= (tri_factor_set)~grid->axis[axis].factors;
        if (axis >= 0)
            used += (size_t)snprintf(text + used, text_size - used, "%s%s", used ? "*" : "",
                                     grid->axis[axis].name);
        else
            used += (size_t)snprintf(text + used, text_size - used, "%sf%d", used ? "*" : "", f);
    }
    return text;
}
