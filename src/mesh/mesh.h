/* The mesh: a named grid of ranks. One object from which every coordinate and group is derived.
 * Rank order, fastest first: tp, cp, dp, pp. */
#ifndef TRI_MESH_MESH_H
#define TRI_MESH_MESH_H

#include "base/error.h"

/* `home` is not an axis of the grid: the ranks of a pipeline that hold the same layers, which an
 * instruction names itself. It has one rank wherever it is asked for its size.
 * dp is a product of two factors, replicate x shard: ranks of a shard group hold different slices
 * of what is divided, those of a replicate group the same. tp is one of kv x kv_copy where there
 * are more of its ranks than key heads: ranks of a kv group hold different key heads, those of a
 * kv_copy group (neighbours) the same. */
typedef enum tri_axis {
    TRI_AXIS_TP,
    TRI_AXIS_CP,
    TRI_AXIS_DP,
    TRI_AXIS_PP,
    TRI_AXIS_SHARD,
    TRI_AXIS_REPLICATE,
    TRI_AXIS_HOME,
    TRI_AXIS_KV,
    TRI_AXIS_KV_COPY,
    TRI_NUM_AXES
} tri_axis;

/* An axis that was never set (0) has one rank. size[TRI_AXIS_SHARD] is the size of a shard group, 0
 * for all of dp; what replicate is follows. size[TRI_AXIS_KV_COPY] is how many ranks hold a key
 * head; kv follows, and where that is one or not set, tp has no factors and kv is one too. */
typedef struct tri_mesh {
    int size[TRI_NUM_AXES];
} tri_mesh;

const char *tri_axis_name(tri_axis axis);
int tri_mesh_size(const tri_mesh *mesh, tri_axis axis);
int tri_mesh_ranks(const tri_mesh *mesh);
int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis);
/* The ranks that differ from this one only along the axis, by their coordinate on it; members has
 * room for tri_mesh_size(mesh, axis). Returns the rank's own place among them. */
int tri_mesh_group(const tri_mesh *mesh, int rank, tri_axis axis, int *members);

#endif
