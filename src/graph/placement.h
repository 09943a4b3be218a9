/* Placements: where a value lies on the grid.
 *
 * Over each factor a value is whole (every rank has the same), cut along one dim, or partial: a
 * term on every rank that a sum completes. For each dim that is a list of what cuts it, slowest
 * first, and for the value a set of factors over which it is partial:
 *
 *     q [B@dp, T, H@tp, K]          dW [D, F@tp]{P:dp}
 *
 * An entry of a list cuts what the entries before it leave: a piece is a run of elements of the
 * dim, and the last entry can be gathered alone. Factors of one axis are one entry, which divides
 * into balanced blocks over their product; where a dim has units, or a factor goes to other dims
 * for a while, each is an entry of its own. Entries keep units together, up to the first that has a
 * factor that splits them. */
#ifndef TRI_GRAPH_PLACEMENT_H
#define TRI_GRAPH_PLACEMENT_H

#include "graph/grid.h"

/* How terms are joined. Statistics of parts of a vocabulary are collected and combined by an
 * operator (ce_combine); nothing reads them before. The largest and the least are joins of states
 * alone (graph/stats.h). */
typedef enum tri_partial_how {
    TRI_PARTIAL_SUM,
    TRI_PARTIAL_COMBINE,
    TRI_PARTIAL_MAX,
    TRI_PARTIAL_MIN
} tri_partial_how;

typedef struct tri_placement {
    tri_entries dim[TRI_MAX_RANK];
    tri_factor_set partial;
    uint8_t how; /* tri_partial_how */
} tri_placement;

/* How a value lies over one factor: all that an operator's placement rule sees. */
typedef enum tri_spot_kind { TRI_SPOT_WHOLE, TRI_SPOT_CUT, TRI_SPOT_TERMS } tri_spot_kind;
typedef struct tri_spot {
    tri_spot_kind kind;
    int dim; /* of a cut */
} tri_spot;

bool tri_placement_equal(const tri_placement *a, const tri_placement *b);
/* Factors over which some dim is cut. */
tri_factor_set tri_placement_cut(const tri_placement *at);
/* What goes with factors that dims are not to be cut over any more: only the end of a list is
 * gathered, so whatever stands behind them, or in one entry with them. With the factors. */
tri_factor_set tri_placement_along(const tri_placement *at, tri_factor_set lost);
tri_spot tri_placement_spot(const tri_placement *at, int factor);

/* From how a value of that shape is to lie over each factor to its placement. Entries come in one
 * order everywhere, slowest first, so that lists of dims that meet agree. */
tri_placement tri_placement_of(const tri_grid *grid, const tri_shape *shape, const tri_spot *spots);

/* What a rank has of a dim: elements [*begin, *begin + returned value). The rank is given by its
 * coordinate on each factor; NULL: this one. */
int64_t tri_placement_piece(const tri_grid *grid, const tri_entries *entries, tri_dim whole,
                            const int32_t *coordinate, int64_t *begin);
/* The shape of this rank's piece. */
tri_shape tri_placement_shape(const tri_grid *grid, const tri_placement *at,
                              const tri_shape *whole);

/* A dim divided over the ranks of a group, level by level: balanced blocks, of which the first ones
 * are larger by one, and within each of them balanced blocks again. The first levels keep units
 * together. What is divided may itself be a piece. */
enum { TRI_NO_DIM = 255 }; /* a cut of no dim: parts of their own, one after the other */
typedef struct tri_cut {
    uint8_t dim;
    uint8_t num_levels;             /* 0: one, of all parts */
    uint8_t unit_levels;            /* that keep units together; 0: the first alone */
    int32_t parts;                  /* ranks; 0: not divided */
    int32_t part;                   /* of this rank */
    int32_t level[TRI_MAX_ENTRIES]; /* ranks of each level, slowest first; their product is parts */
    int64_t size;                   /* of what is divided */
    int64_t unit;                   /* elements that stay together */
} tri_cut;

static inline int64_t tri_cut_begin(const tri_cut *cut, int32_t part)
{
    int64_t begin = 0, size = cut->size, unit = cut->unit;
    int32_t rest = cut->parts, levels = cut->num_levels ? cut->num_levels : 1;
    if (part >= cut->parts)
        return size;
    for (int l = 0; l < levels; l++) {
        if (l > 0 && l >= cut->unit_levels)
            unit = 1;
        int32_t blocks = cut->num_levels ? cut->level[l] : cut->parts;
        rest /= blocks;
        int64_t first = tri_block_begin(size / unit, blocks, part / rest) * unit;
        size = tri_block_begin(size / unit, blocks, part / rest + 1) * unit - first;
        begin += first;
        part %= rest;
    }
    return begin;
}

static inline int64_t tri_cut_size(const tri_cut *cut, int32_t part)
{
    return tri_cut_begin(cut, part + 1) - tri_cut_begin(cut, part);
}

/* How the last `num` entries of a dim divide what those before them leave this rank. */
tri_cut tri_placement_last(const tri_grid *grid, const tri_entries *entries, tri_dim whole, int dim,
                           int num);

/* "[B@dp, T, H@tp, K]{P:kv_copy}"; with sizes those of the shape: "[B@dp 4, T 64]". Returns text.
 */
char *tri_placement_text(const tri_grid *grid, const tri_placement *at, const tri_shape *shape,
                         char *text, size_t text_size);

#endif
