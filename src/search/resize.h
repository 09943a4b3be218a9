/* The best layouts of a search on another number of devices: a quick look where a search of its own
 * would take long. */
#ifndef TRI_SEARCH_RESIZE_H
#define TRI_SEARCH_RESIZE_H

#include "search/search.h"

/* Looks at the first few of `found`, which was for as many devices as its facts say, with dp, pp or
 * cp larger or smaller, so that there are as many ranks as c's machine has devices. best->fits is
 * false where none of them fits. What c has fixed is not heeded. */
tr_status tri_search_resize(const tri_search_case *c, const tri_search *found,
                            tri_layout_result *best, tr_error *err);

#endif
