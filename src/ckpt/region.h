/* A region: which elements of a logical tensor someone has.
 *
 * Every way in which a layout divides a tensor comes down to two cuts. Tensor parallelism takes a
 * box out of it; ZeRO, and the sharing out of copies among those who write, take a run of elements
 * of that box, counted in row-major order:
 *
 *     a tensor [4, 6]      box begin [0, 2], size [4, 3]      elements 4 .. 9 of the box
 *     . . . . . .          . . 0  1  2  .                     . . .  .  .  .
 *     . . . . . .          . . 3  4  5  .                     . . .  4  5  .
 *     . . . . . .          . . 6  7  8  .                     . . 6  7  8  .
 *     . . . . . .          . . 9 10 11  .                     . . 9  .  .  .
 *
 * What a rank has in memory and what a file holds are both regions, dense and in this order. Saving
 * and loading are walks over the elements that two of them share. */
#ifndef TRI_CKPT_REGION_H
#define TRI_CKPT_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TRI_REGION_MAX_DIMS = 8 };

typedef struct tri_region {
    int num_dims;
    int64_t dim[TRI_REGION_MAX_DIMS];                              /* of the logical tensor */
    int64_t begin[TRI_REGION_MAX_DIMS], size[TRI_REGION_MAX_DIMS]; /* the box */
    int64_t first, count; /* elements [first, first + count) of the box */
} tri_region;

/* All of a tensor. */
tri_region tri_region_whole(int num_dims, const int64_t *dim);
int64_t tri_region_tensor_count(const tri_region *region); /* elements of the logical tensor */
int64_t tri_region_box_count(const tri_region *region);    /* of the box */
bool tri_region_is_box(const tri_region *region);          /* the whole box */
bool tri_region_same_box(const tri_region *a, const tri_region *b);
bool tri_region_boxes_meet(const tri_region *a, const tri_region *b); /* share an element */

/* Elements that follow each other in the logical tensor too. */
typedef struct tri_stretch {
    int64_t logical; /* index of the first in the logical tensor */
    int64_t local;   /* and in the region, from 0 */
    int64_t count;
} tri_stretch;

int64_t tri_region_num_stretches(const tri_region *region);
tri_stretch tri_region_stretch(const tri_region *region, int64_t i); /* ascending */

/* Calls fn for each stretch that two regions of one tensor share, in order: where it begins in each
 * of them, and its length. */
typedef tr_status (*tri_shared_fn)(void *context, int64_t in_a, int64_t in_b, int64_t count,
                                   tr_error *err);
tr_status tri_region_shared(const tri_region *a, const tri_region *b, tri_shared_fn fn,
                            void *context, tr_error *err);

#endif
