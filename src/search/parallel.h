/* The same for many items, on threads of the caller's process. Which thread takes which item makes
 * no difference: each writes what is its own. */
#ifndef TRI_SEARCH_PARALLEL_H
#define TRI_SEARCH_PARALLEL_H

#include <stddef.h>

typedef void (*tri_item_fn)(void *context, size_t item);

/* Without memory for threads, or with one, the caller does all of it. */
void tri_parallel_each(int threads, size_t num, tri_item_fn fn, void *context);

#endif
