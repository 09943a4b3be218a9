/* The time of a call as a line over its size, by the formulas of the algorithms: a T = fixed + S *
 * per_byte for each, and which of them is the lowest from what size on. */
#ifndef TRI_COLLECTIVE_LINES_H
#define TRI_COLLECTIVE_LINES_H

#include "collective/collective.h"

enum { TRI_COLL_MAX_LINES = 24 };

typedef struct tri_coll_line {
    const tri_algorithm *algorithm;
    char name[40];                       /* with its dims: "torus2d:8x4" */
    double messages, bytes, outer_bytes; /* along the critical path; bytes are shares of S */
    double fixed, per_byte;              /* seconds */
} tri_coll_line;

/* Of an algorithm that has the operation for such ranks. S is counted as docs/collectives.md does:
 * of an all_to_all, one rank's blocks. */
tri_coll_line tri_coll_line_of(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, const tri_coll_prices *prices);

/* From `bytes` on this line is the lowest. */
typedef struct tri_coll_best {
    int line;
    double bytes;
} tri_coll_best;

/* In the order of sizes; returns how many, at most num. */
int tri_coll_best_of(const tri_coll_line *lines, int num, tri_coll_best best[TRI_COLL_MAX_LINES]);

#endif
