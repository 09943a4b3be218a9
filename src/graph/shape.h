/* Shapes with named dims.
 *
 * A dim's name says what it counts (B rows of the batch, T positions, D model width ...). Products
 * contract dims of equal name, and a placement shards a dim by name, so a shape reads the same in
 * the model, in the placement rules and in the printed program. */
#ifndef TRI_GRAPH_SHAPE_H
#define TRI_GRAPH_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_dim_name {
    TRI_DIM_B,    /* batch rows (sequences) of one micro-batch */
    TRI_DIM_T,    /* positions in a sequence */
    TRI_DIM_D,    /* model width */
    TRI_DIM_H,    /* attention heads */
    TRI_DIM_G,    /* heads of keys and values, when several query heads share one */
    TRI_DIM_K,    /* width of a head */
    TRI_DIM_F,    /* feed-forward width */
    TRI_DIM_V,    /* vocabulary */
    TRI_DIM_P,    /* table of positions */
    TRI_DIM_E,    /* experts */
    TRI_DIM_C,    /* choices of a token: the experts that it goes to */
    TRI_DIM_QKV,  /* the three of query, key, value */
    TRI_DIM_STAT, /* a few numbers kept per row: mean and scale, maximum and sum, ... */
    TRI_DIM_N,    /* a plain count, never sharded */
    TRI_NUM_DIM_NAMES
} tri_dim_name;

enum { TRI_MAX_RANK = 6 };

typedef struct tri_dim {
    tri_dim_name name;
    int64_t size;
} tri_dim;

typedef struct tri_shape {
    int rank;
    tri_dim dim[TRI_MAX_RANK];
} tri_shape;

const char *tri_dim_letter(tri_dim_name name);
tri_shape tri_shape_of(int rank, ...); /* rank pairs of (tri_dim_name, int64_t) */
int64_t tri_shape_count(const tri_shape *shape);
/* The product of the sizes of dims [from, to). */
int64_t tri_shape_span(const tri_shape *shape, int from, int to);
bool tri_shape_equal(const tri_shape *a, const tri_shape *b);
/* "[B 4, T 64, D 128]"; returns text. */
char *tri_shape_text(const tri_shape *shape, char *text, size_t text_size);

#endif
