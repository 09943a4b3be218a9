/* Where the parameters of a rank lie: what placement finds out about each of them, and the memory
 * plan needs to know. The graph has the nodes and values; this has the rows of the parameter table.
 *
 * Whoever compiles owns it. The stages fill in the homes, placement the rest; without either of
 * them, this rank has all of every parameter. */
#ifndef TRI_PLACE_PLACED_PARAMS_H
#define TRI_PLACE_PLACED_PARAMS_H

#include "base/arena.h"
#include "graph/graph.h"

/* ZeRO: how parameters are divided over data-parallel ranks, and which travel together (zero.c). */
typedef struct tri_zero_plan {
    tri_flat *flats;      /* of each parameter; NULL: tensors are not divided that way */
    tri_id *bucket_first; /* with flats; of each parameter: the first that travels with it */
    tri_id *bucket_next;  /* and the next after it, TRI_NONE for the last; as in the table */
    bool weights_divided; /* not only masters and moments, but what the layers read */
} tri_zero_plan;

/* The first and the last chunk that use a parameter: tables that a head shares are used by two. */
typedef struct tri_home_set {
    uint32_t first, last;
} tri_home_set;

static inline bool tri_home_set_equal(tri_home_set a, tri_home_set b)
{
    return a.first == b.first && a.last == b.last;
}

/* Pipelines: who has a parameter (stages.c). */
typedef struct tri_homes {
    tri_home_set *set; /* of each parameter: the chunks that use it (tri_home_set_ranks); NULL */
    uint32_t *first;   /* of each parameter: the first rank that has it; NULL */
    uint32_t *last;    /* and the last */
    bool *elsewhere;   /* of each parameter: only other ranks of the pipeline have it; NULL */
} tri_homes;

typedef struct tri_placed_params {
    tri_shape *local_shape; /* of each parameter: what this rank has of it */
    tri_zero_plan zero;
    tri_homes homes;
    tri_where masters; /* where parameters that have a 16-bit copy rest, in every program */
    tri_arena arena;
} tri_placed_params;

/* This rank has all of every parameter. */
tr_status tri_placed_params_init(tri_placed_params *placed, const tri_param_table *params,
                                 tr_error *err);
/* Whether two parameters are divided and travel together: those of a layer that have a 16-bit copy,
 * or those that have none; experts apart from the others, and what is not divided at all. */
bool tri_same_bucket(const tri_graph *graph, const tri_homes *homes, size_t a, size_t b);
void tri_placed_params_fini(tri_placed_params *placed);

#endif
