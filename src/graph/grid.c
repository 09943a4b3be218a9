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

bool tri_entries_equal(const tri_entries *a, const tri_entries *b)
{
    return a->num == b->num && memcmp(a->set, b->set, a->num * sizeof *a->set) == 0;
}

static int find_axis(const tri_grid *grid, tri_factor_set set, const tri_entries *order)
{
    for (int a = 0; a < grid->num_axes; a++)
        if (grid->axis[a].factors == set && set != 0 &&
            tri_entries_equal(&grid->axis[a].order, order))
            return a;
    return -1;
}

int tri_grid_find_axis(const tri_grid *grid, tri_factor_set set)
{
    return find_axis(grid, set, &(tri_entries){0});
}

int tri_grid_axis_of(tri_grid *grid, tri_factor_set set)
{
    return tri_grid_axis_in_order(grid, &(tri_entries){1, {set}});
}

/* Whether the order of entries is that of the grid. */
static bool counts_as_grid(const tri_entries *order)
{
    for (int i = 1; i < order->num; i++)
        if (order->set[i] >= (order->set[i - 1] & -order->set[i - 1]))
            return false;
    return true;
}

int tri_grid_axis_in_order(tri_grid *grid, const tri_entries *entries)
{
    tri_entries order = counts_as_grid(entries) ? (tri_entries){0} : *entries;
    tri_factor_set set = tri_entries_set(entries);
    int found = find_axis(grid, set, &order);
    if (found >= 0 || grid->num_axes == TRI_MAX_AXES)
        return found;
    tri_grid_axis axis = {.factors = set, .order = order};
    tri_grid_name(grid, set, axis.name, sizeof axis.name);
    size_t used = 0;
    for (int i = 0; i < order.num && used < sizeof axis.name; i++) {
        char name[TRI_GRID_NAME];
        tri_grid_name(grid, order.set[i], name, sizeof name);
        used +=
            (size_t)snprintf(axis.name + used, sizeof axis.name - used, "%s%s", i ? "*" : "", name);
    }
    grid->axis[grid->num_axes] = axis;
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
