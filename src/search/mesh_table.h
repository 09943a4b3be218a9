/* What a search found for each pair of tp and pp: the fastest layout that has them, or what is
 * known of those that were not looked at. */
#ifndef TRI_SEARCH_MESH_TABLE_H
#define TRI_SEARCH_MESH_TABLE_H

#include "search/search.h"

typedef enum tri_mesh_state {
    TRI_MESH_NONE,      /* the list of layouts has none */
    TRI_MESH_REFUSED,   /* none can be made */
    TRI_MESH_TOO_LARGE, /* none fits */
    TRI_MESH_BOUNDED,   /* some may fit, and those were not looked at */
    TRI_MESH_LOOKED     /* one was looked at, and fits */
} tri_mesh_state;

typedef struct tri_mesh_cell {
    tri_mesh_state state;
    const tri_layout_result *best; /* LOOKED: the fastest */
    double bound;                  /* seconds that others which may fit take at least; 0: none */
    double bytes;                  /* the least of all */
    bool at_least;                 /* bytes are a bound */
    uint32_t looked;               /* layouts that were looked at */
} tri_mesh_cell;

enum { TRI_MESH_VALUES = 40 };

typedef struct tri_mesh_table {
    uint32_t tp[TRI_MESH_VALUES], pp[TRI_MESH_VALUES]; /* rising */
    size_t num_tp, num_pp;
    bool cut; /* there are more values, which were left out */
    tri_mesh_cell cell[TRI_MESH_VALUES][TRI_MESH_VALUES]; /* [pp][tp] */
} tri_mesh_table;

/* NULL: no memory. The caller frees it. search: what tri_search_run made, which stays as it is. */
tri_mesh_table *tri_mesh_table_make(tri_search *search, const tri_search_machine *machine);

#endif
