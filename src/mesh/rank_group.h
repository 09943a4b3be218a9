/* A group of ranks as a record: who takes part in a message, without a list of them.
 *
 * Members are counted by their place, 0 to size - 1, in an order that all of them share. Most
 * groups are products of factors of the grid: levels of so many ranks at such a distance. A few are
 * some ranks along one level (stages of a pipeline that hold the same layers), and list these. */
#ifndef TRI_MESH_RANK_GROUP_H
#define TRI_MESH_RANK_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_GROUP_NAME = 24, TRI_GROUP_MAX_LEVELS = 8, TRI_GROUP_MAX_LISTED = 4 };

typedef struct tri_group_level {
    uint32_t size, stride; /* ranks, and from one to the next */
} tri_group_level;

typedef struct tri_rank_group {
    char name[TRI_GROUP_NAME]; /* "tp", "shard", "home" */
    uint32_t size;
    uint32_t own;   /* this rank's place */
    uint32_t first; /* the rank at place 0 of all levels */
    uint32_t num_levels;
    tri_group_level level[TRI_GROUP_MAX_LEVELS]; /* the fastest first */
    /* Not 0: only these places along the one level there is, ascending. */
    uint32_t num_listed;
    uint32_t listed[TRI_GROUP_MAX_LISTED];
} tri_rank_group;

/* The rank at a place. */
int tri_rank_group_member(const tri_rank_group *group, uint32_t place);
/* The same name and the same members, whoever of them looks at it. */
bool tri_rank_group_equal(const tri_rank_group *a, const tri_rank_group *b);
/* An order of groups that all ranks share (for qsort, of tri_rank_group): below 0, 0 when they are
 * equal, or above. */
int tri_rank_group_compare(const void *a, const void *b);
/* "tp", or with the places of those that are listed, "pp 0, 3". Returns text. */
char *tri_rank_group_text(const tri_rank_group *group, char *text, size_t text_size);

#endif
