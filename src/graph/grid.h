/* The grid: the ranks of a mesh as a product of factors, and where one of them stands.
 *
 * A factor is the coarsest piece of the mesh that some placement has to name by itself: dp, where
 * it is cut as one, or shard and replicate, of which it is the product. Factors are made from the
 * layout (mesh/grid.c); placements, rules and moves know them by number and never learn what they
 * are for. An axis is a named product of factors; every group of ranks that communicates is one. */
#ifndef TRI_GRAPH_GRID_H
#define TRI_GRAPH_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/shape.h"

enum { TRI_MAX_FACTORS = 16, TRI_MAX_AXES = 40, TRI_GRID_NAME = 16, TRI_MAX_ENTRIES = 8 };

/* Bit f: factor f. */
typedef uint16_t tri_factor_set;

typedef struct tri_factor {
    int32_t size;
    int32_t stride;     /* between neighbours along it */
    int32_t coordinate; /* of this rank */
    uint8_t family;     /* factors of one axis of the layout: a cut takes them as one */
    /* It cuts tokens, and for attention other dims in their place: there it stands last, and
     * everywhere apart from the rest of its family, so that it can go alone. */
    bool visits;
    bool splits; /* it divides what is kept together where a dim is cut: see `unit` */
} tri_factor;

/* Sets of factors in an order, the slowest first; those of one set count as on the grid. */
typedef struct tri_entries {
    uint8_t num;
    tri_factor_set set[TRI_MAX_ENTRIES];
} tri_entries;

typedef struct tri_grid_axis {
    char name[TRI_GRID_NAME];
    tri_factor_set factors;
    tri_entries order; /* in which its ranks are counted; none: as on the grid */
} tri_grid_axis;

typedef struct tri_grid {
    int num_factors;
    tri_factor factor[TRI_MAX_FACTORS]; /* strides ascend */
    int num_axes;
    tri_grid_axis axis[TRI_MAX_AXES]; /* the first are those of the mesh, by tri_axis */
    /* Elements of a dim that stay together where it is cut (heads that share a key head), but for
     * a factor that splits them and those behind it; 0: 1. */
    int64_t unit[TRI_NUM_DIM_NAMES];
} tri_grid;

/* Where block i of n balanced blocks of so many begins. */
static inline int64_t tri_block_begin(int64_t count, int64_t n, int64_t i)
{
    int64_t each = count / n, more = count % n;
    return each * i + (i < more ? i : more);
}

static inline tri_factor_set tri_factor_bit(int factor)
{
    return (tri_factor_set)(1u << factor);
}

/* Ranks along the factors of a set, and this rank's place among them: the slowest counts most. */
int32_t tri_grid_size(const tri_grid *grid, tri_factor_set set);
int32_t tri_grid_place(const tri_grid *grid, tri_factor_set set);
static inline tri_factor_set tri_entries_set(const tri_entries *entries)
{
    tri_factor_set set = 0;
    for (int i = 0; i < entries->num; i++)
        set |= entries->set[i];
    return set;
}
bool tri_entries_equal(const tri_entries *a, const tri_entries *b);
/* The first axis of exactly these factors; -1: there is none. */
int tri_grid_find_axis(const tri_grid *grid, tri_factor_set set);
/* The same; where there is none it gets a row, named after the axes
 * that it is a product of. -1: there are too many. */
int tri_grid_axis_of(tri_grid *grid, tri_factor_set set);
/* The same of ranks that are counted in the order of entries. */
int tri_grid_axis_in_order(tri_grid *grid, const tri_entries *order);
/* The shortest way to say a set: names of axes, slowest first, "dp*tp". Returns text. */
char *tri_grid_name(const tri_grid *grid, tri_factor_set set, char *text, size_t text_size);

#endif
