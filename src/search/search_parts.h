/* What the files of the search share. */
#ifndef TRI_SEARCH_SEARCH_PARTS_H
#define TRI_SEARCH_SEARCH_PARTS_H

#include "search/search.h"

/* Looked at together. A number of its own, so that it does not depend on threads what is. */
enum { TRI_SEARCH_BATCH = 16 };

/* Sides of a layout from which follows how far its exact time is from its bound: the mesh, the
 * order of its pipeline, what ZeRO divides; and the same three more roughly, for sides of which
 * nothing was looked at yet. */
enum { TRI_SEARCH_SIDES = 3 };

/* A layout that may be among the best: by its number in the space. */
typedef struct tri_candidate {
    uint32_t choice;
    float seconds, bytes; /* bounds */
    uint32_t side[2 * TRI_SEARCH_SIDES];
    bool looked;
} tri_candidate;

/* Of a side, over all layouts that have it and were looked at: the least that time and memory were
 * of their bounds; 0: none was. */
typedef struct tri_side {
    uint64_t key;
    float seconds, bytes;
} tri_side;

typedef struct tri_search_run_state {
    const tri_search_case *c;
    tri_search *out;
    tri_candidate *list; /* in the order of their bounds in time */
    size_t num;
    tri_side *sides;
    size_t num_sides, sides_capacity;
    double slow_enough; /* above 0: memory counts, of layouts that take no more seconds than this */
} tri_search_run_state;

/* search_order.c: the candidates in their order; frees nothing of it, the state's owner does. */
tr_status tri_search_find_sides(tri_search_run_state *run, tr_error *err);
bool tri_search_may_fit(const tri_search_run_state *run, const tri_candidate *candidate);
/* All layouts whose bounds allow it are looked at. */
bool tri_search_is_small(const tri_search_run_state *run);
/* Which candidates are asked for; NULL: all, a batch of them. */
typedef struct tri_search_filter {
    const void *context;
    bool (*wants)(const void *context, const tri_layout_choice *choice);
    size_t most;
} tri_search_filter;
/* The next to be looked at, of those that take less than the limit, and how many: their numbers. */
size_t tri_search_next(const tri_search_run_state *run, double limit,
                       const tri_search_filter *filter, size_t next[TRI_SEARCH_BATCH]);
/* Those not looked at whose bounds in bytes are least, of those that take less than the limit. */
size_t tri_search_smallest(const tri_search_run_state *run, double limit,
                           size_t next[TRI_SEARCH_BATCH]);
/* The least bound of those that were not looked at, and may be faster than the limit; 0: there are
 * none. */
double tri_search_rest(const tri_search_run_state *run, double limit);

/* Looks exactly at some candidates, and adds what was found to the results, in their order. */
tr_status tri_search_look(tri_search_run_state *run, const size_t *candidates, size_t num,
                          tr_error *err);
/* Whether a result is better than another: it fits, and takes less time. */
bool tri_result_better(const tri_layout_result *a, const tri_layout_result *b);
/* search_families.c: looks at members of all families; then, when the best is known, says what
 * they lost by. */
tr_status tri_search_look_at_families(tri_search_run_state *run, tr_error *err);
void tri_search_explain_families(tri_search_run_state *run);

#endif
