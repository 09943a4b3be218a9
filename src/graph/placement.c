#include "graph/placement.h"

#include <stdio.h>
#include <string.h>

bool tri_placement_equal(const tri_placement *a, const tri_placement *b)
{
    bool same = a->partial == b->partial && (a->partial == 0 || a->how == b->how);
    for (int d = 0; d < TRI_MAX_RANK && same; d++)
        same = tri_entries_equal(&a->dim[d], &b->dim[d]);
    return same;
}

tri_factor_set tri_placement_cut(const tri_placement *at)
{
    tri_factor_set set = 0;
    for (int d = 0; d < TRI_MAX_RANK; d++)
        set |= tri_entries_set(&at->dim[d]);
    return set;
}

tri_factor_set tri_placement_along(const tri_placement *at, tri_factor_set lost)
{
    tri_factor_set along = 0;
    for (int d = 0; d < TRI_MAX_RANK; d++) {
        bool ends = false;
        for (int i = 0; i < at->dim[d].num; i++) {
            ends |= (at->dim[d].set[i] & lost) != 0;
            along |= ends ? at->dim[d].set[i] : 0;
        }
    }
    return along;
}

tri_spot tri_placement_spot(const tri_placement *at, int factor)
{
    if (at->partial >> factor & 1)
        return (tri_spot){TRI_SPOT_TERMS, 0};
    for (int d = 0; d < TRI_MAX_RANK; d++)
        if (tri_entries_set(&at->dim[d]) >> factor & 1)
            return (tri_spot){TRI_SPOT_CUT, d};
    return (tri_spot){TRI_SPOT_WHOLE, 0};
}

/* Puts new factors behind a list: a family is one entry, or, where the dim has units or its factors
 * go to other dims, several. */
static void append(const tri_grid *grid, tri_dim_name name, tri_factor_set set,
                   tri_entries *entries)
{
    for (int f = grid->num_factors - 1; f >= 0; f--) {
        if (!(set >> f & 1) || entries->num == TRI_MAX_ENTRIES)
            continue;
        tri_factor_set entry = 0;
        bool apart = grid->unit[name] > 1 || grid->factor[f].visits;
        for (int g = 0; g <= f; g++)
            if (set >> g & 1 && grid->factor[g].family == grid->factor[f].family &&
                (!apart || g == f))
                entry |= tri_factor_bit(g);
        entries->set[entries->num++] = entry;
        set &= (tri_factor_set)~entry;
    }
}

/* Those that are here for a while came last, and are the first to go. They are at home where tokens
 * are, and places are cut as tokens. */
static tri_factor_set visitors(const tri_grid *grid, tri_dim_name name, tri_factor_set set)
{
    bool home = name == TRI_DIM_T || name == TRI_DIM_P || name == TRI_DIM_B;
    tri_factor_set visiting = 0;
    for (int f = 0; f < grid->num_factors && !home; f++)
        if (set >> f & 1 && grid->factor[f].visits)
            visiting |= tri_factor_bit(f);
    return visiting;
}

tri_placement tri_placement_of(const tri_grid *grid, const tri_shape *shape, const tri_spot *spots)
{
    tri_placement at = {0};
    tri_factor_set cut[TRI_MAX_RANK] = {0};
    for (int f = 0; f < grid->num_factors; f++) {
        if (spots[f].kind == TRI_SPOT_CUT)
            cut[spots[f].dim] |= tri_factor_bit(f);
        else if (spots[f].kind == TRI_SPOT_TERMS)
            at.partial |= tri_factor_bit(f);
    }
    for (int d = 0; d < shape->rank; d++)
        if (cut[d]) {
            tri_dim_name name = shape->dim[d].name;
            tri_factor_set last = visitors(grid, name, cut[d]);
            append(grid, name, cut[d] & (tri_factor_set)~last, &at.dim[d]);
            append(grid, name, last, &at.dim[d]);
        }
    return at;
}

static int32_t place_at(const tri_grid *grid, tri_factor_set set, const int32_t *coordinate)
{
    int32_t place = 0;
    if (!coordinate)
        return tri_grid_place(grid, set);
    for (int f = grid->num_factors - 1; f >= 0; f--)
        if (set >> f & 1)
            place = place * grid->factor[f].size + coordinate[f];
    return place;
}

/* How many elements of a dim stay together at entry i of its list. */
static int64_t unit_at(const tri_grid *grid, const tri_entries *entries, tri_dim_name name, int i)
{
    if (grid->unit[name] <= 1)
        return 1;
    for (int f = 0; f < grid->num_factors; f++)
        for (int j = 0; j <= i && grid->factor[f].splits; j++)
            if (entries->set[j] >> f & 1)
                return 1;
    return grid->unit[name];
}

int64_t tri_placement_piece(const tri_grid *grid, const tri_entries *entries, tri_dim whole,
                            const int32_t *coordinate, int64_t *begin)
{
    int64_t size = whole.size;
    *begin = 0;
    for (int i = 0; i < entries->num; i++) {
        int64_t unit = unit_at(grid, entries, whole.name, i);
        int32_t parts = tri_grid_size(grid, entries->set[i]);
        int32_t part = place_at(grid, entries->set[i], coordinate);
        int64_t first = tri_block_begin(size / unit, parts, part) * unit;
        size = tri_block_begin(size / unit, parts, part + 1) * unit - first;
        *begin += first;
    }
    return size;
}

tri_cut tri_placement_last(const tri_grid *grid, const tri_entries *entries, tri_dim whole, int dim,
                           int num)
{
    tri_entries before = *entries;
    before.num = (uint8_t)(before.num - num);
    tri_cut cut = {.dim = (uint8_t)dim, .parts = 1, .num_levels = (uint8_t)(num > 1 ? num : 0)};
    int64_t begin;
    cut.size = tri_placement_piece(grid, &before, whole, NULL, &begin);
    cut.unit = unit_at(grid, entries, whole.name, before.num);
    for (int i = 0; i < num; i++) {
        cut.unit_levels += num > 1 && unit_at(grid, entries, whole.name, before.num + i) > 1;
        tri_factor_set set = entries->set[before.num + i];
        cut.level[i] = num > 1 ? tri_grid_size(grid, set) : 0;
        cut.part = cut.part * tri_grid_size(grid, set) + tri_grid_place(grid, set);
        cut.parts *= tri_grid_size(grid, set);
    }
    return cut;
}

tri_shape tri_placement_shape(const tri_grid *grid, const tri_placement *at, const tri_shape *whole)
{
    tri_shape shape = *whole;
    int64_t begin;
    for (int d = 0; d < shape.rank; d++)
        if (at->dim[d].num > 0)
            shape.dim[d].size = tri_placement_piece(grid, &at->dim[d], whole->dim[d], NULL, &begin);
    return shape;
}

char *tri_placement_text(const tri_grid *grid, const tri_placement *at, const tri_shape *shape,
                         char *text, size_t text_size)
{
    char name[48];
    size_t used = (size_t)snprintf(text, text_size, "[");
    for (int d = 0; d < shape->rank && used < text_size; d++) {
        used += (size_t)snprintf(text + used, text_size - used, "%s%s", d ? ", " : "",
                                 tri_dim_letter(shape->dim[d].name));
        /* Neighbours that are an axis together have its name. */
        for (int i = 0, end; i < at->dim[d].num && used < text_size; i = end) {
            tri_factor_set set = at->dim[d].set[i];
            for (end = i + 1; end < at->dim[d].num; end++) {
                tri_factor_set more = set | at->dim[d].set[end];
                if (strchr(tri_grid_name(grid, more, name, sizeof name), '*'))
                    break;
                set = more;
            }
            used += (size_t)snprintf(text + used, text_size - used, "%s%s", i ? "*" : "@",
                                     tri_grid_name(grid, set, name, sizeof name));
        }
        if (used < text_size)
            used += (size_t)snprintf(text + used, text_size - used, " %lld",
                                     (long long)shape->dim[d].size);
    }
    if (used < text_size)
        used += (size_t)snprintf(text + used, text_size - used, "]");
    if (at->partial && used < text_size) {
        tri_grid_name(grid, at->partial, name, sizeof name);
        for (char *star = name; (star = strchr(star, '*'));)
            *star = ',';
        snprintf(text + used, text_size - used, "{P:%s}", name);
    }
    return text;
}
