/* Which layout is the fastest that fits? Three passes:
 *
 *  1. rules make the list of layouts (space.h);
 *  2. what each takes at least follows from what a layer takes (cells.h). What does not fit for
 *     certain is dropped, and the rest is put in the order of these bounds;
 *  3. in that order layouts are looked at exactly (exact.h), until no other can be among the best.
 *
 * Then recomputation to fit is tried, where the best recompute more. Threads share the work in
 * batches, so what comes out does not depend on how many there are, or how fast. */
#ifndef TRI_SEARCH_SEARCH_H
#define TRI_SEARCH_SEARCH_H

#include "search/cells.h"
#include "search/space.h"

typedef struct tri_search_case {
    const tr_settings *settings; /* what is trained; their layout is not looked at */
    tri_search_machine machine;
    tri_space_fixed fixed;
    bool linear8_too;    /* precision.linear=fp8 is tried beside what the settings say */
    uint32_t num_best;   /* layouts that are wanted, each of another mesh */
    uint32_t most_exact; /* layouts that are looked at exactly, at most */
    bool least_memory;   /* the best takes least memory, of those that are nearly as fast as any */
    bool brief; /* the best alone: no reasons why others lost, and nothing is proven. Where none of
                   most_exact fits, those with least memory and as many again are looked at */
    int threads;
    void *context; /* told how far it is; may be NULL */
    void (*progress)(void *context, const char *what, size_t done, size_t of);
} tri_search_case;

/* A family of layouts that share a trait which the best one does not have, and why it lost. */
typedef struct tri_search_family {
    char trait[48]; /* "tp 16", "no pipeline" */
    bool any_fits;
    tri_layout_result best; /* the fastest that fits; otherwise the one that takes least memory */
    char why[160];          /* "+38 %: messages over tp take 2.1 s more; tp crosses nodes" */
} tri_search_family;
enum { TRI_SEARCH_FAMILIES = 24 };

typedef struct tri_search {
    tri_space_facts facts;
    tri_choices space;
    tri_cells cells;
    tri_pipes pipes;
    size_t num_bounded; /* of the space: could be made, and may fit */
    size_t num_refused, num_too_large;
    tri_layout_result *results; /* looked at exactly, the fastest that fit first */
    size_t num_results, results_capacity;
    size_t *best; /* of results: the fastest of each mesh, in order */
    size_t num_best;
    double least_bytes; /* that any layout takes, from below */
    double
        rest_bound; /* seconds: what was not looked at takes at least so long; 0: nothing is left */
    tri_search_family families[TRI_SEARCH_FAMILIES];
    size_t num_families;
    const char *least_why; /* nothing fits: the reason of a refusal, or NULL */
} tri_search;

tr_status tri_search_run(const tri_search_case *c, tri_search *search, tr_error *err);
void tri_search_fini(tri_search *search);

/* Of the results that fit, those that no other beats in both time and memory, the fastest first: up
 * to `most` of their numbers, and how many. */
size_t tri_search_front(const tri_search *search, size_t *front, size_t most);

#endif
