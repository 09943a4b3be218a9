/* Combining vectors element by element, and copying them: the inner loops of the collectives. */
#ifndef TRI_COMM_REDUCE_H
#define TRI_COMM_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "collective/collective.h"
#include "graph/dtype.h"

/* into[i] = into[i] o from[i]. The two do not overlap. Mean combines as sum does; minimum and
 * maximum pass a NaN on; integers wrap around. */
void tri_combine(tri_dtype dtype, tri_reduction reduction, void *into, const void *from,
                 size_t count);

/* The end of a mean: data[i] /= n. Integers lose the remainder. */
void tri_divide(tri_dtype dtype, void *data, size_t count, int n);

/* A copy around the cache, for targets too large to be read from it afterwards. Visible to others
 * after tri_stream_end. */
void tri_copy_stream(void *to, const void *from, size_t num_bytes);
void tri_stream_end(void);

#endif
